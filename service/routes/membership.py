"""For members: enrol, see one's membership, refuse."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Response, status

from privacy.identity import fingerprint
from privacy.securesum.errors import SecureSumError
from service import invitations, members, sessions
from service.access import Enrolled, Enrolling
from service.bodies import sent
from service.context import Here
from service.errors import (
    InvitationInvalid,
    InvitationUsed,
    KeyKnown,
    MemberSuspended,
    NotFound,
    RosterFull,
)
from service.invitations import NewMember
from service.members import NewRefusal, Refusal
from service.protocol import PROTOCOL
from service.runs import Running
from service.stated import states

router = APIRouter(prefix="/sessions/{session_id}", tags=["members: joining"])

MAX_ENROLMENT = 4096
"""Octets that are read from whoever has a key, which is anyone."""


@dataclass(frozen=True)
class Known:
    """A member, as others are shown it."""

    name: str
    key: str
    fingerprint: str


@dataclass(frozen=True)
class Own(Known):
    """The member that asks."""

    status: str


@dataclass(frozen=True)
class JoinedSession:
    """What a member takes part in."""

    id: str
    name: str
    program: str
    seed: int
    terms: str
    differential_privacy: bool


@dataclass(frozen=True)
class Membership:
    """All that a member decides by."""

    protocol: int
    session: JoinedSession
    member: Own
    roster: list[Known]


@router.post(
    "/members",
    status_code=status.HTTP_201_CREATED,
    summary="Enrol by an invitation",
    responses={200: {"model": Own, "description": "Enrolled before, by the same key."}},
)
@states(InvitationInvalid, MemberSuspended, InvitationUsed, KeyKnown, RosterFull)
def enrol(
    session_id: str,
    signed: Enrolling,
    new: Annotated[NewMember, sent(NewMember, limit=MAX_ENROLMENT)],
    here: Here,
    response: Response,
) -> Own:
    """Enrol the signer's key by an invitation; the same again gives the same answer."""
    with here.database.changing() as connection:
        enrolment = invitations.accept(
            connection, session_id, new.invitation, signed, now=here.clock()
        )
    if not enrolment.is_new:
        response.status_code = status.HTTP_200_OK
    return _own(enrolment.name, enrolment.key, enrolment.status)


@router.get("/membership", summary="Show the membership")
def membership(member: Enrolled, here: Here) -> Membership:
    """Show the session, this member's place in it, and who else is approved."""
    with here.database.reading() as connection:
        session = sessions.find(connection, member.session_id)
        approved = members.approved(connection, member.session_id)
    return Membership(
        protocol=PROTOCOL,
        session=JoinedSession(
            id=session.id,
            name=session.name,
            program=session.program,
            seed=session.seed,
            terms=session.terms.encode().hex(),
            differential_privacy=session.terms.differential_privacy,
        ),
        member=_own(member.name, member.key, member.status),
        roster=[Known(each.name, each.key.hex(), each.fingerprint) for each in approved],
    )


@router.post(
    "/refusals", status_code=status.HTTP_204_NO_CONTENT, summary="Refuse what was asked for"
)
@states(NotFound, SecureSumError)
def refuse(
    member: Enrolled, new: Annotated[NewRefusal, sent(NewRefusal)], here: Here, runs: Running
) -> None:
    """Say that the site's policy, or a check of its SDK, forbids what it was asked for.

    With a run, that run ends: it cannot go on without one of its members. With differential
    privacy it can, if enough are left.
    """
    refusal = Refusal(new.code, new.detail, here.clock())
    with here.database.changing() as connection:
        members.record_refusal(connection, member.session_id, member.key, refusal)
    if new.run is not None:
        runs.refused(member.session_id, new.run, member.key, new.code, new.detail)


def _own(name: str, key: bytes, member_status: str) -> Own:
    return Own(name, key.hex(), fingerprint(key), member_status)
