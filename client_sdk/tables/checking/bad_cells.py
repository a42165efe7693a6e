"""What the cells of a table have where it does not fit its schema, looked up at home.

Messages and exceptions never contain a cell, because they travel; they have row numbers. The cells
are read from the table again, by these numbers, for a report that stays at the hospital.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from client_sdk.readable import printable
from client_sdk.tables.checking.report import BadCell, Misfit
from client_sdk.tables.source import TableSource
from kernels.errors import ColumnError, MissingValue
from kernels.tables.arrow_cells import Column
from kernels.tables.problems import Problems

CELLS_SHOWN = 5
"""The most different cells that are shown of one kind of misfit."""
_LONGEST = 40
"""In characters, of a cell."""


def misfits_of(source: TableSource, problems: Problems) -> Iterator[Misfit]:
    """Yield the problems of a table, each with cells that have it."""
    for whole in problems.whole():
        yield Misfit(whole.column if isinstance(whole, ColumnError) else None, str(whole))
    bad = [*problems.bad_cells()]
    wanted: dict[str, set[int]] = {}
    for problem, rows in bad:
        if not isinstance(problem, MissingValue):
            wanted.setdefault(problem.column, set()).update(rows)
    cells = {name: dict(found) for name, found in _looked_up(source, wanted).items()}
    for problem, rows in bad:
        yield _misfit(problem, rows, cells.get(problem.column, {}))


def _misfit(problem: ColumnError, rows: Sequence[int], own: Mapping[int, str]) -> Misfit:
    texts = [(own[row], row) for row in rows if row in own]
    first: dict[str, int] = {}
    for text, row in texts:
        first.setdefault(text, row)
    counts = Counter(text for text, _ in texts)
    shown = [BadCell(text, count, first[text]) for text, count in counts.most_common(CELLS_SHOWN)]
    return Misfit(problem.column, str(problem), tuple(shown))


def _looked_up(
    source: TableSource, wanted: Mapping[str, set[int]]
) -> dict[str, list[tuple[int, str]]]:
    """Return the cells in the wanted rows of each column, as text."""
    found: dict[str, list[tuple[int, str]]] = {name: [] for name in wanted}
    first = 0
    for batch in source.batches([*wanted]) if wanted else ():
        for name, column in batch.items():
            own = sorted(row for row in wanted[name] if first <= row < first + len(column))
            texts = _texts(column, [row - first for row in own])
            found[name] += zip(own, texts, strict=True)
        first += max((len(column) for column in batch.values()), default=0)
    return found


def _texts(column: Column, rows: Sequence[int]) -> list[str]:
    if isinstance(column, pa.Array):
        plain = [column[row].as_py() for row in rows]
    else:
        cells = [*column]
        plain = [getattr(cells[row], "item", lambda row=row: cells[row])() for row in rows]
    return [printable(repr(cell), _LONGEST) for cell in plain]
