"""What is wrong with a table, collected over all of its pieces before it is refused.

A table may be read in pieces. Its problems are those of the whole: cells are counted over all
pieces and rows are numbered from the table's first, so that reading in one piece or in a hundred
gives the same sentences in the same order. Sentences have counts and a few row numbers, never what
is in a cell.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kernels.errors import ColumnError, TableError, TableRefused

ROWS_SHOWN = 3
"""How many row numbers a message has at most."""


@dataclass
class _Tally:
    """One kind of bad cell in one column, so far."""

    kind: type[ColumnError]
    column: str
    what: str
    advice: str
    bad: int = 0
    cells: int = 0
    rows: list[int] = field(default_factory=list)

    def error(self) -> ColumnError:
        shown = ", ".join(map(str, self.rows))
        more = " …" if self.bad > ROWS_SHOWN else ""
        where = f"{'row' if self.bad == 1 else 'rows'} {shown}{more}, counted from 0"
        sentence = f"{self.bad} of {self.cells} cells {self.what} ({where}); {self.advice}"
        return self.kind(self.column, sentence, rows=self.bad)


class Problems:
    """The problems of one table, in the order in which its columns are read."""

    def __init__(self) -> None:
        self.rows = 0
        """Rows in the pieces that are done."""
        self._whole: dict[tuple[type[TableError], str], TableError] = {}
        self._tallies: dict[tuple[type[ColumnError], str], _Tally] = {}

    def add(self, problem: TableError) -> None:
        """Add a problem that is not one of single cells; a later piece's repetition is not."""
        self._whole.setdefault((type(problem), getattr(problem, "column", "")), problem)

    def note(
        self,
        kind: type[ColumnError],
        column: str,
        bad: NDArray[np.bool_],
        what: str,
        advice: str,
    ) -> None:
        """Count the `bad` cells of a column's next piece; to be called also where none is."""
        tally = self._tallies.setdefault((kind, column), _Tally(kind, column, what, advice))
        rows = np.flatnonzero(bad)
        if len(rows) and not tally.bad:
            tally.what, tally.advice = what, advice
        tally.bad += len(rows)
        tally.cells += len(bad)
        tally.rows += (self.rows + rows[: ROWS_SHOWN - len(tally.rows)]).tolist()

    def __bool__(self) -> bool:
        return bool(self._whole) or any(tally.bad for tally in self._tallies.values())

    def refuse(self) -> None:
        """Raise what was found, if anything was."""
        if self:
            found = (tally.error() for tally in self._tallies.values() if tally.bad)
            raise TableRefused([*self._whole.values(), *found])
