"""For members: read an invitation, enrol, read the membership, report a refusal."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Request, Response, status

from privacy.identity import fingerprint
from privacy.securesum.errors import SecureSumError
from service.context import Context, Here
from service.errors import (
    InvitationInvalid,
    InvitationUsed,
    KeyKnown,
    MemberSuspended,
    NotFound,
    RateExceeded,
    RosterFull,
)
from service.http.access import APPROVED, PENDING, EnrolledMember, MemberAccess, Signer
from service.http.bodies import json_body
from service.http.declarations import declares
from service.http.every_request import PROTOCOL
from service.http.long_poll import Wait, held_back
from service.http.times import iso_time
from service.routes.parts import InvitationReadsHere, RunsHere
from service.sessions import invitations, members, sessions
from service.sessions.invitations import NewMember
from service.sessions.members import NewRefusal, Refusal
from service.sessions.sessions import Session

router = APIRouter(prefix="/sessions/{session_id}", tags=["members: joining"])

MAX_ENROLMENT = 4096
"""Most bytes of an enrolment: anyone can make a key and sign one."""


@dataclass(frozen=True)
class KnownMember:
    """A member, as other members see it."""

    name: str
    key: str
    fingerprint: str


@dataclass(frozen=True)
class OwnMembership(KnownMember):
    """The requesting member's own entry."""

    status: str


@dataclass(frozen=True)
class JoinedSession:
    """The session that a member takes part in."""

    id: str
    name: str
    program: str
    terms: str
    differential_privacy: bool
    delta: float | None
    """The δ of the session's budget; None without differential privacy."""


@dataclass(frozen=True)
class Membership:
    """Everything a member needs to decide whether to take part."""

    protocol: int
    session: JoinedSession
    member: OwnMembership
    roster: list[KnownMember]


@dataclass(frozen=True)
class InvitedTo:
    """Everything that an invited hospital needs to decide whether to enrol.

    It has no member's name and no key, only the name that the hospital is invited under.
    """

    protocol: int
    session: JoinedSession
    name: str
    expires_at: str
    in_words: list[str]
    """What the program will do and cost, one sentence for each stage, and who reads what."""


@router.post("/offer", operation_id="readInvitation", summary="Read an invitation")
@declares(InvitationInvalid, InvitationUsed, RateExceeded)
def offer(
    session_id: str,
    asked: Annotated[NewMember, json_body(NewMember, limit=MAX_ENROLMENT)],
    here: Here,
    reads: InvitationReadsHere,
) -> InvitedTo:
    """Return what an open invitation is to: the session's program and terms.

    Nobody is enrolled, and it may be repeated until the invitation has been used or has expired. It
    needs no key and no signature. The secret is in the body, because addresses are in logs. When it
    is read first is shown to the admin.
    """
    with here.database.reading() as connection:
        invitation, session = invitations.read(
            connection, session_id, asked.invitation, now=here.clock()
        )
    reads.charge(invitation.id, 1)
    if invitation.read_at is None:
        # Once: anyone can read it as often as the limit allows, and others need the write lock.
        with here.database.changing() as connection:
            invitations.note_read(connection, invitation, now=here.clock())
    return InvitedTo(
        protocol=PROTOCOL,
        session=_joined(session),
        name=invitation.name,
        expires_at=iso_time(invitation.expires_at),
        in_words=[*sessions.in_words(session)],
    )


@router.post(
    "/members",
    operation_id="enrolMember",
    status_code=status.HTTP_201_CREATED,
    summary="Enrol with an invitation",
    responses={200: {"model": OwnMembership, "description": "The same key is already enrolled."}},
)
@declares(InvitationInvalid, MemberSuspended, InvitationUsed, KeyKnown, RosterFull)
def enrol(
    session_id: str,
    signed: Signer,
    new: Annotated[NewMember, json_body(NewMember, limit=MAX_ENROLMENT)],
    here: Here,
    response: Response,
) -> OwnMembership:
    """Enrol the signer's key with an invitation; repeating the request is harmless."""
    # A stranger's attempt must not wait for those who write, nor make them wait.
    with here.database.reading() as connection:
        invitations.check_known(connection, session_id, new.invitation, now=here.clock())
    with here.database.changing() as connection:
        enrolment = invitations.accept(
            connection, session_id, new.invitation, signed, now=here.clock()
        )
    if not enrolment.is_new:
        response.status_code = status.HTTP_200_OK
    return _own(enrolment.name, enrolment.key, enrolment.status)


@router.get("/membership", operation_id="getMembership", summary="Get the membership")
async def membership(
    member: EnrolledMember, request: Request, here: Here, runs: RunsHere, wait: Wait = 0.0
) -> Membership:
    """Return the session, this member's status in it, and all approved members.

    While the member is pending, the answer is delayed for up to `wait` seconds.
    """
    return await held_back(
        request,
        runs.wakeups,
        member.session_id,
        wait,
        look=lambda: _membership(member, here),
        said=lambda shown: shown.member.status != PENDING,
    )


def _membership(member: MemberAccess, here: Context) -> Membership:
    with here.database.reading() as connection:
        session = sessions.find(connection, member.session_id)
        roster = members.roster(connection, member.session_id)
    (own,) = (each for each in roster if each.key == member.key)
    return Membership(
        protocol=PROTOCOL,
        session=_joined(session),
        member=_own(own.name, own.key, own.status),
        roster=[
            KnownMember(each.name, each.key.hex(), each.fingerprint)
            for each in roster
            if each.status == APPROVED
        ],
    )


@router.post(
    "/refusals",
    operation_id="reportRefusal",
    status_code=status.HTTP_204_NO_CONTENT,
    summary="Report a refusal",
)
@declares(NotFound, SecureSumError)
def refuse(
    member: EnrolledMember,
    new: Annotated[NewRefusal, json_body(NewRefusal)],
    here: Here,
    runs: RunsHere,
) -> None:
    """Report that the site's policy, or a check of its SDK, does not allow a request.

    If `run` is given, that run ends, because it cannot continue without one of its members. With
    differential privacy it continues if enough members are left.
    """
    refusal = Refusal(new.code, new.detail, here.clock())
    with here.database.changing() as connection:
        members.record_refusal(connection, member.session_id, member.key, refusal)
    if new.run is not None:
        runs.refused(member.session_id, new.run, member.key, new.code, new.detail)


def _joined(session: Session) -> JoinedSession:
    return JoinedSession(
        id=session.id,
        name=session.name,
        program=session.program,
        terms=session.terms.encode().hex(),
        differential_privacy=session.terms.differential_privacy,
        delta=session.delta,
    )


def _own(name: str, key: bytes, member_status: str) -> OwnMembership:
    return OwnMembership(name, key.hex(), fingerprint(key), member_status)
