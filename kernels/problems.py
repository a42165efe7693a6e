"""What is wrong with a table, collected over all of its pieces before it is refused.

A table may be read in pieces. Its problems are those of the whole: cells are counted over all
pieces and rows are numbered from the table's first, so that reading in one piece or in a hundred
gives the same sentences in the same order. Sentences have counts and a few row numbers, never what
is in a cell.
"""

from dataclasses import dataclass, field

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

    def note(
        self,
        kind: type[ColumnError],
        column: str,
        bad: NDArray[np.bool_],
        what: str,
        advice: str,
    ) -> None:
        """Note which cells of a column's next piece are bad, possibly none; after `count`."""
        rows = np.flatnonzero(bad)
        if not len(rows):
            return
        tally = self._tallies.setdefault((column, kind), _Tally(what, advice))
        tally.bad += len(rows)
        tally.rows += (self.rows + rows[: ROWS_SHOWN - len(tally.rows)]).tolist()

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
