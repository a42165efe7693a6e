"""A table as its schema reads it: checked, in raw units, without a NaN.

A table is a mapping from column names to one-dimensional arrays or lists; `kernels.cells` says
what may be in them. A missing label is missing, never `other`.

Columns that the schema does not name are ignored: a hospital's export is wider than a study, and a
misspelt column is noticed as a missing one. Every column of the schema must be there, also where
all its cells may be missing: leaving one out by accident must not look like having no data.

All problems of a table are found before it is refused (`TableRefused`). Messages name columns,
bounds and levels of the schema and a few row numbers, never what is in a cell.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels.cells import as_array, read_labels, read_numbers
from kernels.errors import (
    ColumnError,
    EmptyTable,
    InfiniteValue,
    MissingColumn,
    MissingValue,
    NotALabel,
    NotNumeric,
    OutOfBounds,
    TableError,
    TableRefused,
    UnknownLevel,
    WrongLength,
)
from kernels.schema import Categorical, Numeric, Schema, Target

ROWS_SHOWN = 3
"""How many row numbers a message has at most."""

LEVELS_SHOWN = 12
"""How many levels of the schema a message has at most."""

_ADVICE_ON_MISSING = "fill them in, drop the rows, or let the schema allow missing cells"


@dataclass(frozen=True, eq=False, repr=False)
class Records:
    """n rows with K numeric and C categorical columns and T targets; its repr shows no cell.

    >>> schema = Schema((Numeric("age", "a", upper=120),), (Target("stay", "d"),))
    >>> Records.for_training(schema, {"age": [61, 47], "stay": [3.5, 1], "ward": ["A", "B"]})
    Records(2 rows)
    >>> Records.for_prediction(schema, {"age": [61, 147]}).outside.tolist()
    [[False], [True]]
    >>> Records.for_training(schema, {"age": [None, 147]})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    kernels.errors.TableRefused: the table does not fit its schema:
      - column 'stay': the table does not have it; add it, or correct its spelling
      - column 'age': 1 of 2 cells are missing (row 0, counted from 0); fill them in, ...
      - column 'age': 1 of 2 cells are not within (−∞, 120] a (row 1, counted from 0); ...
    """

    schema: Schema
    numeric: Tensor
    """(n, K) float64, raw; 0 where missing."""
    missing: Tensor
    """(n, K) bool: which cells of `numeric` are missing."""
    outside: Tensor
    """(n, K) bool: which cells of `numeric` are out of bounds; in training none are."""
    levels: Tensor
    """(n, C) int64, the position of the level in the schema; −1 where missing."""
    targets: Tensor | None
    """(n, T) float64, raw; None if read for prediction."""
    patients: tuple[str, ...] | None
    """n labels, equal for the rows of one patient; None without a patient column, and if read for
    prediction."""

    @classmethod
    def for_training(cls, schema: Schema, table: Mapping[str, object]) -> "Records":
        """Read features, targets and the patient column; numbers out of bounds are refused.

        A model must not be shaped by a body temperature of 370, and the bounds are what noise
        and encoding are later sized by.
        """
        return _read(schema, table, training=True)

    @classmethod
    def for_prediction(cls, schema: Schema, table: Mapping[str, object]) -> "Records":
        """Read the features and nothing else; numbers out of bounds are flagged in `outside`."""
        return _read(schema, table, training=False)

    def take(self, chosen: Tensor | slice) -> "Records":
        """Return the rows that are chosen, a bool for each, or consecutive ones; possibly none."""
        patients = self.patients
        if patients is not None:
            patients = (
                patients[chosen]
                if isinstance(chosen, slice)
                else tuple(p for p, own in zip(patients, chosen.tolist(), strict=True) if own)
            )
        return Records(
            self.schema,
            self.numeric[chosen],
            self.missing[chosen],
            self.outside[chosen],
            self.levels[chosen],
            None if self.targets is None else self.targets[chosen],
            patients,
        )

    def row_keys(self) -> list[bytes]:
        """Return what tells rows apart whatever their order: the patient, or the row's own cells.

        Sixteen bytes each, from a hash; for use at the site only.
        """
        if self.patients is not None:
            own = [patient.encode() for patient in self.patients]
        else:
            columns = [self.numeric, self.missing, self.levels]
            columns += [] if self.targets is None else [self.targets]
            own = [row.tobytes() for row in torch.cat([c.double() for c in columns], 1).numpy()]
        return [hashlib.blake2b(key, digest_size=16, person=b"veilgp/rows").digest() for key in own]

    @classmethod
    def concatenate(cls, parts: Sequence["Records"]) -> "Records":
        """Return the rows of several records of one schema, one after the other."""
        targets = [part.targets for part in parts if part.targets is not None]
        patients = [part.patients for part in parts if part.patients is not None]
        return cls(
            parts[0].schema,
            torch.cat([part.numeric for part in parts]),
            torch.cat([part.missing for part in parts]),
            torch.cat([part.outside for part in parts]),
            torch.cat([part.levels for part in parts]),
            torch.cat(targets) if len(targets) == len(parts) else None,
            tuple(p for part in patients for p in part) if len(patients) == len(parts) else None,
        )

    def __len__(self) -> int:
        return len(self.numeric)

    def __repr__(self) -> str:
        return f"Records({len(self)} rows)"


def _read(schema: Schema, table: Mapping[str, object], *, training: bool) -> Records:
    targets = schema.targets if training else ()
    patient = schema.patient if training else None
    names = [column.name for column in (*schema.features, *targets)]
    problems: list[TableError] = []
    columns = _columns(table, names if patient is None else [*names, patient], problems)

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
    patients = _patients(patient, columns[patient], problems) if patient in columns else None
    if problems:
        raise TableRefused(problems)

    rows = len(columns[names[0]])
    values = _side_by_side(numeric, rows, np.float64)
    outside = [_outside(column, v) for column, v in zip(schema.numeric, numeric, strict=True)]
    return Records(
        schema=schema,
        numeric=values.nan_to_num(nan=0.0),
        missing=values.isnan(),
        outside=_side_by_side(outside, rows, np.bool_),
        levels=_side_by_side(levels, rows, np.int64),
        targets=_side_by_side(target_values, rows, np.float64) if training else None,
        patients=patients,
    )


def _side_by_side(columns: Sequence[NDArray[Any]], rows: int, kind: type[np.generic]) -> Tensor:
    """Stack columns as (rows, columns), also where there are none."""
    return torch.from_numpy(np.array(columns, kind).reshape(len(columns), rows).T.copy())


def _columns(
    table: Mapping[str, object], names: list[str], problems: list[TableError]
) -> dict[str, NDArray[Any]]:
    """Take those of the columns `names` that are there and one-dimensional."""
    columns: dict[str, NDArray[Any]] = {}
    for name in names:
        if name not in table:
            sentence = "the table does not have it; add it, or correct its spelling"
            problems.append(MissingColumn(name, sentence))
            continue
        cells = as_array(table[name])
        if cells.ndim == 1:
            columns[name] = cells
        else:
            sentence = f"it has {cells.ndim} dimensions; pass a list or an array with one"
            problems.append(WrongLength(name, sentence))
    lengths = Counter(len(cells) for cells in columns.values())
    usual = lengths.most_common(1)[0][0] if lengths else None
    problems += [
        WrongLength(
            name,
            f"it has {len(cells)} rows where most columns have {usual}; pass a cell for every row",
        )
        for name, cells in columns.items()
        if len(cells) != usual
    ]
    if [*lengths] == [0]:
        problems.append(EmptyTable("the table has no rows; pass at least one"))
    return columns


def _numbers(
    column: Numeric | Target,
    cells: NDArray[Any],
    problems: list[TableError],
    *,
    refuse_outside: bool,
) -> NDArray[np.float64]:
    """Read numbers as float64, NaN where missing."""
    values, no_number = read_numbers(cells)

    def note(kind: type[ColumnError], bad: NDArray[np.bool_], what: str, advice: str) -> None:
        _note(problems, kind, column.name, bad, what, advice)

    note(
        NotNumeric,
        no_number,
        "are no numbers",
        "convert text and booleans to numbers, or let the schema have a categorical column",
    )
    note(InfiniteValue, np.isinf(values), "are infinite", "correct them, or mark them as missing")
    missing = np.isnan(values) & ~no_number
    if isinstance(column, Target):
        note(MissingValue, missing, "are missing", "drop the rows: there is nothing to learn there")
    elif not column.may_be_missing:
        note(MissingValue, missing, "are missing", _ADVICE_ON_MISSING)
    if refuse_outside:
        note(
            OutOfBounds,
            _outside(column, values) & np.isfinite(values),
            f"are not within {_bounds(column)}",
            "correct the cells or their unit, drop the rows, or widen the schema's bounds",
        )
    return values


def _levels(
    column: Categorical, cells: NDArray[Any], problems: list[TableError]
) -> NDArray[np.int64]:
    """Read labels as positions among the column's levels, −1 where missing."""
    labels = _labels(column.name, cells, problems)
    positions = {level: position for position, level in enumerate(column.levels)}
    unknown = -2 if column.other is None else positions[column.other]
    found = [-1 if not label else positions.get(label, unknown) for label in labels]
    codes = np.array(found, np.int64)
    if not column.may_be_missing:
        missing = np.array([label == "" for label in labels], np.bool_)
        _note(problems, MissingValue, column.name, missing, "are missing", _ADVICE_ON_MISSING)
    shown = ", ".join(map(repr, column.levels[:LEVELS_SHOWN]))
    more = "" if len(column.levels) <= LEVELS_SHOWN else f" … ({len(column.levels)} in all)"
    _note(
        problems,
        UnknownLevel,
        column.name,
        codes == -2,
        f"are none of the levels {shown}{more}",
        "correct their spelling, or let the schema have a level for others",
    )
    return codes


