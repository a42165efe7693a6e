"""The rows of a hospital's store: departures and their cost, samples, sessions and runs."""

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from privacy.accounting.events import Release
from privacy.ledger import Entry
from privacy.securesum.records import VaultChanges

if TYPE_CHECKING:
    from kernels.rounds.position import Position


@dataclass(frozen=True)
class Departure:
    """A vector that left: which numbers, how many, and the hash of the bytes as they were sent.

    sum_number: of the sum that it was sent for, counted from 1 over the run. It is the same at all
        hospitals and at the coordinator, because only sums whose total was used are counted: if one
        is abandoned, the vector for its repetition has the same number, and another epoch or slot.
    rows: the digest of the rows that it was computed from, including rows to add and to remove.
    """

    at: str
    session: str
    run: str
    epoch: int
    slot: int
    stage: int
    algorithm: str
    blocks: str
    elements: int
    octets: int
    sha256: str
    sum_number: int
    rows: str = ""

    def line(self) -> str:
        """Return one line for people."""
        return (
            f"{self.at}  run {self.run}  sum {self.sum_number} (epoch {self.epoch}, slot "
            f"{self.slot})  stage {self.stage + 1} {self.algorithm}  "
            f"{', '.join(json.loads(self.blocks))}: {self.elements:,} numbers, "
            f"{self.octets:,} bytes, masked  SHA-256 {self.sha256}  of rows {self.rows[:16]}"
        )


@dataclass(frozen=True)
class Charge:
    """A sum charged to a data source's budget, before any row is read for it.

    release: the JSON of what it releases. rows: the digest of the table's rows, however split.
    noise: the name of the draw of noise that the charge is for, in hexadecimal.
    """

    source: str
    at: float
    session: str
    run: str
    epoch: int
    slot: int
    release: str
    rows: str = ""
    noise: str = ""

    @classmethod
    def of(cls, source: str, entry: Entry, *, rows: bytes, noise: bytes = b"") -> "Charge":
        """Return the row for a ledger entry."""
        release = json.dumps(entry.release.to_json())
        return cls(source, entry.at, *entry.sum, release, rows.hex(), noise.hex())

    def covers(self, other: "Charge") -> bool:
        """Return whether another vector of the same sum costs the same, over the same rows."""
        return (self.source, self.release, self.rows) == (other.source, other.release, other.rows)

    @property
    def entry(self) -> Entry:
        """The ledger entry."""
        release = Release.from_json(json.loads(self.release))
        return Entry(self.at, self.session, self.run, self.epoch, self.slot, release)


@dataclass(frozen=True)
class Failure:
    """A sum for which this hospital could not compute its numbers; the reason is shown only here.

    sum_number: as of a `Departure`.
    rows: the digest of the rows that it was computed from, including rows to add and to remove.
    """

    at: str
    session: str
    run: str
    epoch: int
    slot: int
    stage: int
    algorithm: str
    reason: str
    sum_number: int
    rows: str = ""

    def line(self) -> str:
        """Return one line for people."""
        return (
            f"{self.at}  run {self.run}  sum {self.sum_number} (epoch {self.epoch}, slot "
            f"{self.slot})  stage {self.stage + 1} {self.algorithm}  THIS SITE COULD NOT "
            f"COMPUTE: {self.reason}  of rows {self.rows[:16]}"
        )


@dataclass(frozen=True)
class UnmaskedSamples:
    """Samples of this hospital's own model that a run requested; they are sent unmasked.

    epoch, slot: those of the sum that the samples belong to.
    rows: the digest of the rows that they were computed from.
    left_at: when they were first sent, or None.
    withdrawn_at: when this hospital withdrew them, possibly before they were sent; they are not
        sent from then on.
    refused: the coordinator's code, if it did not accept them.
    body: their bytes, until the coordinator has accepted or refused them.
    """

    run: str
    session: str
    epoch: int
    slot: int
    samples: int
    elements: int
    octets: int
    sha256: str
    rows: str
    left_at: str | None = None
    withdrawn_at: str | None = None
    refused: str | None = None
    body: bytes | None = field(default=None, repr=False)

    def line(self) -> str:
        """Return one line for people."""
        withdrawn = "" if self.withdrawn_at is None else f"  WITHDRAWN {self.withdrawn_at}"
        refused = "" if self.refused is None else f"  not accepted: {self.refused}"
        return (
            f"{self.left_at}  run {self.run}  {self.samples} samples of this hospital's own model: "
            f"{self.elements} numbers, {self.octets} bytes, NOT MASKED  SHA-256 {self.sha256}  "
            f"of rows {self.rows[:16]}{withdrawn}{refused}"
        )


@dataclass(frozen=True, eq=False)
class Holding:
    """Where this hospital is in a run: the newest position, and the one before it.

    made_by: the number of the epoch and the slot whose total made the newest position; None if no
        total was verified here for it. deviations: the numbers in which states that were accepted
        differ from this hospital's own by a step of their grid.
    vault: changes of the protocol's vault that belong to the newest position.
    """

    run: str
    newest: "Position"
    before: "Position | None" = None
    made_by: tuple[int, int] | None = None
    deviations: int = 0
    vault: VaultChanges = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class KnownSession:
    """A session as it was when this hospital first saw it; terms: encoded.

    member: the name that this hospital has enrolled under; empty until it has.
    """

    session: str
    address: str
    name: str
    member: str
    program: str
    terms: bytes


@dataclass(frozen=True)
class KnownRun:
    """A run that this hospital took part in; parent: the id of the model that it starts from.

    replayed: whether this hospital computed the run's model itself, and it is the one that the
        coordinator serves. certificate: of a model for members only, with its salt, encoded.
    """

    run: str
    session: str
    kind: str
    program: str
    status: str = "running"
    code: str = ""
    detail: str = ""
    model: str | None = None
    fetched: bool = False
    parent: str | None = None
    replayed: bool = False
    certificate: bytes | None = field(default=None, repr=False)
