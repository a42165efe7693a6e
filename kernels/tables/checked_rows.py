"""The rows of a table, read and checked by its schema: arrays in raw units, without NaN.

A table is a mapping from column names to one-dimensional arrays or lists; `kernels.tables.cells`
defines the cells that they may contain. A missing label is missing, never `other`.

A row for training needs all targets. Whether one without them is a problem or is left out depends
on who reads (`kernels.tables.problems.LeavingOut`): a hospital leaves such rows out, and counts
them; a public table with one is refused.

Columns that the schema does not name are ignored: a hospital's export has more columns than a study
needs, and a misspelt column is reported as missing. Every column of the schema must be present,
even if all its cells may be missing: a forgotten column must not look like a column without data.

All problems of a table are found before it is refused (`TableRefused`), even if it is read in
pieces. Messages contain columns, bounds and levels of the schema and a few row numbers, never the
content of a cell. With differential privacy, no cell is a reason to refuse a table
(`kernels.tables.problems.RowByRow`).

Nothing here needs torch, so that a command that only checks a table does not wait for it;
`kernels.tables.records` has the same rows as tensors.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.errors import EmptyTable, MissingColumn, WrongLength
from kernels.tables.cells import Cells, as_array
from kernels.tables.feature_cells import outside, read_column, read_levels, read_patients
from kernels.tables.outcome_cells import read_exposure, read_outcome, width
from kernels.tables.problems import Problems
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Count, Target


@dataclass(frozen=True, eq=False, repr=False)
class CheckedRows:
    """n rows with K numeric and C categorical columns and T targets; the repr shows no cell."""

    schema: Schema
    numeric: NDArray[np.float64]
    """(n, K), raw; 0 where missing."""
    missing: NDArray[np.bool_]
    """(n, K): whether a cell of `numeric` is missing."""
    outside: NDArray[np.bool_]
    """(n, K): whether a cell of `numeric` is out of bounds; never in training."""
    levels: NDArray[np.int64]
    """(n, C), the positions of levels in the schema; −1 where missing."""
    targets: NDArray[np.float64] | None
    """(n, T), raw, of the targets that are real numbers; None if read for prediction."""
    outcomes: NDArray[np.float64] | None
    """(n, C), the columns of the other targets (`kernels.tables.outcome_cells`); None if read for
    prediction."""
    patients: tuple[str, ...] | None
    """n labels, equal for the rows of one patient; None if the schema has no patient column, or if
    read for prediction."""
    exposures: NDArray[np.float64] | None = None
    """(n, E), the columns `exposure_columns(schema)`, 1 where the table has none; None if read for
    training, where `outcomes` contains them."""

    @classmethod
    def none(cls, schema: Schema) -> "CheckedRows":
        """Return an empty table, as if read for training."""
        return cls(
            schema,
            numeric=np.zeros((0, len(schema.numeric))),
            missing=np.zeros((0, len(schema.numeric)), np.bool_),
            outside=np.zeros((0, len(schema.numeric)), np.bool_),
            levels=np.zeros((0, len(schema.categorical)), np.int64),
            targets=np.zeros((0, len(schema.real))),
            outcomes=np.zeros((0, sum(map(width, schema.outcomes)))),
            patients=None if schema.patient is None else (),
        )

    def take(self, chosen: NDArray[np.bool_]) -> "CheckedRows":
        """Return the chosen rows, possibly none; `chosen` is a bool for each row."""
        patients = self.patients
        if patients is not None:
            patients = tuple(p for p, own in zip(patients, chosen.tolist(), strict=True) if own)
        return CheckedRows(
            self.schema,
            self.numeric[chosen],
            self.missing[chosen],
            self.outside[chosen],
            self.levels[chosen],
            None if self.targets is None else self.targets[chosen],
            None if self.outcomes is None else self.outcomes[chosen],
            patients,
            None if self.exposures is None else self.exposures[chosen],
        )

    def __len__(self) -> int:
        return len(self.numeric)

    def __repr__(self) -> str:
        return f"CheckedRows({len(self)} rows)"


def check_in_pieces(
    schema: Schema,
    pieces: Iterable[Mapping[str, object]],
    *,
    training: bool = True,
    problems: Problems | None = None,
) -> Iterator[CheckedRows]:
    """Yield the records of each piece of a table; refuse an invalid table after its last piece.

    After the first problem nothing is yielded, and the rest is read only to find its problems. Read
    to the end: until then the table may still be refused.
    problems: how problems are handled, by default by refusing the table. If it does not need rows,
    at least one piece is yielded.
    """
    problems = Problems() if problems is None else problems
    lengths: set[int] = set()
    left = 0
    for piece in pieces:
        checked, rows = _read(schema, piece, problems, training=training)
        lengths |= rows
        if checked is not None:
            left += len(checked)
            yield checked
    if problems.needs_rows and (lengths == {0} or not (lengths or problems)):
        problems.add(EmptyTable("the table has no rows; at least one is needed"))
    elif problems.needs_rows and not (left or problems):
        problems.add(
            EmptyTable(
                f"a target is missing in each of {problems.rows} rows; at least one row with all "
                "targets is needed"
            )
        )
    elif not (lengths or problems):
        yield CheckedRows.none(schema)
    problems.refuse()


def _read(
    schema: Schema, table: Mapping[str, object], problems: Problems, *, training: bool
) -> tuple[CheckedRows | None, set[int]]:
    """Return one piece, None after any problem so far, and the set of its columns' lengths."""
    targets = schema.real if training else ()
    patient = schema.patient if training else None
    features = [column.name for column in schema.features]
    exposed = () if training else exposure_columns(schema)
    codes = schema.missing_codes
    wanted = [*features, *(name for name in exposed if name in table)]
    columns = _columns(table, schema.columns if training else wanted, problems)

    def numbers(wanted: Iterable[Numeric | Target]) -> list[NDArray[np.float64]]:
        present = (column for column in wanted if column.name in columns)
        return [
            read_column(
                column,
                columns[column.name],
                problems,
                missing_codes=codes.get(column.name, ()),
                refuse_outside=training,
            )
            for column in present
        ]

    numeric = numbers(schema.numeric)
    levels = [
        read_levels(
            column, columns[column.name], problems, missing_codes=codes.get(column.name, ())
        )
        for column in schema.categorical
        if column.name in columns
    ]
    target_values = numbers(targets)
    outcomes = [
        values
        for outcome in (schema.outcomes if training else ())
        for values in read_outcome(outcome, columns, problems, codes=codes)
    ]
    patients = read_patients(patient, columns[patient], problems) if patient in columns else None
    exposures = {
        name: read_exposure(name, columns[name], problems, codes=codes.get(name, ()))
        for name in exposed
        if name in columns
    }
    lengths = {len(cells) for cells in columns.values()}
    rows = _usual_length(columns)
    problems.rows += rows
    bad = problems.take_bad_rows(rows)
    if problems:
        return None, lengths

    values = _side_by_side(numeric, rows, np.float64)
    missing = np.isnan(values)
    checked = CheckedRows(
        schema=schema,
        numeric=np.where(missing, 0.0, values),
        missing=missing,
        outside=outside(schema.numeric, values),
        levels=_side_by_side(levels, rows, np.int64),
        targets=_side_by_side(target_values, rows, np.float64) if training else None,
        outcomes=_side_by_side(outcomes, rows, np.float64) if training else None,
        patients=patients,
        exposures=None
        if training
        else _side_by_side(
            [exposures.get(name, np.ones(rows)) for name in exposed], rows, np.float64
        ),
    )
    return checked if bad is None else checked.take(~bad), lengths


