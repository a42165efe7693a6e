"""The policies of a home, one file for each session, and which of them a person has approved.

    policies/NAME.toml              drafted by `veilgp policy draft`, reviewed and edited
    policies/NAME.approved.json     by `veilgp approve`: the SHA-256 of that file, the members'
                                    keys, who approved, and when
    policies/NAME.table.json        what `veilgp policy draft` or `veilgp check` found in the
                                    table: how many rows take part, and how many are left out

NAME is the session's id.

A drafted policy allows what its session asks for, so it must not count before somebody has read it:
`join` uses a policy of the home only if exactly this text was approved. The folder is inside the
home, which is for its owner alone.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from client_sdk.errors import (
    HomeDamaged,
    HomeNotWritten,
    PolicyFileError,
    PolicyNotApproved,
    RosterFileError,
)
from client_sdk.home.home import Home
from client_sdk.home.roster_file import members_of
from client_sdk.readable import readable


@dataclass(frozen=True)
class Approval:
    """What a person has approved: a policy by its SHA-256, and the keys of the session's members.

    by: who; at: when, as text for people.
    """

    policy: str
    roster: Mapping[str, bytes]
    by: str
    at: str

    def to_json(self) -> str:
        """Return the file's text."""
        members = [{"name": name, "key": key.hex()} for name, key in self.roster.items()]
        return json.dumps({**asdict(self), "roster": {"members": members}}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Approval":
        """Read the file's text."""
        plain = json.loads(text)
        policy, by, at = (plain[name] for name in ("policy", "by", "at"))
        if not all(isinstance(each, str) for each in (policy, by, at)):
            raise TypeError("a field is not text")
        return cls(policy, members_of(plain["roster"]), by, at)


@dataclass(frozen=True)
class TableSeen:
    """The rows of a table that was read for a session, for whoever approves its policy.

    rows: those that take part. without_target: those that are left out because a target is missing.
    table, at: its file, and when it was read, as text for people.
    """

    rows: int
    without_target: int
    table: str
    at: str

    def __str__(self) -> str:
        """Return a sentence for the hospital's own people."""
        return (
            f"{self.without_target:,} rows of {readable(self.table)} have no target, or not all of "
            f"them, and are left out; {self.rows:,} rows take part (as it was read on "
            f"{readable(self.at)}). This is shown only here."
        )


@dataclass(frozen=True)
class Policies:
    """The policies of one home."""

    home: Home

    def path(self, session: str) -> Path:
        """Return where the policy of a session is."""
        return self.home.path / "policies" / f"{session}.toml"

    def write(self, session: str, text: str, *, replace: bool) -> Path:
        """Write a drafted policy; one that is there, and may have been edited, only if asked to."""
        path = self.path(session)
        if not replace and path.exists() and _read(path) != text.encode():
            raise PolicyFileError(
                f"{path} is there already, and may have been edited: review that, or pass "
                "--replace to draft it anew"
            )
        self._put(path, text)
        return path

    def text(self, session: str) -> bytes:
        """Return the bytes of a session's policy."""
        path = self.path(session)
        if not path.exists():
            raise PolicyNotApproved(
                f"there is no policy for this session at {path}: draft one with `veilgp policy "
                "draft LINK TABLE`, review it, and approve it with `veilgp approve LINK --roster "
                "roster.json`; or pass a policy of your own (--policy)"
            )
        return _read(path)

    def note_table(self, session: str, seen: TableSeen) -> None:
        """Store what was found in the table that a session's policy is reviewed for."""
        self._put(self._table_path(session), json.dumps(asdict(seen), indent=2))

    def table_seen(self, session: str) -> TableSeen | None:
        """Return what was found in the table, or None if none was read in this home."""
        path = self._table_path(session)
        if not path.exists():
            return None
        try:
            seen = TableSeen(**json.loads(_read(path).decode()))
        except (TypeError, ValueError, RecursionError):
            seen = None
        counts = () if seen is None else (seen.rows, seen.without_target)
        texts = () if seen is None else (seen.table, seen.at)
        if (
            not counts
            or not all(type(own) is int for own in counts)
            or not all(isinstance(own, str) for own in texts)
        ):
            raise HomeDamaged(f"{path} is damaged: read the table again with veilgp check")
        return seen

    def approve(self, session: str, approval: Approval) -> None:
        """Store an approval."""
        self._put(self._approval_path(session), approval.to_json())

    def forget_approval(self, session: str) -> None:
        """Forget that a session's policy was approved; the policy stays."""
        path = self._approval_path(session)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise HomeNotWritten(f"cannot remove {path}: {error.strerror}") from error

    def approved(self, session: str) -> Approval:
        """Return the approval of a session's policy as it is now, or refuse."""
        text, path = self.text(session), self._approval_path(session)
        if not path.exists():
            raise PolicyNotApproved(
                f"nobody has approved {self.path(session)} yet: review it, then run `veilgp "
                "approve LINK --roster roster.json`"
            )
        try:
            approval = Approval.from_json(_read(path).decode())
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise RosterFileError(f"{path} is damaged: approve the policy again") from error
        if approval.policy != sha256_of(text):
            raise PolicyNotApproved(
                f"{self.path(session)} has changed since {approval.by} approved it "
                f"({approval.at}): review it, and approve it again"
            )
        return approval

    def is_approved(self, session: str) -> bool:
        """Return whether somebody has approved the session's policy as it is now."""
        try:
            self.approved(session)
        except (PolicyNotApproved, PolicyFileError, RosterFileError):
            return False
        return True

    def _table_path(self, session: str) -> Path:
        return self.path(session).with_suffix(".table.json")

    def _approval_path(self, session: str) -> Path:
        return self.path(session).with_suffix(".approved.json")

    def _put(self, path: Path, text: str) -> None:
        fresh = path.with_name(path.name + ".new")
        try:
            self.home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.home.check_private()
            path.parent.mkdir(mode=0o700, exist_ok=True)
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(handle)
            fresh.replace(path)
        except OSError as error:
            raise HomeNotWritten(f"cannot write {path}: {error.strerror}") from error


def sha256_of(text: bytes) -> str:
    """Return the SHA-256 by which a policy's text is approved."""
    return hashlib.sha256(text).hexdigest()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PolicyFileError(f"cannot read {path}: {error.strerror}") from error
