"""The hospital's home directory: its identity and its journal.

    identity.key     32 private bytes, created once, readable by their owner only
    journal.sqlite   what this hospital has signed and sent (`store`)
    lock             held while a process uses the home; contains its process id

The path is `VEILGP_HOME`, or ~/.veilgp. An identity and its journal belong together: either without
the other is refused, because a hospital that has lost the record of what it signed could be made to
sign the opposite. Do not put either in a backup that might be restored.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from client_sdk.errors import HomeDamaged, HomeExposed, HomeInUse, HomeNotWritten
from client_sdk.home.store import Store
from privacy.errors import InvalidKey
from privacy.identity import Identity, Randomness
from privacy.securesum.client import Client
from privacy.securesum.records import Step

VARIABLE = "VEILGP_HOME"


@dataclass(frozen=True)
class OpenHome:
    """A home that only this process uses: its identity, protocol state machine and store."""

    identity: Identity
    client: Client
    store: Store

    def keep(self, step: Step[Any]) -> None:
        """Write a step to disk; only then may its message be sent."""
        self.store.commit(step)


class Home:
    """The directory with this hospital's identity and journal."""

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

    @contextmanager
    def open(self, random: Randomness = os.urandom) -> Iterator[OpenHome]:
        """Open the home exclusively; create identity and journal together if both are missing."""
        with self.locked():
            identity = self._identity()
            if identity is None:
                identity = self._begin(random)
            store = self.read()
            try:
                records, vault = store.journal()
                client = Client.restore(identity, records, vault, random)
                yield OpenHome(identity, client, store)
            finally:
                store.close()

    def identity(self) -> Identity:
        """Return the identity; create it and its journal if there is none."""
        known = self._identity()
        if known is not None:
            return known
        with self.open() as home:
            return home.identity

    def read(self) -> Store:
        """Open the journal without the lock: to read it, or to confirm a pin."""
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

    def _identity(self) -> Identity | None:
        try:
            mode = self._key_path.stat().st_mode
            data = self._key_path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise HomeDamaged(f"cannot read {self._key_path}: {error.strerror}") from error
        if mode & 0o077:
            raise HomeExposed(
                f"{self._key_path} can be read by other users of this machine: run chmod 600 on "
                "it. If another user may have read it, create a new identity and have it confirmed"
            )
        try:
            return Identity.from_bytes(data)
        except InvalidKey as error:
            raise HomeDamaged(f"{self._key_path} is not a valid identity: {error}") from error

    def _begin(self, random: Randomness) -> Identity:
        """Create an identity and its journal; renaming the key file makes both valid at once."""
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
        fresh = self._key_path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, identity.to_bytes())
            os.fsync(handle)
        finally:
            os.close(handle)
        fresh.rename(self._key_path)
        directory = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
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
