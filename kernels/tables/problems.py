"""The problems of a table, collected over all its pieces before it is refused.

A table may be read in pieces. Its problems are those of the whole table: cells are counted over all
pieces, and rows are numbered from the first row of the table, so that reading it in one piece or in
a hundred gives the same sentences in the same order. Sentences contain counts and a few row
numbers, never the content of a cell.

With differential privacy, no cell is a reason to refuse a table (`RowByRow`).
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
    WrongOutcome,
)

ROWS_SHOWN = 3
"""The most row numbers in a message."""


_ORDER = (
    NotNumeric,
    NotALabel,
    InfiniteValue,
    MissingValue,
    OutOfBounds,
    WrongOutcome,
    UnknownLevel,
)
"""Kinds of bad cells, in the order in which those of one column are reported."""


@dataclass(frozen=True, eq=False)
class BadCells:
    """The cells of a column's piece, (rows,), that are bad in one way, and the text about them."""

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
        """The number of rows in the pieces read so far."""
        self._whole: dict[tuple[type[TableError], str], TableError] = {}
        self._cells: dict[str, int] = {}
        self._tallies: dict[tuple[str, type[ColumnError]], _Tally] = {}

    def add(self, problem: TableError) -> None:
        """Add a problem that is not about single cells; the same problem is added only once."""
        self._whole.setdefault((type(problem), getattr(problem, "column", "")), problem)

    def count(self, column: str, cells: int) -> None:
        """Count the cells of a column's next piece, good and bad."""
        self._cells[column] = self._cells.get(column, 0) + cells

    def note(self, found: BadCells) -> None:
        """Record which cells of a column's next piece are bad, possibly none; after `count`."""
        rows = np.flatnonzero(found.bad)
        if not len(rows):
            return
        tally = self._tallies.setdefault(
            (found.column, found.kind), _Tally(found.what, found.advice)
        )
        tally.bad += len(rows)
        tally.rows += (self.rows + rows[: ROWS_SHOWN - len(tally.rows)]).tolist()

    def take_bad_rows(self) -> NDArray[np.bool_] | None:
        """Return a mask of the rows to leave out of the last piece; None if there are none."""
        return None

    def __bool__(self) -> bool:
        return bool(self._whole or self._tallies)

    def refuse(self) -> None:
        """Raise `TableRefused` with all problems, if there are any."""
        if self:
            found = [
                kind(column, tally.sentence(cells), rows=tally.bad)
                for column, cells in self._cells.items()
                for kind in _ORDER
                if (tally := self._tallies.get((column, kind))) is not None
            ]
            raise TableRefused([*self._whole.values(), *found])


class RowByRow(Problems):
    """The handling of bad cells if no cell may be a reason to refuse a table.

    All parties see whether a site takes part, so the author of a schema could choose bounds and
    levels that reveal whether a site has a certain patient. So with differential privacy a number
    out of bounds is clipped to them, and a row with any other bad cell is left out. Each row is
    handled independently: adding or removing a row changes only its own part of a sum. A table that
    lacks a column is still refused.
    """

    needs_rows = False

    def __init__(self) -> None:
        super().__init__()
        self.clipped = 0
        """The number of cells clipped so far."""
        self.left_out = 0
        """The number of rows left out so far."""
        self._bad: list[NDArray[np.bool_]] = []

    def note(self, found: BadCells) -> None:
        """Count the cells that are clipped; remember the rows of other bad cells."""
        if found.kind is OutOfBounds:
            self.clipped += int(found.bad.sum())
        else:
            self._bad.append(found.bad)

    def take_bad_rows(self) -> NDArray[np.bool_] | None:
        """Return a mask of the rows to leave out of the last piece; None if there are none."""
        if not self._bad:
            return None
        bad: NDArray[np.bool_] = np.logical_or.reduce(self._bad)
        self._bad = []
        self.left_out += int(bad.sum())
        return bad
