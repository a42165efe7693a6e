"""The hospital's home directory: who it is, and what it must not forget.

    identity.key     32 private bytes, made once, readable by its owner only
    journal.sqlite   what this hospital has signed and sent (`store`)
    lock             held while a process uses the home, with its number

`VEILGP_HOME`, or ~/.veilgp. One identity and one journal belong together: either without the other
is refused, for a hospital that has forgotten what it signed could be made to sign the opposite.
Neither belongs into a backup that might be played back.
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
    """A home that this process alone uses: who it is, its machine of the protocol, its memory."""

    identity: Identity
    client: Client
    store: Store

    def keep(self, step: Step[Any]) -> None:
        """Make a step durable; only then may its message be sent."""
        self.store.commit(step)


class Home:
    """A directory that is this hospital."""

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
        """Use the home, alone; make identity and journal together if there is neither."""
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
        """Give the identity; make it, and begin its journal, if there is none."""
        known = self._identity()
        if known is not None:
            return known
        with self.open() as home:
            return home.identity

    def read(self) -> Store:
        """Open the journal without the lock: to read it, or to confirm a pin."""
        if not self._journal_path.exists():
            raise HomeDamaged(
                f"{self.path} has no journal.sqlite: nothing was ever joined from here, or the "
                "file was removed, and then the identity beside it is lost with it"
            )
        return Store.open(self._journal_path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the home's lock, which ends with the process however it ends."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise HomeNotWritten(f"{self.path} cannot be used: {error.strerror}") from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                owner = os.pread(handle, 20, 0).decode(errors="replace").strip() or "unknown"
                raise HomeInUse(
                    f"{self.path} is in use by process {owner}. Wait for it or end it; another "
                    "hospital on this machine needs a home of its own (VEILGP_HOME, --home)."
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
            raise HomeDamaged(f"{self._key_path} cannot be read: {error.strerror}") from error
        if mode & 0o077:
            raise HomeExposed(
                f"{self._key_path} can be read by other users of this machine: chmod 600 it, and "
                "if any of them may have, make a new identity and have it confirmed"
            )
        try:
            return Identity.from_bytes(data)
        except InvalidKey as error:
            raise HomeDamaged(f"{self._key_path} is not an identity: {error}") from error

    def _begin(self, random: Randomness) -> Identity:
        """Make an identity and begin its journal; the key's rename is what makes both exist."""
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
        """Remove the journal of an identity that a crash kept from being made; no other."""
        store = self.read()
        try:
            records, _ = store.journal()
        finally:
            store.close()
        if len(records) > 1:
            raise HomeDamaged(
                f"{self.path} has a journal and no identity.key: the key was removed. Put it back, "
                "or move the journal away and have a new identity confirmed."
            )
        self._journal_path.unlink()
