"""Invitations: a one-time secret that lets one hospital enrol its key under a given name.

    open → used by a key            once; the same key may say it again
         → revoked, or expired

The secret is 256 random bits, kept as its SHA-256, and travels in the fragment of a link, which no
proxy and no log sees. Whoever has only the link enrols a key of their own: that is why an admin
compares fingerprints before approving.
"""

import hmac
from dataclasses import dataclass
from uuid import uuid4

from pydantic import Field
from sqlalchemy import Connection, Row, insert, select, update

from privacy.identity import MAX_MEMBERS
from privacy.requests import SignedRequest
from service.database.tables import invitations, members
from service.errors import (
    InvitationInvalid,
    InvitationUsed,
    KeyKnown,
    MemberSuspended,
    NameTaken,
    NotFound,
    RosterFull,
)
from service.http.access import PENDING, SUSPENDED
from service.http.nonces import remember
from service.http.request_models import Name, RequestModel, Seconds, likeness
from service.http.tokens import hash_secret, make_secret
from service.sessions import sessions

WEEK_S = 7 * 86400


class NewInvitation(RequestModel):
    """Whom to invite, and for how long."""

    name: Name
    expires_in_s: Seconds = WEEK_S


class NewMember(RequestModel):
    """The secret of an invitation."""

    invitation: str = Field(max_length=200)


@dataclass(frozen=True)
class Invitation:
    """What is known of an invitation; its secret is not."""

    id: str
    name: str
    expires_at: float
    status: str
    """One of open, used, expired, revoked."""


@dataclass(frozen=True)
class Enrolment:
    """The outcome of using an invitation."""

    name: str
    key: bytes
    status: str
    is_new: bool


def create(
    connection: Connection, session_id: str, new: NewInvitation, *, now: float
) -> tuple[Invitation, str]:
    """Make an invitation, and give its secret for the one time that it is shown."""
    sessions.find(connection, session_id)
    enrolled = connection.execute(
        select(members.c.name).where(members.c.session_id == session_id)
    ).scalars()
    waiting = [each.name for each in every(connection, session_id, now=now) if _is_open(each)]
    names = [*enrolled, *waiting]
    if len(names) >= MAX_MEMBERS:
        raise RosterFull(f"A session has at most {MAX_MEMBERS} members, invited ones included.")
    for other in names:
        if likeness(other) == likeness(new.name):
            raise NameTaken(
                f"{other!r} is a member or invited already. Revoke an open invitation to send a "
                "new one; a member that has lost its key gets a name of its own."
            )
    invitation = Invitation(str(uuid4()), new.name, now + new.expires_in_s, "open")
    secret = make_secret()
    connection.execute(
        insert(invitations).values(
            id=invitation.id,
            session_id=session_id,
            name=invitation.name,
            secret_hash=hash_secret(secret),
            expires_at=invitation.expires_at,
        )
    )
    return invitation, secret


def every(connection: Connection, session_id: str, *, now: float) -> list[Invitation]:
    """Give a session's invitations, by name."""
    query = select(invitations).where(invitations.c.session_id == session_id)
    rows = connection.execute(query.order_by(invitations.c.name, invitations.c.expires_at))
    return [Invitation(row.id, row.name, row.expires_at, _status(row, now)) for row in rows]


def revoke(connection: Connection, session_id: str, invitation_id: str, *, now: float) -> None:
    """Make an invitation worthless; one that was used is past that."""
    here = (invitations.c.session_id == session_id) & (invitations.c.id == invitation_id)
    row = connection.execute(select(invitations).where(here)).one_or_none()
    if row is None:
        raise NotFound("No such invitation.")
    if row.used_by is not None:
        raise InvitationUsed(f"{row.name!r} has enrolled with it; suspend the member instead.")
    connection.execute(update(invitations).where(here).values(revoked_at=now))


def accept(
    connection: Connection, session_id: str, secret: str, signed: SignedRequest, *, now: float
) -> Enrolment:
    """Enrol the signer's key under the invitation's name, to wait for approval.

    A session that does not exist answers like a secret that does not: strangers learn nothing.
    """
    row = _of_secret(connection, session_id, secret)
    if row is None or (row.used_by is None and _status(row, now) != "open"):
        raise InvitationInvalid(
            "This invitation is unknown, expired or revoked; ask who sent it for a new one."
        )
    remember(connection, signed, now_ms=int(now * 1000))
    if row.used_by is not None:
        return _again(connection, row, signed.key)
    enrolled = (
        connection.execute(select(members.c.key).where(members.c.session_id == session_id))
        .scalars()
        .all()
    )
    if signed.key in enrolled:
        raise KeyKnown("This key is a member of the session already, under another invitation.")
    if len(enrolled) >= MAX_MEMBERS:
        raise RosterFull(f"The session has its {MAX_MEMBERS} members.")
    connection.execute(
        update(invitations).where(invitations.c.id == row.id).values(used_by=signed.key)
    )
    connection.execute(
        insert(members).values(
            session_id=session_id, key=signed.key, name=row.name, status=PENDING, enrolled_at=now
        )
    )
    return Enrolment(row.name, signed.key, PENDING, is_new=True)


def _again(connection: Connection, row: Row[tuple[object, ...]], key: bytes) -> Enrolment:
    if not hmac.compare_digest(row.used_by, key):
        raise InvitationUsed(
            "Another key has used this invitation. If it was not this hospital's, tell the admin "
            "at once; if its identity was lost, ask for a new invitation."
        )
    status = connection.execute(
        select(members.c.status).where(members.c.session_id == row.session_id, members.c.key == key)
    ).scalar_one()
    if status == SUSPENDED:
        raise MemberSuspended(f"The admin has suspended {row.name!r}.")
    return Enrolment(row.name, key, status, is_new=False)


def _of_secret(
    connection: Connection, session_id: str, secret: str
) -> Row[tuple[object, ...]] | None:
    hashed = hash_secret(secret)
    query = select(invitations).where(invitations.c.session_id == session_id)
    found = None
    # All of them are compared, whichever fits: at most a few hundred.
    for row in connection.execute(query):
        if hmac.compare_digest(row.secret_hash, hashed):
            found = row
    return found


def _status(row: Row[tuple[object, ...]], now: float) -> str:
    if row.used_by is not None:
        return "used"
    if row.revoked_at is not None:
        return "revoked"
    return "expired" if row.expires_at <= now else "open"


def _is_open(invitation: Invitation) -> bool:
    return invitation.status == "open"
