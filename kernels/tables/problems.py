"""The problems of a table, collected over all its pieces before it is refused.

A table may be read in pieces. Its problems are those of the whole table: cells are counted over all
pieces, and rows are numbered from the first row of the table, so that reading it in one piece or in
a hundred gives the same sentences in the same order. Sentences contain counts and a few row
numbers, never the content of a cell.

    Problems      every bad cell is a reason to refuse the table: public tables, rows to predict
    LeavingOut    but a row without a target is left out and counted: a hospital's own table
    RowByRow      with differential privacy, no cell is a reason to refuse a table
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kernels.errors import (
    ColumnError,
    InfiniteValue,
    MissingTarget,
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
    MissingTarget,
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
        shown = ", ".join(map(str, self.rows[:ROWS_SHOWN]))
        more = " …" if self.bad > ROWS_SHOWN else ""
        where = f"{'row' if self.bad == 1 else 'rows'} {shown}{more}, counted from 0"
        return f"{self.bad} of {cells} cells {self.what} ({where}); {self.advice}"


class Problems:
    """The problems of one table, in the order in which its columns are read."""

    needs_rows: ClassVar[bool] = True
    """Whether a table without rows is a problem."""
    rows_kept: ClassVar[int] = ROWS_SHOWN
    """Of how many bad cells of a kind in a column the rows are kept."""

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
        tally.rows += (self.rows + rows[: self.rows_kept - len(tally.rows)]).tolist()

    def take_bad_rows(self, rows: int) -> NDArray[np.bool_] | None:  # noqa: ARG002
        """Return a mask (rows,) of what to leave out of the last piece, or None."""
        return None

    def __bool__(self) -> bool:
        return bool(self._whole or self._tallies)

    def whole(self) -> tuple[TableError, ...]:
        """Return the problems that are not about single cells."""
        return tuple(self._whole.values())

    def bad_cells(self) -> Iterator[tuple[ColumnError, Sequence[int]]]:
        """Yield each kind of bad cell in each column, with the first rows that have one."""
        for column, cells in self._cells.items():
            for kind in _ORDER:
                if (tally := self._tallies.get((column, kind))) is not None:
                    yield kind(column, tally.sentence(cells), rows=tally.bad), tally.rows

    def refuse(self) -> None:
        """Raise `TableRefused` with all problems, if there are any."""
        if self:
            raise TableRefused([*self.whole(), *(problem for problem, _ in self.bad_cells())])


class LeavingOut(Problems):
    """The handling of a hospital's rows without a target: they are left out and counted.

    A row is left out if any of its targets is missing. Its other cells are checked all the same.
    The count stays at the hospital.
    """

    def __init__(self) -> None:
        super().__init__()
        self.without_target = 0
        """The number of rows left out so far because a target is missing."""
        self._without: list[NDArray[np.bool_]] = []

    def note(self, found: BadCells) -> None:
        """Remember the rows without a target; everything else is a problem."""
        if found.kind is MissingTarget:
            self._without.append(found.bad)
        else:
            super().note(found)

    def take_bad_rows(self, rows: int) -> NDArray[np.bool_] | None:
        """Return a mask (rows,) of what to leave out of the last piece, or None."""
        return self._with_the_rest(rows, None)

    def _with_the_rest(self, rows: int, bad: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        """Return a mask of bad rows and those without a target, of which only others count."""
        without = _any(self._without, rows)
        self._without = []
        if without is None:
            return bad
        self.without_target += int((without if bad is None else without & ~bad).sum())
        return without if bad is None else without | bad


class RowByRow(LeavingOut):
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
        """The number of rows left out so far for another reason than a missing target."""
        self._bad: list[NDArray[np.bool_]] = []

    def note(self, found: BadCells) -> None:
        """Count the cells that are clipped; remember the rows of other bad cells."""
        if found.kind is OutOfBounds:
            self.clipped += int(found.bad.sum())
        elif found.kind is MissingTarget:
            super().note(found)
        else:
            self._bad.append(found.bad)

    def take_bad_rows(self, rows: int) -> NDArray[np.bool_] | None:
        """Return a mask (rows,) of what to leave out of the last piece, or None."""
        bad = _any(self._bad, rows)
        self._bad = []
        self.left_out += 0 if bad is None else int(bad.sum())
        return self._with_the_rest(rows, bad)


def _any(masks: Sequence[NDArray[np.bool_]], rows: int) -> NDArray[np.bool_] | None:
    """Return the union of masks; those of columns of another length, which is refused, are none."""
    own = [mask for mask in masks if len(mask) == rows]
    found: NDArray[np.bool_] | None = np.logical_or.reduce(own) if own else None
    return found
