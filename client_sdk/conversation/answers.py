"""The coordinator's responses as plain data, read strictly: nothing in them is trusted.

A field that is missing or has the wrong type raises `MalformedAnswer`; an unknown field has no
effect. Whether the content makes sense is checked where it is used.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID

from client_sdk.conversation.rosters import roster_of
from client_sdk.errors import MalformedAnswer
from client_sdk.readable import printable
from privacy.errors import PrivacyError
from privacy.frames import Frame
from privacy.identity import Roster
from privacy.securesum.item_kinds import ItemKind
from privacy.securesum.terms import Terms

T = TypeVar("T")
INVITED = "invited"
STATUSES = ("pending", "approved", "suspended")
OUTCOMES = ("done", "failed", "cancelled")
_MODEL = re.compile(r"[A-Za-z0-9_.-]{1,100}")


@dataclass(frozen=True)
class Membership:
    """A session, and this hospital's membership in it.

    status: one of STATUSES; INVITED, without a key, if only the invitation has been read.
    """

    session: UUID
    title: str
    program: str
    terms: Terms
    name: str
    key: bytes
    status: str
    delta: float | None = None
    """The δ at which the session counts its ε. If None, costs are reported at a default δ."""

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> "Membership":
        """Read the response to GET membership."""
        session, member = _inner(plain, "session"), _inner(plain, "member")
        return cls(
            session=_read(session, "id", UUID),
            title=printable(_text(session, "name"), 200),
            program=_text(session, "program"),
            terms=_read(session, "terms", lambda text: Terms.decode(bytes.fromhex(text))),
            name=printable(_text(member, "name"), 200),
            key=_read(member, "key", bytes.fromhex),
            status=_one_of(member, "status", STATUSES),
            delta=None if session.get("delta") is None else _small(session, "delta"),
        )

    @classmethod
    def read_invitation(cls, plain: Mapping[str, Any]) -> "Membership":
        """Read the response to an invitation that was only read."""
        member = {"name": plain.get("name"), "key": "", "status": STATUSES[0]}
        return replace(
            cls.read({"session": plain.get("session"), "member": member}), status=INVITED
        )


@dataclass(frozen=True)
class Item:
    """What this member must do next."""

    kind: ItemKind
    run: UUID
    number: int
    message: bytes = field(repr=False)
    frame: Frame = field(repr=False)

    @classmethod
    def read(cls, frame: Frame) -> "Item":
        """Read the response to GET next."""
        plain = frame.content
        kind = ItemKind(_one_of(plain, "kind", tuple(ItemKind)))
        ended = kind is ItemKind.ENDED
        return cls(
            kind=kind,
            run=_read(plain, "run", UUID),
            number=0 if ended else _whole(plain, "number"),
            message=b"" if ended else _part(frame, "message"),
            frame=frame,
        )

    @property
    def plain(self) -> Mapping[str, Any]:
        """The fields of the item."""
        return self.frame.content

    def text(self, name: str) -> str:
        """Return a field that must be text."""
        return _text(self.plain, name)

    @property
    def parent(self) -> str | None:
        """The id of the model that a run starts from, or None."""
        if self.plain.get("parent") is None:
            return None
        return _matching(self.text("parent"), "parent", _MODEL)

    def whole(self, name: str) -> int:
        """Return a field that must be an integer of at least 0."""
        return _whole(self.plain, name)

    @property
    def delivery(self) -> bytes | None:
        """The other members' encrypted shares for this member, while the coordinator has them."""
        return self.frame.bytes("delivery")

    def part(self, name: str) -> bytes | None:
        """Return a part, if the item has it."""
        return self.frame.bytes(name)

    @property
    def roster(self) -> Roster:
        """The members of the run."""
        try:
            return roster_of(self.plain["roster"])
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, PrivacyError):
                raise
            raise MalformedAnswer(
                "the roster in the coordinator's response is not a list of members"
            ) from error


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended."""

    status: str
    code: str
    detail: str
    model: str | None

    @classmethod
    def read(cls, item: Item) -> "RunOutcome":
        """Read the outcome from an item that reports the end of a run."""
        plain = _inner(item.plain, "outcome")
        model = plain.get("model")
        return cls(
            status=_one_of(plain, "status", OUTCOMES),
            code=printable(plain.get("code") or "", 100),
            detail=printable(plain.get("detail") or ""),
            model=None if model is None else _matching(_text(plain, "model"), "model", _MODEL),
        )


def _inner(plain: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = plain.get(name)
    if not isinstance(value, dict):
        raise _malformed(name, "an object")
    return value


def _text(plain: Mapping[str, Any], name: str) -> str:
    value = plain.get(name)
    if not isinstance(value, str):
        raise _malformed(name, "text")
    return value


def _whole(plain: Mapping[str, Any], name: str) -> int:
    value = plain.get(name)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise _malformed(name, "an integer from 0 to 2⁶³ − 1")
    return value


def _small(plain: Mapping[str, Any], name: str) -> float:
    value = plain.get(name)
    if type(value) is not float or not 1e-15 <= value <= 0.1:
        raise _malformed(name, "a number from 1e-15 to 0.1")
    return value


def _one_of(plain: Mapping[str, Any], name: str, allowed: tuple[str, ...]) -> str:
    value = plain.get(name)
    if not isinstance(value, str) or value not in allowed:
        raise _malformed(name, f"one of {', '.join(sorted(allowed))}")
    return value


def _matching(value: str, name: str, pattern: re.Pattern[str]) -> str:
    if not pattern.fullmatch(value):
        raise _malformed(name, "in the expected format")
    return value


def _part(frame: Frame, name: str) -> bytes:
    part = frame.bytes(name)
    if part is None:
        raise _malformed(name, "among its parts")
    return part


def _read(plain: Mapping[str, Any], name: str, reader: Callable[[str], T]) -> T:
    text = _text(plain, name)
    try:
        return reader(text)
    except PrivacyError:
        raise
    except ValueError as error:
        raise _malformed(name, "in the expected format") from error


def _malformed(name: str, what: str) -> MalformedAnswer:
    return MalformedAnswer(
        f"the coordinator's response is malformed: {name!r} is not {what}. If this happens again, "
        "the versions of the coordinator and of this veilgp may not be compatible."
    )
