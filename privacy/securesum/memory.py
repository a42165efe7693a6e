"""A client's memory: its journal, which is permanent, and its vault, whose entries are erased.

`commit` is the only way to change either, and returns what must be durable before a message is
sent. The vault's entry `head` pins the journal: a journal restored from a backup is refused,
because it may lack what was signed later.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from privacy.securesum.errors import (
    JournalError,
    JournalLost,
    JournalOfAnotherVersion,
    SecretsLost,
    VaultLost,
)
from privacy.securesum.journal import EpochName, Journal
from privacy.securesum.records import Head, Step, VaultChanges
from privacy.securesum.wire import VERSION, Message

Vault = Mapping[str, bytes | memoryview]
Stored = TypeVar("Stored", bound=Message)
Reply = TypeVar("Reply")
HEAD = "head"


class Memory:
    """A journal and a vault that change together."""

    def __init__(self, journal: Journal, vault: Vault) -> None:
        self.journal = journal
        self._vault: dict[str, bytes | memoryview] = dict(vault)
        self._read: dict[str, Message] = {}
        """Decoded entries of the vault, kept until they change."""

    @classmethod
    def restore(cls, owner: bytes, records: Iterable[bytes], vault: Vault) -> "Memory":
        """Read both back; refuse a journal that is empty, foreign or from a backup."""
        listed = list(records)
        if not listed:
            raise JournalLost(
                "The journal is empty. An identity cannot be used without its journal; make a new "
                "identity."
            )
        if HEAD not in vault:
            raise VaultLost(
                "There is no vault for this journal. Vaults are not in backups, so the journal "
                "comes from a backup and may lack what was signed later. Make a new identity."
            )
        check_stored_version(listed, vault)
        journal = Journal.replay(listed, Head.decode(bytes(vault[HEAD])))
        if journal.identity != owner:
            raise JournalError("This is not the journal of this identity.")
        return cls(journal, vault)

    def commit(
        self, message: Reply, records: Iterable[Message], vault: VaultChanges | None = None
    ) -> Step[Reply]:
        """Change the memory; return what must be durable before the message is sent."""
        encoded = []
        for record in records:
            data = record.encode()
            self.journal.apply(record, data)
            encoded.append(data)
        changes = dict(vault or {})
        if encoded:
            changes[HEAD] = Head(self.journal.count, self.journal.chain).encode()
        for name, content in changes.items():
            self._read.pop(name, None)
            if content is None:
                self._vault.pop(name, None)
            else:
                self._vault[name] = content
        return Step(message, tuple(encoded), changes)

    def entries(self) -> Vault:
        """Return a copy of the vault."""
        return dict(self._vault)

    def holds(self, name: str, kind: type[Message]) -> bool:
        """Return whether there is an entry with this name and kind."""
        content = self._vault.get(name)
        return content is not None and content[1] == kind.kind

    def secret(self, name: str, kind: type[Stored]) -> Stored:
        """Return a decoded entry."""
        if not self.holds(name, kind):
            raise SecretsLost("The secrets of this epoch or slot are not in the vault.")
        known = self._read.get(name)
        if not isinstance(known, kind):
            known = self._read[name] = kind.decode(bytes(self._vault[name]))
        return known

    def body(self, name: str) -> memoryview:
        """Return an entry that is a masked vector."""
        if name not in self._vault:
            raise SecretsLost("The masked vector of this slot is not in the vault.")
        return memoryview(self._vault[name])


def check_stored_version(records: Iterable[bytes], vault: Vault) -> None:
    """Refuse a journal or a vault that another version of the protocol has written."""
    for data in (*records, bytes(vault[HEAD][:1])):
        if data and data[0] != VERSION:
            raise JournalOfAnotherVersion(
                f"The journal was written by veilgp with protocol version {data[0]}; this veilgp "
                f"uses version {VERSION} and cannot continue it. Use the veilgp that wrote it, or "
                "make a new home and have the new identity confirmed."
            )


def epoch_entry(name: EpochName) -> str:
    """Return the name of the entry with an epoch's secrets."""
    return f"epoch/{name[0].hex()}/{name[1].hex()}/{name[2]}"


def group_entry(name: EpochName) -> str:
    """Return the name of the entry with an epoch's group key."""
    return f"group/{name[0].hex()}/{name[1].hex()}/{name[2]}"


def slot_entry(name: EpochName) -> str:
    """Return the name of the entry with the open slot's self key and header."""
    return f"slot/{name[0].hex()}/{name[1].hex()}/{name[2]}"


def body_entry(name: EpochName) -> str:
    """Return the name of the entry with the open slot's masked vector."""
    return f"body/{name[0].hex()}/{name[1].hex()}/{name[2]}"


def slot_erased(name: EpochName) -> VaultChanges:
    """Return the change that erases the open slot's secrets."""
    return {slot_entry(name): None, body_entry(name): None}


def epoch_erased(name: EpochName) -> VaultChanges:
    """Return the change that erases all secrets of an epoch but its group key."""
    return {epoch_entry(name): None, **slot_erased(name)}
