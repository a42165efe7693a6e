"""The cells of features, real targets and patients, read as arrays; bad cells are noted.

What is bad is a problem of the table, a row to leave out or a number to clip, depending on who
reads (`kernels.tables.problems`). Cells of outcomes: `kernels.tables.outcome_cells`.
"""

import math
from collections.abc import Sequence

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
    UnknownLevel,
)
from kernels.tables.cells import Cells, Codes, are_dates, read_labels, read_numbers
from kernels.tables.labels import canonical_label
from kernels.tables.problems import BadCells, Problems
from kernels.tables.schema import Categorical, Numeric
from kernels.tables.targets import Target

LEVELS_SHOWN = 12
"""The most levels of the schema that a message lists."""

_ADVICE_ON_MISSING = "fill them in, drop the rows, or set may_be_missing in the schema"


def read_column(
    column: Numeric | Target,
    cells: Cells,
    problems: Problems,
    *,
    missing_codes: Codes,
    refuse_outside: bool,
) -> NDArray[np.float64]:
    """Read numbers as float64, NaN where missing; values out of bounds are noted and clipped."""
    values, no_number = read_numbers(cells, missing_codes)
    problems.count(column.name, len(values))
    beyond = outside([column], values[:, None])[:, 0] if refuse_outside else None
    if np.isfinite(values).all() and (beyond is None or not beyond.any()):
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
        note(MissingTarget, missing, "are missing", "drop the rows: training needs every target")
    elif not column.may_be_missing:
        note(MissingValue, missing, "are missing", _ADVICE_ON_MISSING)
    if beyond is not None:
        note(
            OutOfBounds,
            beyond & np.isfinite(values),
            f"are not within {_bounds(column)}",
            "correct the cells or their unit, drop the rows, or widen the schema's bounds",
        )
        bound = np.where(values < _lower(column), _lower(column), _upper(column))
        values = np.where(beyond, bound, values)
    return values


def read_levels(
    column: Categorical, cells: Cells, problems: Problems, *, missing_codes: Codes
) -> NDArray[np.int64]:
    """Read labels as positions among the column's levels, −1 where missing."""
    labels, own = read_labels(cells, missing_codes)
    problems.count(column.name, len(own))
    positions = column.positions
    unknown = -2 if column.other is None else positions[canonical_label(column.other)]
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


def read_patients(column: str, cells: Cells, problems: Problems) -> tuple[str, ...]:
    """Read the labels of patients, one for each row; none may be missing."""
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
    what, advice = "are neither text nor numbers", "convert them to text"
    if are_dates(cells):
        what, advice = "are dates or times", "convert them to text, such as the month's name"
    problems.note(BadCells(NotALabel, column, _where(labels, own, None), what, advice))


def _where(
    labels: list[str | None], own: NDArray[np.int64], wanted: str | None
) -> NDArray[np.bool_]:
    return np.array([label == wanted for label in labels], np.bool_)[own]


def outside(columns: Sequence[Numeric | Target], values: NDArray[np.float64]) -> NDArray[np.bool_]:
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
