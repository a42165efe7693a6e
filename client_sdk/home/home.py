"""The hospital's home directory: its identity, its journal, and the secret that deals its rows.

    identity.key     32 private bytes, created once, readable by their owner only
    journal.sqlite   what this hospital has signed and sent (`store`)
    dealing.key      32 secret bytes that deal its rows to parts (`kernels.rounds.site.dealing`)
    archive.key      secret bytes that open models for members only (`privacy.members.archive`)
    lock             held while a process uses the home; contains its process id

The path is `VEILGP_HOME`, or ~/.veilgp. An identity and its journal belong together: either without
the other is refused, because a hospital that has lost the record of what it signed could be made to
sign the opposite. Do not put either in a backup that might be restored.

`archive.key` is created on first use. Without it, models that others have sealed to this hospital
before cannot be opened any more; nothing else depends on it.

`dealing.key` is created with them, and an identity without it is refused: with another secret the
same rows are dealt to other parts, and the difference between two sums reveals rows that moved. It
may be kept in a backup that is as secret as the table, and be put into a home before its identity
is created: rows are then dealt as before.

All of it is for its owner alone (0700, files 0600): the journal's vault has the keys that mask this
hospital's numbers. A home of which any other user of the machine can read or write a part, SQLite's
files beside the journal included, is refused by name until a person has looked at it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from client_sdk.errors import DealingLost, HomeDamaged, HomeExposed, HomeInUse, HomeNotWritten
from client_sdk.home.store import Store
from kernels.rounds.site.dealing import Dealing
from privacy.errors import InvalidKey
from privacy.identity import Identity, Randomness
from privacy.securesum.client import Client
from privacy.securesum.records import Step
from privacy.securesum.sealing import KEM_SECRET_BYTES

VARIABLE = "VEILGP_HOME"
_DEALING_BYTES = 32
_EXPOSED = {
    "": "Others could replace its files, and see which there are",
    "identity.key": "If another user may have read it, create a new identity and have it confirmed",
    "dealing.key": "Who has read it can tell which rows a model was trained on: if another user "
    "may have, move the home away and have a new identity confirmed",
    "archive.key": "Who has read it can open the models that are for this study's members only",
    "journal.sqlite": "It has the keys that mask this hospital's numbers in runs that are open: if "
    "another user may have read it, end them first",
    "journal.sqlite-wal": "It is the newest part of the journal, which has the keys that mask this "
    "hospital's numbers",
    "journal.sqlite-shm": "It belongs to the journal: who can change it can damage the journal",
    "lock": "Who can open it can keep this hospital from its home",
}
"""The home and its files, each with what it means if other users can read or change it."""


@dataclass(frozen=True)
class OpenHome:
    """A home that only this process uses: identity, dealing, protocol state machine and store."""

    identity: Identity
    dealing_secret: bytes = field(repr=False)
    archive_secret: bytes = field(repr=False)
    client: Client
    store: Store

    @property
    def dealing(self) -> Dealing:
        """What deals this hospital's rows to parts."""
        return Dealing(self.dealing_secret)

    def keep(self, step: Step[Any]) -> None:
        """Write a step to disk; only then may its message be sent."""
        self.store.commit(step)


