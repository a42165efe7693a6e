"""A table compared with a schema, column by column: what a hospital looks at before a session.

>>> schema = {"features": [{"kind": "numeric", "name": "age", "unit": "a", "upper": 120}],
...           "targets": [{"name": "stay", "unit": "d"}]}
>>> report = check_table({"age": [61, 47, 470], "stay": [3.5, None, 2]}, schema)
>>> report.fits, report.without_target, report.column("age").most
(False, 1, 470.0)
>>> print(report.misfits[0].cells[0])
470 (row 2)
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from client_sdk.tables.checking.bad_cells import misfits_of
from client_sdk.tables.checking.columns import reports, tallies_of
from client_sdk.tables.checking.report import Misfit, TableReport
from client_sdk.tables.draft import unfinished
from client_sdk.tables.opening import open_table
from client_sdk.tables.outcome_summary import OutcomesSeen
from client_sdk.tables.schema_of import schema_of
from client_sdk.tables.schema_stream import SchemaStream
from kernels.errors import TableRefused
from kernels.tables.arrow_cells import Column
from kernels.tables.checked_rows import CheckedRows, check_in_pieces
from kernels.tables.problems import LeavingOut
from kernels.tables.schema import Schema


class _Found(LeavingOut):
    """The problems of a table, with the rows of enough bad cells to show what they have."""

    rows_kept: ClassVar[int] = 1000


def check_table(table: object, schema: object) -> TableReport:
    """Read a whole table, and return what fits a schema, what does not, and what is suspicious.

    Nothing leaves the hospital. The report has cells of the table; no exception does.
    Raises `TableSourceError` if the table cannot be read as one.

    table: of any type that `join` takes. schema: a `Schema`, its JSON, or the path of its file.
    """
    agreed, source = schema_of(schema), open_table(table)
    tallies = tallies_of(agreed)
    problems, outcomes, levels = _Found(), OutcomesSeen(agreed), _Levels(agreed)

    def look(batch: Mapping[str, Column]) -> None:
        for name, column in batch.items():
            tallies[name].look(column, text=source.numbers_are_text)

    stream = SchemaStream(source, agreed, watch=look)
    for rows in _readable(agreed, stream, problems):
        outcomes.look(rows)
        levels.look(rows)
    misfits = [Misfit(None, sentence) for sentence in unfinished(agreed)]
    misfits += misfits_of(source, problems)
    found = () if problems else outcomes.found()
    counts = [n for own in found for of_level in own.levels().values() for n in of_level.values()]
    return TableReport(
        name=source.name,
        rows=problems.rows,
        without_target=problems.without_target,
        columns=tuple(reports(agreed, tallies)),
        misfits=tuple(misfits),
        fewest_level_rows=min([*counts, *levels.rows()], default=None),
        outcomes=found,
        ignored=tuple(name for name in source.columns if name not in tallies),
    )


def _readable(schema: Schema, stream: SchemaStream, problems: _Found) -> Iterator[CheckedRows]:
    """Yield what can be read; problems are kept instead of raised."""
    try:
        yield from check_in_pieces(schema, stream, problems=problems)
    except TableRefused:
        return


class _Levels:
    """The rows of each level of the categorical features, among rows with all targets."""

    def __init__(self, schema: Schema) -> None:
        self._counts = [np.zeros(len(own.levels), np.int64) for own in schema.categorical]

    def look(self, rows: CheckedRows) -> None:
        """Count further rows."""
        for count, codes in zip(self._counts, rows.levels.T, strict=True):
            count += np.bincount(codes[codes >= 0], minlength=len(count))

    def rows(self) -> list[int]:
        """Return the rows of all levels that occur."""
        return [rows for count in self._counts for rows in count.tolist() if rows]
