"""A table with its outcome and its hospitals, and how a seed splits it.

Columns are plain arrays by name: numbers as floats with NaN where a cell is missing, levels as
texts with None. `inputs` are columns of the product's schema, with public bounds: what the quantity
or its instrument can show, rounded outward, never the extremes of the table. The outcomes here say
no more than the product's schema will: their fields are the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.outcomes.members import dealt
from kernels.tables.schema import Feature, Numeric

Column = NDArray[Any]
Table = Mapping[str, Column]

TEST_SHARE = 0.2
MEMBERS = 10
"""Into so many members are dealt the sets that have no hospitals."""


@dataclass(frozen=True)
class YesNo:
    """A column of zeros and ones; one is the event."""

    name: str


@dataclass(frozen=True)
class Classes:
    """A column of the positions 0, 1, … of its levels."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True)
class Count:
    """A column of whole numbers from 0 to `upper`; every row was observed equally long."""

    name: str
    unit: str
    upper: int


@dataclass(frozen=True)
class TimeToEvent:
    """Times since the start, and whether the event (1) or the end of observation (0) came then.

    edges: of the intervals at whose ends survival is asked for.
    """

    name: str
    unit: str
    event: str
    edges: tuple[float, ...]


@dataclass(frozen=True)
class Real:
    """A column of numbers, for the benchmark `auto`."""

    name: str
    unit: str = "1"


Outcome = YesNo | Classes | Count | TimeToEvent | Real


@dataclass(frozen=True, eq=False)
class Dataset:
    """One table.

    hospitals: the member that each row belongs to; None: each seed deals the rows, patient by
    patient, to ten members. patient: the column with equal entries in the rows of one patient;
    None: each row is a patient. test: which rows are for testing; None: each seed draws a fifth.
    components: the linear and network peers are given so many principal components of the inputs,
    which must all be numbers in one unit; None: the inputs themselves.
    """

    name: str
    inputs: tuple[Feature, ...]
    outcome: Outcome
    table: Table
    hospitals: Column | None = None
    patient: str | None = None
    test: NDArray[np.bool_] | None = None
    components: int | None = None

    def __len__(self) -> int:
        return len(next(iter(self.table.values())))

    def split(self, seed: int) -> "Split":
        """Return the members' training rows and the test rows, a pure function of the seed."""
        random = np.random.default_rng([seed, 2024])
        patients = np.arange(len(self)) if self.patient is None else self.table[self.patient]
        testing = _drawn(patients, random) if self.test is None else self.test
        labels = dealt(patients, MEMBERS, random) if self.hospitals is None else self.hospitals
        members = tuple(
            take(self.table, np.flatnonzero(~testing & (labels == label)))
            for label in np.unique(labels[~testing])
        )
        return Split(self, seed, members, take(self.table, np.flatnonzero(testing)))


@dataclass(frozen=True, eq=False)
class Split:
    """The same rows for every method: each member's own, and those that nobody trains on."""

    dataset: Dataset
    seed: int
    members: tuple[Table, ...]
    test: Table

    @property
    def pooled(self) -> Table:
        """All members' rows in one table."""
        return {
            name: np.concatenate([member[name] for member in self.members]) for name in self.test
        }


def take(table: Table, rows: NDArray[Any]) -> dict[str, Column]:
    """Return some rows of a table."""
    return {name: column[rows] for name, column in table.items()}


def size(table: Table) -> int:
    """Return how many rows a table has."""
    return len(next(iter(table.values())))


def flags(*names: str, missing: Iterable[str] = ()) -> tuple[Numeric, ...]:
    """Return columns of zeros and ones."""
    missing = set(missing)
    return tuple(Numeric(name, "1", 0, 1, may_be_missing=name in missing) for name in names)


def _drawn(patients: Column, random: np.random.Generator) -> NDArray[np.bool_]:
    """Say of each row whether its patient is among the fifth that is drawn."""
    distinct = np.unique(patients)
    drawn = random.permutation(distinct)[: round(TEST_SHARE * len(distinct))]
    return np.isin(patients, drawn)
