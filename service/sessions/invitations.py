"""Invitations: a one-time secret that lets one hospital enrol its key under a given name.

    open → used by a key            once; the same key may repeat the request
         → revoked, or expired

Until then its link may be read any number of times: what the session computes and under which
terms, so that a person can decide about it before anybody enrols. Reading changes nothing but
`read_at`, when it was read first, which the admin sees: a hospital that says it has not opened its
link yet was not the one who did. Who read it is not known, and not stored.

The secret is 256 random bits, stored as its SHA-256. It is sent in the fragment of a link, which
proxies and logs do not see. Somebody who has intercepted the link can read the session's program
and terms, and enrol another key: this is why an admin compares fingerprints before approving a
member.
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
    """The name of the invited hospital, and for how long the invitation is valid."""

    name: Name
    expires_in_s: Seconds = WEEK_S


class NewMember(RequestModel):
    """The secret of an invitation."""

    invitation: str = Field(max_length=200)


@dataclass(frozen=True)
class Invitation:
    """An invitation without its secret."""

    id: str
    name: str
    expires_at: float
    status: str
    """One of open, used, expired, revoked."""
    read_at: float | None
    """When its terms were first read, possibly by somebody who only reviews them."""


@dataclass(frozen=True)
class Enrolment:
    """The result of using an invitation."""

    name: str
    key: bytes
    status: str
    is_new: bool


def create(
    connection: Connection, session_id: str, new: NewInvitation, *, now: float
) -> tuple[Invitation, str]:
    """Create an invitation; return it with its secret, which is not stored."""
    sessions.find(connection, session_id)
    enrolled = connection.execute(
        select(members.c.name).where(members.c.session_id == session_id)
    ).scalars()
    waiting = [each.name for each in every(connection, session_id, now=now) if _is_open(each)]
    names = [*enrolled, *waiting]
    if len(names) >= MAX_MEMBERS:
        raise RosterFull(
            f"The session already has {MAX_MEMBERS} members and open invitations, which is the "
            "maximum. Revoke an open invitation to make space."
        )
    for other in names:
        if likeness(other) == likeness(new.name):
            raise NameTaken(
                f"{other!r} is already a member or invited. To send a new invitation, revoke the "
                "open one first; to invite a member that has lost its key, choose another name."
            )
    invitation = Invitation(str(uuid4()), new.name, now + new.expires_in_s, "open", None)
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
    """Return a session's invitations, by name."""
    query = select(invitations).where(invitations.c.session_id == session_id)
    rows = connection.execute(query.order_by(invitations.c.name, invitations.c.expires_at))
    return [_invitation(row, now) for row in rows]


def revoke(connection: Connection, session_id: str, invitation_id: str, *, now: float) -> None:
    """Revoke an invitation that has not been used."""
    here = (invitations.c.session_id == session_id) & (invitations.c.id == invitation_id)
    row = connection.execute(select(invitations).where(here)).one_or_none()
    if row is None:
        raise NotFound("The session has no invitation with this id.")
    if row.used_by is not None:
        raise InvitationUsed(
            f"{row.name!r} has already enrolled with this invitation; suspend the member instead."
        )
    connection.execute(update(invitations).where(here).values(revoked_at=now))


def read(
    connection: Connection, session_id: str, secret: str, *, now: float
) -> tuple[Invitation, sessions.Session]:
    """Return an open invitation with its session; reads only.

    An unknown session and an unknown secret get the same answer, so that strangers learn nothing.
    """
    row = check_known(connection, session_id, secret, now=now)
    if row.used_by is not None:
        raise InvitationUsed(
            "A key has enrolled with this invitation, which ends reading with it. The member reads "
            "the session with its key: https://host/sessions/<id>. If it was not your hospital, "
            "tell the admin at once."
        )
    return _invitation(row, now), sessions.find(connection, session_id)


def note_read(connection: Connection, invitation: Invitation, *, now: float) -> None:
    """Record when an invitation was read first; later readings change nothing."""
    first = (invitations.c.id == invitation.id) & invitations.c.read_at.is_(None)
    connection.execute(update(invitations).where(first).values(read_at=now))


def check_known(
    connection: Connection, session_id: str, secret: str, *, now: float
) -> Row[tuple[object, ...]]:
    """Return the invitation of a secret if it is open or used; reads only."""
    row = _of_secret(connection, session_id, secret)
    if row is None or (row.used_by is None and _status(row, now) != "open"):
        raise InvitationInvalid(
            "The invitation is unknown, expired or revoked; ask the admin for a new one."
        )
    return row


def accept(
    connection: Connection, session_id: str, secret: str, signed: SignedRequest, *, now: float
) -> Enrolment:
    """Enrol the signer's key under the invitation's name, pending approval.

    An unknown session and an unknown secret get the same answer, so that strangers learn nothing.
    """
    row = check_known(connection, session_id, secret, now=now)
    remember(connection, signed, now_ms=int(now * 1000))
    if row.used_by is not None:
        return _again(connection, row, signed.key)
    enrolled = (
        connection.execute(select(members.c.key).where(members.c.session_id == session_id))
        .scalars()
        .all()
    )
    if signed.key in enrolled:
        raise KeyKnown(
            "This key has already joined the session with another invitation; use one invitation "
            "for each key."
        )
    if len(enrolled) >= MAX_MEMBERS:
        raise RosterFull(f"The session already has the maximum of {MAX_MEMBERS} members.")
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
            "Another key has used this invitation. If that was not your hospital's key, tell the "
            "admin at once; if your hospital has lost its key, ask for a new invitation."
        )
    status = connection.execute(
        select(members.c.status).where(members.c.session_id == row.session_id, members.c.key == key)
    ).scalar_one()
    if status == SUSPENDED:
        raise MemberSuspended(
            f"The member {row.name!r} is suspended; ask the session's admin for the reason."
        )
    return Enrolment(row.name, key, status, is_new=False)


def _of_secret(
    connection: Connection, session_id: str, secret: str
) -> Row[tuple[object, ...]] | None:
    hashed = hash_secret(secret)
    query = select(invitations).where(invitations.c.session_id == session_id)
    found = None
    # All rows are compared, also after a match, for constant time; there are at most a few hundred.
    for row in connection.execute(query):
        if hmac.compare_digest(row.secret_hash, hashed):
            found = row
    return found


def _invitation(row: Row[tuple[object, ...]], now: float) -> Invitation:
    return Invitation(row.id, row.name, row.expires_at, _status(row, now), row.read_at)


def _status(row: Row[tuple[object, ...]], now: float) -> str:
    if row.used_by is not None:
        return "used"
    if row.revoked_at is not None:
        return "revoked"
    return "expired" if row.expires_at <= now else "open"


def _is_open(invitation: Invitation) -> bool:
    return invitation.status == "open"
