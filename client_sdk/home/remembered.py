"""What a hospital remembers, as rows of its store: what left, what it cost, sessions and runs."""

import json
from dataclasses import dataclass, field

from privacy.accounting.events import Release
from privacy.ledger import Entry


@dataclass(frozen=True)
class Departure:
    """A vector that left: which numbers, how many, and the hash of the octets as they were sent.

    rows: the digest of what it was computed from, rows to add and to remove included.
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
    rows: str = ""

    def line(self) -> str:
        """Say it in one line."""
        return (
            f"{self.at}  run {self.run}  epoch {self.epoch} sum {self.slot}  stage {self.stage} "
            f"{self.algorithm}  {', '.join(json.loads(self.blocks))}: {self.elements} numbers, "
            f"{self.octets} octets, masked  SHA-256 {self.sha256}  of rows {self.rows[:16]}"
        )


@dataclass(frozen=True)
class Charge:
    """A sum that was charged to a data source's budget, in the transaction that let it leave.

    release: the JSON of what it releases. rows: the digest of the table's rows, however dealt.
    """

    source: str
    at: float
    session: str
    run: str
    epoch: int
    slot: int
    release: str
    rows: str = ""

    @classmethod
    def of(cls, source: str, entry: Entry, *, rows: bytes) -> "Charge":
        """Keep a ledger's entry."""
        release = json.dumps(entry.release.to_json())
        return cls(source, entry.at, *entry.sum, release, rows.hex())

    @property
    def entry(self) -> Entry:
        """The ledger's entry."""
        release = Release.from_json(json.loads(self.release))
        return Entry(self.at, self.session, self.run, self.epoch, self.slot, release)


@dataclass(frozen=True)
class UnmaskedSamples:
    """Samples of this hospital's own model that a run asked for, as they leave: not masked.

    epoch, slot: of the sum that they belong to. rows: the digest of what they were computed from.
    left_at: when they first left, if they have.
    withdrawn_at: when this hospital took them back, or refused them beforehand: they do not leave
    from then on. refused: the coordinator's code, if it did not take them. body: until it did.
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
        """Say it in one line."""
        withdrawn = "" if self.withdrawn_at is None else f"  WITHDRAWN {self.withdrawn_at}"
        refused = "" if self.refused is None else f"  not taken: {self.refused}"
        return (
            f"{self.left_at}  run {self.run}  {self.samples} samples of this hospital's own model: "
            f"{self.elements} numbers, {self.octets} octets, NOT MASKED  SHA-256 {self.sha256}  "
            f"of rows {self.rows[:16]}{withdrawn}{refused}"
        )


@dataclass(frozen=True)
class KnownSession:
    """A session as it was when this hospital joined it."""

    session: str
    address: str
    name: str
    member: str
    program: str
    seed: int


@dataclass(frozen=True)
class KnownRun:
    """A run that this hospital took part in."""

    run: str
    session: str
    kind: str
    program: str
    status: str = "running"
    code: str = ""
    detail: str = ""
    model: str | None = None
    fetched: bool = False
