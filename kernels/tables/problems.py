"""What is wrong with a table, collected over all of its pieces before it is refused.

A table may be read in pieces. Its problems are those of the whole: cells are counted over all
pieces and rows are numbered from the table's first, so that reading in one piece or in a hundred
gives the same sentences in the same order. Sentences have counts and a few row numbers, never what
is in a cell.

With differential privacy no cell is a reason to refuse a table (`RowByRow`).
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kernels.errors import (
    ColumnError,
    InfiniteValue,
    MissingValue,
    NotALabel,
    NotNumeric,
    OutOfBounds,
    TableError,
    TableRefused,
    UnknownLevel,
)

ROWS_SHOWN = 3
"""How many row numbers a message has at most."""


_ORDER = (NotNumeric, NotALabel, InfiniteValue, MissingValue, OutOfBounds, UnknownLevel)
"""Kinds of bad cells, in the order in which those of one column are said."""


@dataclass(frozen=True, eq=False)
class BadCells:
    """Which cells of a column's piece, (rows,), are bad in one way, and what to say of them."""

    kind: type[ColumnError]
    column: str
    bad: NDArray[np.bool_]
    what: str
    advice: str


@dataclass
class _Tally:
    """One kind of bad cell in one column, so far."""

    what: str
    advice: str
    bad: int = 0
    rows: list[int] = field(default_factory=list)

    def sentence(self, cells: int) -> str:
        shown = ", ".join(map(str, self.rows))
        more = " …" if self.bad > ROWS_SHOWN else ""
        where = f"{'row' if self.bad == 1 else 'rows'} {shown}{more}, counted from 0"
        return f"{self.bad} of {cells} cells {self.what} ({where}); {self.advice}"


class Problems:
    """The problems of one table, in the order in which its columns are read."""

    needs_rows: ClassVar[bool] = True
    """Whether a table without rows is a problem."""

    def __init__(self) -> None:
        self.rows = 0
        """Rows in the pieces that are done."""
        self._whole: dict[tuple[type[TableError], str], TableError] = {}
        self._cells: dict[str, int] = {}
        self._tallies: dict[tuple[str, type[ColumnError]], _Tally] = {}

    def add(self, problem: TableError) -> None:
        """Add a problem that is not one of single cells; a later piece's repetition is not."""
        self._whole.setdefault((type(problem), getattr(problem, "column", "")), problem)

    def count(self, column: str, cells: int) -> None:
        """Count the cells of a column's next piece, good and bad."""
        self._cells[column] = self._cells.get(column, 0) + cells

    def note(self, found: BadCells) -> None:
        """Note which cells of a column's next piece are bad, possibly none; after `count`."""
        rows = np.flatnonzero(found.bad)
        if not len(rows):
            return
        tally = self._tallies.setdefault(
            (found.column, found.kind), _Tally(found.what, found.advice)
        )
        tally.bad += len(rows)
        tally.rows += (self.rows + rows[: ROWS_SHOWN - len(tally.rows)]).tolist()

    def take_bad_rows(self) -> NDArray[np.bool_] | None:
        """Return which rows of the piece that was read last are left out, if any are."""
        return None

    def __bool__(self) -> bool:
        return bool(self._whole or self._tallies)

    def refuse(self) -> None:
        """Raise what was found, if anything was."""
        if self:
            found = [
                kind(column, tally.sentence(cells), rows=tally.bad)
                for column, cells in self._cells.items()
                for kind in _ORDER
                if (tally := self._tallies.get((column, kind))) is not None
            ]
            raise TableRefused([*self._whole.values(), *found])


class RowByRow(Problems):
    """What was done about bad cells where no cell may be a reason to refuse a table.

    Whether a site takes part is seen by everyone, and whoever chooses bounds and levels could ask
    by them for one patient. So with differential privacy a number out of bounds is clipped to them,
    and a row with any other bad cell is left out. Each row is judged by itself: one row more or
    less changes nothing but its own part of a sum. A table that lacks a column is refused as ever.
    """

    needs_rows = False

    def __init__(self) -> None:
        super().__init__()
        self.clipped = 0
        """Cells so far that were out of bounds."""
        self.left_out = 0
        """Rows so far that were left out."""
        self._bad: list[NDArray[np.bool_]] = []

    def note(self, found: BadCells) -> None:
        """Count cells that are clipped; remember the rows of all others."""
        if found.kind is OutOfBounds:
            self.clipped += int(found.bad.sum())
        else:
            self._bad.append(found.bad)

    def take_bad_rows(self) -> NDArray[np.bool_] | None:
        """Return which rows of the piece that was read last are left out, if any are."""
        if not self._bad:
            return None
        bad: NDArray[np.bool_] = np.logical_or.reduce(self._bad)
        self._bad = []
        self.left_out += int(bad.sum())
        return bad
