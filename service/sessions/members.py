"""Members of sessions: hospitals, identified by their keys.

    enrolled with an invitation → pending → approved ⇄ suspended

An admin approves a member after comparing its fingerprint over the phone.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, RowMapping, select, update

from privacy.identity import fingerprint
from service.database.tables import members
from service.errors import NotFound
from service.http.access import APPROVED
from service.http.request_models import Code, RequestModel, Sentence


class NewStatus(RequestModel):
    """The status that an admin gives a member."""

    status: Literal["approved", "suspended"]


class NewRefusal(RequestModel):
    """A refusal by a site's policy or a check of its SDK; it must not contain data."""

    run: str | None = None
    code: Code
    detail: Sentence


@dataclass(frozen=True)
class Refusal:
    """A member's last refusal."""

    code: str
    detail: str
    at: float


@dataclass(frozen=True)
class MemberRow:
    """A member of a session."""

    name: str
    key: bytes
    status: str
    enrolled_at: float
    refusal: Refusal | None

    @property
    def fingerprint(self) -> str:
        """The digits that admin and hospital compare by phone."""
        return fingerprint(self.key)


def roster(connection: Connection, session_id: str) -> list[MemberRow]:
    """Return all members of a session, by name."""
    query = select(members).where(members.c.session_id == session_id).order_by(members.c.name)
    return [_member(row) for row in connection.execute(query).mappings()]


def approved(connection: Connection, session_id: str) -> list[MemberRow]:
    """Return the approved members, who take part in new runs."""
    return [each for each in roster(connection, session_id) if each.status == APPROVED]


def counts(connection: Connection, session_id: str) -> dict[str, int]:
    """Return the number of a session's members by status."""
    return dict(Counter(each.status for each in roster(connection, session_id)))


def set_status(connection: Connection, session_id: str, name: str, status: str) -> MemberRow:
    """Approve or suspend a member."""
    here = (members.c.session_id == session_id) & (members.c.name == name)
    if not connection.execute(update(members).where(here).values(status=status)).rowcount:
        raise NotFound(f"The session has no member {name!r}.")
    return _member(connection.execute(select(members).where(here)).mappings().one())


def record_refusal(connection: Connection, session_id: str, key: bytes, refusal: Refusal) -> None:
    """Store a member's refusal, for the admin to see."""
    here = (members.c.session_id == session_id) & (members.c.key == key)
    connection.execute(
        update(members)
        .where(here)
        .values(refusal_code=refusal.code, refusal_detail=refusal.detail, refused_at=refusal.at)
    )


def _member(row: RowMapping) -> MemberRow:
    refusal = (
        Refusal(row["refusal_code"], row["refusal_detail"], row["refused_at"])
        if row["refusal_code"] is not None
        else None
    )
    return MemberRow(row["name"], row["key"], row["status"], row["enrolled_at"], refusal)
