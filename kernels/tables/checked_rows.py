"""The rows of a table, read and checked by its schema: arrays in raw units, without NaN.

A table is a mapping from column names to one-dimensional arrays or lists; `kernels.tables.cells`
defines the cells that they may contain. A missing label is missing, never `other`.

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

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.errors import (
    ColumnError,
    EmptyTable,
    InfiniteValue,
    MissingColumn,
    MissingValue,
    NotALabel,
    NotNumeric,
    OutOfBounds,
    UnknownLevel,
    WrongLength,
)
from kernels.tables.cells import Cells, are_dates, as_array, read_labels, read_numbers
from kernels.tables.outcome_cells import read_exposure, read_outcome, width
from kernels.tables.problems import BadCells, Problems
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import Count, Target

LEVELS_SHOWN = 12
"""The most levels of the schema that a message lists."""

_ADVICE_ON_MISSING = "fill them in, drop the rows, or set may_be_missing in the schema"


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
    for piece in pieces:
        checked, rows = _read(schema, piece, problems, training=training)
        lengths |= rows
        if checked is not None:
            yield checked
    if problems.needs_rows and (lengths == {0} or not (lengths or problems)):
        problems.add(EmptyTable("the table has no rows; at least one is needed"))
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
    wanted = [*features, *(name for name in exposed if name in table)]
    columns = _columns(table, schema.columns if training else wanted, problems)

    def numbers(wanted: Iterable[Numeric | Target]) -> list[NDArray[np.float64]]:
        present = (column for column in wanted if column.name in columns)
        return [
            _numbers(column, columns[column.name], problems, refuse_outside=training)
            for column in present
        ]

    numeric = numbers(schema.numeric)
    levels = [
        _levels(column, columns[column.name], problems)
        for column in schema.categorical
        if column.name in columns
    ]
    target_values = numbers(targets)
    outcomes = [
        values
        for outcome in (schema.outcomes if training else ())
        for values in read_outcome(outcome, columns, problems)
    ]
    patients = _patients(patient, columns[patient], problems) if patient in columns else None
    exposures = {
        name: read_exposure(name, columns[name], problems) for name in exposed if name in columns
    }
    lengths = {len(cells) for cells in columns.values()}
    rows = _usual_length(columns)
    problems.rows += rows
    if problems:
        return None, lengths

    values = _side_by_side(numeric, rows, np.float64)
    missing = np.isnan(values)
    checked = CheckedRows(
        schema=schema,
        numeric=np.where(missing, 0.0, values),
        missing=missing,
        outside=_outside(schema.numeric, values),
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
    bad = problems.take_bad_rows()
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


def _numbers(
    column: Numeric | Target, cells: Cells, problems: Problems, *, refuse_outside: bool
) -> NDArray[np.float64]:
    """Read numbers as float64, NaN where missing; values out of bounds are noted and clipped."""
    values, no_number = read_numbers(cells)
    problems.count(column.name, len(values))
    outside = _outside([column], values[:, None])[:, 0] if refuse_outside else None
    if np.isfinite(values).all() and (outside is None or not outside.any()):
        return values

    def note(kind: type[ColumnError], bad: NDArray[np.bool_], what: str, advice: str) -> None:
        problems.note(BadCells(kind, column.name, bad, what, advice))

    if are_dates(cells):
        advice = "convert them to numbers, such as the days since admission"
        note(NotNumeric, no_number, "are dates or times", advice)
    else:
        note(
            NotNumeric,
            no_number,
            "are not numbers",
            "convert text and booleans to numbers, or make the column categorical in the schema",
        )
    note(InfiniteValue, np.isinf(values), "are infinite", "correct them, or mark them as missing")
    missing = np.isnan(values) & ~no_number
    if isinstance(column, Target):
        note(MissingValue, missing, "are missing", "drop the rows: training needs every target")
    elif not column.may_be_missing:
        note(MissingValue, missing, "are missing", _ADVICE_ON_MISSING)
    if outside is not None:
        note(
            OutOfBounds,
            outside & np.isfinite(values),
            f"are not within {_bounds(column)}",
            "correct the cells or their unit, drop the rows, or widen the schema's bounds",
        )
        bound = np.where(values < _lower(column), _lower(column), _upper(column))
        values = np.where(outside, bound, values)
    return values


def _levels(column: Categorical, cells: Cells, problems: Problems) -> NDArray[np.int64]:
    """Read labels as positions among the column's levels, −1 where missing."""
    labels, own = read_labels(cells)
    problems.count(column.name, len(own))
    positions = column.positions
    unknown = -2 if column.other is None else positions[column.other]
    found = [-1 if not label else positions.get(label, unknown) for label in labels]
    codes: NDArray[np.int64] = np.array(found, np.int64)[own]
    least = -1 if column.may_be_missing else 0
    if None not in labels and min(found, default=0) >= least:
        return codes

    _note_labels(column.name, cells, labels, own, problems)
    if not column.may_be_missing:
        bad = _where(labels, own, "")
        advice = _ADVICE_ON_MISSING
        problems.note(BadCells(MissingValue, column.name, bad, "are missing", advice))
    shown = ", ".join(map(repr, column.levels[:LEVELS_SHOWN]))
    more = "" if len(column.levels) <= LEVELS_SHOWN else f" … ({len(column.levels)} in all)"
    what = f"match none of the levels {shown}{more}"
    advice = "correct their spelling, or set `other` in the schema, the level of all other labels"
    problems.note(BadCells(UnknownLevel, column.name, codes == -2, what, advice))
    return codes


def _patients(column: str, cells: Cells, problems: Problems) -> tuple[str, ...]:
    labels, own = read_labels(cells)
    problems.count(column, len(own))
    _note_labels(column, cells, labels, own, problems)
    advice = "fill in the patients, or remove the patient column from the schema"
    bad = _where(labels, own, "")
    problems.note(BadCells(MissingValue, column, bad, "are missing", advice))
    return tuple(labels[position] or "" for position in own.tolist())


def _note_labels(
    column: str,
    cells: Cells,
    labels: list[str | None],
    own: NDArray[np.int64],
    problems: Problems,
) -> None:
    """Note cells that are not labels."""
    what, advice = "are neither text nor integers", "convert fractions and objects to text"
    if are_dates(cells):
        what, advice = "are dates or times", "convert them to text, such as the month's name"
    problems.note(BadCells(NotALabel, column, _where(labels, own, None), what, advice))


def _where(
    labels: list[str | None], own: NDArray[np.int64], wanted: str | None
) -> NDArray[np.bool_]:
    return np.array([label == wanted for label in labels], np.bool_)[own]


def _outside(columns: Sequence[Numeric | Target], values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask of the (n, K) values that are outside the bounds of their columns."""
    lower, upper = [*map(_lower, columns)], [*map(_upper, columns)]
    return (values < lower) | (values > upper)


def _lower(column: Numeric | Target) -> float:
    return -math.inf if column.lower is None else column.lower


def _upper(column: Numeric | Target) -> float:
    return math.inf if column.upper is None else column.upper


def _bounds(column: Numeric | Target) -> str:
    lower = "(−∞" if column.lower is None else f"[{column.lower}"
    upper = "∞)" if column.upper is None else f"{column.upper}]"
    return f"{lower}, {upper} {column.unit}"
