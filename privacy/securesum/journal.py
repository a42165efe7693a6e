"""A client's memory, built from its journal records in order.

`Journal.apply` is the only place where this memory changes. It runs in the same way for a new
record and for one that is read back after a crash, so a restored client is in exactly the state of
the client that crashed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from privacy.framing import Label, digest
from privacy.securesum.epoch import Epoch
from privacy.securesum.errors import JournalError, JournalRolledBack, SessionNotJoined, UnknownEpoch
from privacy.securesum.records import (
    RECORDS,
    Abandoned,
    Advertised,
    Agreed,
    Begun,
    Bound,
    Certified,
    CohortApproved,
    Ended,
    Endorsed,
    Head,
    Joined,
    SignedAbandon,
    SignedCertify,
    TableApproved,
    Uploaded,
)
from privacy.securesum.terms import Terms
from privacy.securesum.wire import Message

EpochName = tuple[bytes, bytes, int]
"""Session, run and number: the name of an epoch before its members are known."""


@dataclass
class SlotEntry:
    """What the client did in one slot, and how the slot ended."""

    uploaded: Uploaded | None = None
    certify: SignedCertify | None = None
    abandon: SignedAbandon | None = None
    certified: Certified | None = None
    abandoned: bool = False

    @property
    def closed(self) -> bool:
        """Whether the client has verified a proof of either kind."""
        return self.certified is not None or self.abandoned


@dataclass
class EpochEntry:
    """What the client did in one epoch. `epoch` is None until it has agreed to the members."""

    name: EpochName
    source: str
    advert: bytes
    epoch: Epoch | None = None
    ended: bool = False
    slots: dict[int, SlotEntry] = field(default_factory=dict)
    newest: int = -1
    """The newest slot in which the client has done anything."""

    @property
    def uploads(self) -> bool:
        """Whether the client has uploaded anything in this epoch."""
        return any(slot.uploaded for slot in self.slots.values())

    def awaits_total(self, verified: int) -> bool:
        """Whether a slot from `verified` on may have a total: it is not proved to be abandoned."""
        return any(not slot.abandoned for t, slot in self.slots.items() if t >= verified)


@dataclass
class Binding:
    """One set of members, and the slots in which a data source was summed with them."""

    members: frozenset[bytes]
    slots: list[SlotEntry] = field(default_factory=list)

    @property
    def released(self) -> bool:
        """Whether any sum may have become known: there is a slot not proved to be abandoned."""
        return any(not slot.abandoned for slot in self.slots)


@dataclass
class SourceEntry:
    """What a data source was used for, over all sessions. The last of each list is in force."""

    tables: list[bytes]
    bindings: list[Binding] = field(default_factory=list)
    approved: tuple[bytes, frozenset[bytes]] | None = None


class Journal:
    """The state that all records of a client lead to."""

    def __init__(self) -> None:
        self.identity: bytes | None = None
        self.count = 0
        self.chain = bytes(32)
        self.sessions: dict[bytes, Terms] = {}
        self.epochs: dict[EpochName, EpochEntry] = {}
        self.agreed: dict[bytes, EpochEntry] = {}
        self.sources: dict[str, SourceEntry] = {}
        self.noise: set[bytes] = set()
        self.endorsed: dict[tuple[bytes, bytes], bytes] = {}
        """By session and run: the digest of the statement that this client has signed."""

    @classmethod
    def replay(cls, records: Iterable[bytes], head: Head) -> "Journal":
        """Read a journal back; refuse one that is older than its vault."""
        journal = cls()
        passed_head = False
        for data in records:
            try:
                journal.apply(_decode(data), data)
            except (KeyError, IndexError) as error:
                raise JournalError(
                    f"The journal is damaged: record {journal.count} refers to something that no "
                    "earlier record made."
                ) from error
            if journal.count == head.count:
                passed_head = journal.chain == head.chain
        if not passed_head:
            raise JournalRolledBack(
                f"The vault belongs to a journal of {head.count} records, which this journal of "
                f"{journal.count} records does not continue: it was restored from a backup. Make "
                "a new identity and have it confirmed."
            )
        return journal

    def terms(self, session: bytes) -> Terms:
        """Return the terms under which this client joined a session."""
        if session not in self.sessions:
            raise SessionNotJoined(
                f"This client has not joined the session {session.hex()}; join it first."
            )
        return self.sessions[session]

    def entry(self, epoch_id: bytes) -> tuple[EpochEntry, Epoch]:
        """Return an epoch that this client has agreed to; refuse any other."""
        entry = self.agreed.get(epoch_id)
        if entry is None or entry.epoch is None:
            raise UnknownEpoch(
                "This client has not agreed to this epoch, or has lost the journal that says so; "
                "it signs nothing for this epoch."
            )
        return entry, entry.epoch

    def of_session(self, session: bytes) -> list[EpochEntry]:
        """Return all epochs of a session, in the order in which this client entered them."""
        return [entry for name, entry in self.epochs.items() if name[0] == session]

    def apply(self, record: Message, data: bytes) -> None:
        """Change the memory by one record."""
        if (self.identity is None) != isinstance(record, Begun):
            raise JournalError(
                "The journal is damaged: its first record, and no other, must name its identity."
            )
        self.count += 1
        self.chain = digest(Label.JOURNAL, self.chain, data)
        match record:
            case Begun():
                self.identity = record.identity
            case Joined():
                self.sessions[record.terms.session] = record.terms
            case Advertised():
                name = (record.session, record.run, record.number)
                self.epochs[name] = EpochEntry(name, record.source, record.advert)
            case Agreed():
                self._agree(record)
            case Ended():
                self.epochs[record.session, record.run, record.number].ended = True
            case Bound():
                self._bind(record)
            case CohortApproved():
                self.sources[record.source].approved = (record.session, frozenset(record.members))
            case TableApproved():
                self.sources[record.source].tables.append(record.table)
            case Uploaded():
                self._upload(record)
            case SignedCertify():
                self._slot(record.epoch_id, record.slot).certify = record
            case SignedAbandon():
                self._slot(record.epoch_id, record.slot).abandon = record
            case Certified():
                self._slot(record.epoch_id, record.slot).certified = record
            case Abandoned():
                self._slot(record.epoch_id, record.slot).abandoned = True
            case Endorsed():
                self.endorsed[record.session, record.run] = record.statement

    def _agree(self, record: Agreed) -> None:
        entry = self.epochs[record.session, record.run, record.number]
        terms = self.sessions[record.session]
        entry.epoch = Epoch(
            terms, record.run, record.number, record.epoch_id, record.members, record.roster
        )
        self.agreed[record.epoch_id] = entry

    def _bind(self, record: Bound) -> None:
        source = self.sources.setdefault(record.source, SourceEntry([record.table]))
        source.bindings.append(Binding(frozenset(record.members)))

    def _upload(self, record: Uploaded) -> None:
        entry = self.agreed[record.epoch_id]
        slot = self._slot(record.epoch_id, record.slot)
        slot.uploaded = record
        if record.noise:
            self.noise.add(record.noise)
        elif entry.source in self.sources:
            source = self.sources[entry.source]
            source.bindings[-1].slots.append(slot)
            source.approved = None  # the approval was for what had been released until then

    def _slot(self, epoch_id: bytes, slot: int) -> SlotEntry:
        entry = self.agreed[epoch_id]
        entry.newest = max(entry.newest, slot)
        return entry.slots.setdefault(slot, SlotEntry())


def _decode(data: bytes) -> Message:
    kind = RECORDS.get(data[1]) if len(data) > 1 else None
    if kind is None:
        raise JournalError("The journal is damaged: it contains bytes that are not a record.")
    return kind.decode(data)