class Home:
    """The directory with this hospital's identity, journal and dealing."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        chosen = path or os.environ.get(VARIABLE) or Path.home() / ".veilgp"
        self.path = Path(chosen).expanduser()

    def __repr__(self) -> str:
        return f"Home({str(self.path)!r})"

    @property
    def _key_path(self) -> Path:
        return self.path / "identity.key"

    @property
    def _journal_path(self) -> Path:
        return self.path / "journal.sqlite"

    @property
    def _dealing_path(self) -> Path:
        return self.path / "dealing.key"

    @property
    def _archive_path(self) -> Path:
        return self.path / "archive.key"

    @contextmanager
    def open(self, random: Randomness = os.urandom) -> Iterator[OpenHome]:
        """Open the home exclusively; create its files together if there is no identity."""
        with self.locked():
            identity = self._identity()
            if identity is None:
                identity = self._begin(random)
            secret = self._dealing_secret()
            store = self.read()
            try:
                records, vault = store.journal()
                client = Client.restore(identity, records, vault, random)
                yield OpenHome(identity, secret, self._archive_secret(random), client, store)
            finally:
                store.close()

    def identity(self) -> Identity:
        """Return the identity; create it and its journal if there is none."""
        known = self._identity()
        if known is not None:
            return known
        with self.open() as home:
            return home.identity

    def dealing(self) -> Dealing:
        """Return the secret that deals this hospital's rows; create the home if there is none."""
        if self._identity() is not None:
            return Dealing(self._dealing_secret())
        with self.open() as home:
            return home.dealing

    def exists(self) -> bool:
        """Return whether there is an identity or a journal here."""
        return self._key_path.exists() or self._journal_path.exists()

    def read(self) -> Store:
        """Open the journal without the lock: to read it, or to confirm a pin."""
        self.check_private()
        if not self._journal_path.exists():
            raise HomeDamaged(
                f"{self.path} has no journal.sqlite. Either no session was ever joined from this "
                "home, or the file was removed; in that case the identity can no longer be used "
                "either"
            )
        return Store.open(self._journal_path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the home's lock, which is released when the process ends, even by a crash."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise HomeNotWritten(f"cannot use {self.path}: {error.strerror}") from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                owner = os.pread(handle, 20, 0).decode(errors="replace").strip() or "unknown"
                raise HomeInUse(
                    f"{self.path} is in use by process {owner}. Wait for it or end it. Another "
                    "hospital on this machine needs its own home (VEILGP_HOME, --home)."
                ) from None
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(handle)

    def check_private(self) -> None:
        """Refuse a home that other users of this machine can read or change, or any of its files.

        An access control list shows in the mode's group bits, so it is refused too.
        """
        for name, meaning in _EXPOSED.items():
            path = self.path / name
            try:
                mode = path.stat().st_mode
            except FileNotFoundError:
                continue
            except OSError as error:
                raise HomeDamaged(f"cannot read {path}: {error.strerror}") from error
            if mode & 0o077:
                raise HomeExposed(
                    f"{path} is open to other users of this machine (mode {mode & 0o777:04o}): run "
                    f"chmod {'600' if name else '700'} on it. {meaning}"
                )

    def _identity(self) -> Identity | None:
        self.check_private()
        data = _read_secret(self._key_path)
        if data is None:
            return None
        try:
            return Identity.from_bytes(data)
        except InvalidKey as error:
            raise HomeDamaged(f"{self._key_path} is not a valid identity: {error}") from error

    def _dealing_secret(self) -> bytes:
        data = _read_secret(self._dealing_path)
        if data is None or len(data) != _DEALING_BYTES:
            what = "is missing" if data is None else f"does not have {_DEALING_BYTES} bytes"
            raise DealingLost(
                f"{self._dealing_path} {what}: it is the secret that deals this hospital's rows to "
                "parts, and is not created anew, because the rows would be dealt differently. Put "
                "the file back from a copy. Without a copy, move the home away and have a new "
                "identity confirmed: the table then counts as another one"
            )
        return data

    def _archive_secret(self, random: Randomness) -> bytes:
        data = _read_secret(self._archive_path)
        if data is None:
            _write_secret(self._archive_path, random(KEM_SECRET_BYTES))
            data = _read_secret(self._archive_path)
        if data is None or len(data) != KEM_SECRET_BYTES:
            raise HomeDamaged(
                f"{self._archive_path} does not have {KEM_SECRET_BYTES} bytes: put it back from a "
                "copy, or remove it; models that are for members only must then be sealed again"
            )
        return data

    def _begin(self, random: Randomness) -> Identity:
        """Create an identity, its journal and its dealing.

        Renaming the identity's file, the last step, makes them valid at once. A crash before it
        leaves a dealing that is complete or absent; one that is there is kept.
        """
        if self._journal_path.exists():
            self._remove_unused_journal()
        identity = Identity.generate(random)
        _, step = Client.begin(identity, random)
        os.close(os.open(self._journal_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        store = Store.open(self._journal_path)
        try:
            store.commit(step)
        finally:
            store.close()
        if not self._dealing_path.exists():
            _write_secret(self._dealing_path, random(_DEALING_BYTES))
        self._dealing_secret()
        _write_secret(self._key_path, identity.to_bytes())
        return identity

    def _remove_unused_journal(self) -> None:
        """Remove a journal whose identity was not created because of a crash; no other."""
        store = self.read()
        try:
            records, _ = store.journal()
        finally:
            store.close()
        if len(records) > 1:
            raise HomeDamaged(
                f"{self.path} has a journal but no identity.key: the key was removed. Put it back, "
                "or move the journal away and have a new identity confirmed."
            )
        self._journal_path.unlink()


def _read_secret(path: Path) -> bytes | None:
    """Return a file's bytes; None if it does not exist."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HomeDamaged(f"cannot read {path}: {error.strerror}") from error


def _write_secret(path: Path, secret: bytes) -> None:
    """Create a file that only its owner can read: complete and on disk, or not at all."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, secret)
        os.fsync(handle)
    finally:
        os.close(handle)
    fresh.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