def exposure_columns(schema: Schema) -> tuple[str, ...]:
    """Return the columns with the exposures of a schema's counts, each once."""
    counts = (own for own in schema.outcomes if isinstance(own, Count))
    return tuple(dict.fromkeys(own.exposure for own in counts if own.exposure is not None))


def _side_by_side(
    columns: Sequence[NDArray[Any]], rows: int, kind: type[np.generic]
) -> NDArray[Any]:
    """Stack columns as (rows, columns), even if there are none."""
    return np.array(columns, kind).reshape(len(columns), rows).T.copy()


def _columns(
    table: Mapping[str, object], names: Sequence[str], problems: Problems
) -> dict[str, Cells]:
    """Return the columns `names` that are present and one-dimensional."""
    columns: dict[str, Cells] = {}
    for name in names:
        if name not in table:
            sentence = "it is not in the table; add it, or correct its spelling"
            problems.add(MissingColumn(name, sentence))
            continue
        cells = as_array(table[name])
        if cells.ndim == 1:
            columns[name] = cells
        else:
            sentence = f"it has {cells.ndim} dimensions; pass a list or a one-dimensional array"
            problems.add(WrongLength(name, sentence))
    usual = _usual_length(columns)
    for name, cells in columns.items():
        if len(cells) != usual:
            problems.add(
                WrongLength(
                    name,
                    f"it has {len(cells)} rows, and most columns have {usual}; pass one cell for "
                    "each row",
                )
            )
    return columns


def _usual_length(columns: Mapping[str, Cells]) -> int:
    lengths = Counter(len(cells) for cells in columns.values())
    return lengths.most_common(1)[0][0] if lengths else 0
