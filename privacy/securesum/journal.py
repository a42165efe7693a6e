"""A client's memory, folded from its journal records in order.

`Journal.apply` is the only place where this memory changes, and it runs alike when a record is
new and when it is read back after a crash: a restored client *is* the client that crashed.
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
"""Session, run and number: what an epoch is called before its members are known."""


@dataclass
class SlotEntry:
    """What the client did about one slot, and how it ended."""

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
    """What the client did about one epoch. `epoch` is None until it has agreed to the members."""

    name: EpochName
    source: str
    advert: bytes
    epoch: Epoch | None = None
    trusted: frozenset[int] = frozenset()
    ended: bool = False
    slots: dict[int, SlotEntry] = field(default_factory=dict)
    newest: int = -1
    """The newest slot that the client has done anything about."""

    @property
    def uploads(self) -> bool:
        """Whether anything was uploaded in this epoch."""
        return any(slot.uploaded for slot in self.slots.values())


@dataclass
class Binding:
    """One set of members and the slots in which a data source was summed with them."""

    members: frozenset[bytes]
    session: bytes
    shrinking: bool
    slots: list[SlotEntry] = field(default_factory=list)

    @property
    def released(self) -> bool:
        """Whether any sum may have become known: every slot that is not proved abandoned."""
        return any(not slot.abandoned for slot in self.slots)


@dataclass
class SourceEntry:
    """What a data source has been used for, over all sessions. The last of each is in force."""

    tables: list[bytes]
    bindings: list[Binding] = field(default_factory=list)
    approved: tuple[bytes, frozenset[bytes]] | None = None


class Journal:
    """The fold of all records."""

    def __init__(self) -> None:
        self.identity: bytes | None = None
        self.count = 0
        self.chain = bytes(32)
        self.sessions: dict[bytes, Terms] = {}
        self.epochs: dict[EpochName, EpochEntry] = {}
        self.agreed: dict[bytes, EpochEntry] = {}
        self.sources: dict[str, SourceEntry] = {}
        self.noise: set[bytes] = set()

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
                    f"Record {journal.count} speaks of something that no earlier record made."
                ) from error
            if journal.count == head.count:
                passed_head = journal.chain == head.chain
        if not passed_head:
            raise JournalRolledBack(
                f"The vault was written beside a journal of {head.count} records "
                f"that this one, of {journal.count}, does not continue: it is from a backup. "
                "Make a new identity and have it confirmed."
            )
        return journal

    def terms(self, session: bytes) -> Terms:
        """Give the terms under which a session was joined."""
        if session not in self.sessions:
            raise SessionNotJoined(f"Session {session.hex()} has not been joined by this client.")
        return self.sessions[session]

    def entry(self, epoch_id: bytes) -> tuple[EpochEntry, Epoch]:
        """Find an epoch that this client has agreed to: one whose advert is in the journal."""
        entry = self.agreed.get(epoch_id)
        if entry is None or entry.epoch is None:
            raise UnknownEpoch(
                "This client has not agreed to this epoch, or has lost the journal in which it "
                "did; it signs nothing for it."
            )
        return entry, entry.epoch

    def of_session(self, session: bytes) -> list[EpochEntry]:
        """All epochs of a session, in the order in which they were advertised."""
        return [entry for name, entry in self.epochs.items() if name[0] == session]

    def apply(self, record: Message, data: bytes) -> None:
        """Take one record into account."""
        if (self.identity is None) != isinstance(record, Begun):
            raise JournalError("A journal starts with whose it is, and says so once.")
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

    def _agree(self, record: Agreed) -> None:
        entry = self.epochs[record.session, record.run, record.number]
        terms = self.sessions[record.session]
        entry.epoch = Epoch(terms, record.run, record.number, record.epoch_id, record.members)
        entry.trusted = frozenset(record.trusted)
        self.agreed[record.epoch_id] = entry

    def _bind(self, record: Bound) -> None:
        source = self.sources.setdefault(record.source, SourceEntry([record.table]))
        source.bindings.append(Binding(frozenset(record.members), record.session, record.shrinking))

    def _upload(self, record: Uploaded) -> None:
        entry = self.agreed[record.epoch_id]
        slot = self._slot(record.epoch_id, record.slot)
        slot.uploaded = record
        if record.noise:
            self.noise.add(record.noise)
        elif entry.source in self.sources:
            source = self.sources[entry.source]
            source.bindings[-1].slots.append(slot)
            source.approved = None  # it was given for what had been released then

    def _slot(self, epoch_id: bytes, slot: int) -> SlotEntry:
        entry = self.agreed[epoch_id]
        entry.newest = max(entry.newest, slot)
        return entry.slots.setdefault(slot, SlotEntry())


def _decode(data: bytes) -> Message:
    kind = RECORDS.get(data[1]) if len(data) > 1 else None
    if kind is None:
        raise JournalError("The journal holds bytes that are not one of its records.")
    return kind.decode(data)