def _patients(column: str, cells: NDArray[Any], problems: list[TableError]) -> tuple[str, ...]:
    labels = _labels(column, cells, problems)
    missing = np.array([label == "" for label in labels], np.bool_)
    advice = "say whose rows they are, or let the schema have no patient column"
    _note(problems, MissingValue, column, missing, "are missing", advice)
    return tuple(label or "" for label in labels)


def _labels(column: str, cells: NDArray[Any], problems: list[TableError]) -> list[str | None]:
    """Read labels: text, "" where missing, None where a cell is no label."""
    labels = read_labels(cells)
    no_label = np.array([label is None for label in labels], np.bool_)
    advice = "convert fractions, dates and other objects to text"
    _note(problems, NotALabel, column, no_label, "are neither text nor whole numbers", advice)
    return labels


def _outside(column: Numeric | Target, values: NDArray[np.float64]) -> NDArray[np.bool_]:
    lower = -math.inf if column.lower is None else column.lower
    upper = math.inf if column.upper is None else column.upper
    return (values < lower) | (values > upper)


def _bounds(column: Numeric | Target) -> str:
    lower = "(−∞" if column.lower is None else f"[{column.lower}"
    upper = "∞)" if column.upper is None else f"{column.upper}]"
    return f"{lower}, {upper} {column.unit}"


def _note(
    problems: list[TableError],
    kind: type[ColumnError],
    column: str,
    bad: NDArray[np.bool_],
    what: str,
    advice: str,
) -> None:
    """Add a problem if there are `bad` cells: how many and where, never what is in them."""
    rows = np.flatnonzero(bad)
    if not len(rows):
        return
    shown = ", ".join(map(str, rows[:ROWS_SHOWN]))
    more = " …" if len(rows) > ROWS_SHOWN else ""
    where = f"{'row' if len(rows) == 1 else 'rows'} {shown}{more}, counted from 0"
    sentence = f"{len(rows)} of {len(bad)} cells {what} ({where}); {advice}"
    problems.append(kind(column, sentence, rows=len(rows)))
