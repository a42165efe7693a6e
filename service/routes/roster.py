"""For admins: the members of a session. Invitations, approval, suspension, the roster file."""

from dataclasses import dataclass
from typing import Annotated
from unicodedata import normalize

from fastapi import APIRouter, Request, status

from service.context import Here
from service.database import notices
from service.errors import InvitationUsed, NameTaken, NotFound, RosterFull
from service.http.access import Admin
from service.http.bodies import json_body
from service.http.declarations import declares
from service.http.times import iso_time, iso_time_if
from service.routes.parts import RunsHere
from service.sessions import invitations, members, sessions
from service.sessions.invitations import Invitation, NewInvitation
from service.sessions.members import MemberRow, NewStatus

router = APIRouter(prefix="/sessions/{session_id}", tags=["admins: members"])


@dataclass(frozen=True)
class ShownInvitation:
    """An invitation, without its secret."""

    id: str
    name: str
    status: str
    expires_at: str
    read_at: str | None
    """When the session's terms were first read with it, by whom is not known; None until then."""


@dataclass(frozen=True)
class InvitationWithLink:
    """A new invitation with its link, which is not shown again."""

    id: str
    name: str
    link: str
    expires_at: str


@dataclass(frozen=True)
class ShownRefusal:
    """A member's last refusal, with its reason."""

    code: str
    detail: str
    at: str


@dataclass(frozen=True)
class ShownMember:
    """A member; compare its fingerprint by phone before you approve it."""

    name: str
    key: str
    fingerprint: str
    status: str
    enrolled_at: str
    refusal: ShownRefusal | None


@dataclass(frozen=True)
class PinnedMember:
    """A member's name and key."""

    name: str
    key: str


@dataclass(frozen=True)
class RosterFile:
    """The roster that a site pins after somebody there has confirmed it."""

    session: str
    members: list[PinnedMember]


@router.post(
    "/invitations",
    operation_id="inviteMember",
    status_code=status.HTTP_201_CREATED,
    summary="Invite a hospital",
)
@declares(NotFound, NameTaken, RosterFull)
def invite(
    _: Admin,
    session_id: str,
    new: Annotated[NewInvitation, json_body(NewInvitation)],
    request: Request,
    here: Here,
) -> InvitationWithLink:
    """Create an invitation with a link that one hospital can use once."""
    with here.database.changing() as connection:
        invitation, secret = invitations.create(connection, session_id, new, now=here.clock())
    # Without `public_url`, assume that hospitals use the same URL as the admin.
    base = (here.settings.public_url or str(request.base_url)).rstrip("/")
    return InvitationWithLink(
        id=invitation.id,
        name=invitation.name,
        link=f"{base}/join/{session_id}#{secret}",
        expires_at=iso_time(invitation.expires_at),
    )


@router.get("/invitations", operation_id="listInvitations", summary="List the invitations")
@declares(NotFound)
def invited(_: Admin, session_id: str, here: Here) -> list[ShownInvitation]:
    """List all invitations, including used, expired and revoked ones."""
    with here.database.reading() as connection:
        sessions.find(connection, session_id)
        return [
            _shown_invitation(each)
            for each in invitations.every(connection, session_id, now=here.clock())
        ]


@router.delete(
    "/invitations/{invitation_id}",
    operation_id="revokeInvitation",
    status_code=status.HTTP_204_NO_CONTENT,
    summary="Revoke an invitation",
)
@declares(NotFound, InvitationUsed)
def revoke(_: Admin, session_id: str, invitation_id: str, here: Here) -> None:
    """Revoke an open invitation; its link no longer works."""
    with here.database.changing() as connection:
        invitations.revoke(connection, session_id, invitation_id, now=here.clock())


@router.get("/members", operation_id="listMembers", summary="List the members")
@declares(NotFound)
def roster(_: Admin, session_id: str, here: Here) -> list[ShownMember]:
    """List the members with their fingerprints, status and last refusal."""
    with here.database.reading() as connection:
        sessions.find(connection, session_id)
        return [_shown(each) for each in members.roster(connection, session_id)]


@router.patch(
    "/members/{name}", operation_id="setMemberStatus", summary="Approve or suspend a member"
)
@declares(NotFound)
def set_status(
    _: Admin,
    session_id: str,
    name: str,
    new: Annotated[NewStatus, json_body(NewStatus)],
    here: Here,
    runs: RunsHere,
) -> ShownMember:
    """Approve or suspend a member; a member that waits for approval is notified at once."""
    with here.database.changing() as connection:
        sessions.find(connection, session_id)
        member = members.set_status(connection, session_id, normalize("NFC", name), new.status)
        notices.notify(connection, session_id, sender=runs.replica)
    runs.wakeups.wake(session_id)
    return _shown(member)


@router.get("/roster", operation_id="getRoster", summary="Get the roster file")
@declares(NotFound)
def roster_file(_: Admin, session_id: str, here: Here) -> RosterFile:
    """Return the approved members as the file that sites pin."""
    with here.database.reading() as connection:
        sessions.find(connection, session_id)
        approved = members.approved(connection, session_id)
    return RosterFile(session_id, [PinnedMember(each.name, each.key.hex()) for each in approved])


def _shown(member: MemberRow) -> ShownMember:
    refusal = member.refusal
    return ShownMember(
        name=member.name,
        key=member.key.hex(),
        fingerprint=member.fingerprint,
        status=member.status,
        enrolled_at=iso_time(member.enrolled_at),
        refusal=None
        if refusal is None
        else ShownRefusal(refusal.code, refusal.detail, iso_time(refusal.at)),
    )


def _shown_invitation(invitation: Invitation) -> ShownInvitation:
    return ShownInvitation(
        id=invitation.id,
        name=invitation.name,
        status=invitation.status,
        expires_at=iso_time(invitation.expires_at),
        read_at=iso_time_if(invitation.read_at),
    )
