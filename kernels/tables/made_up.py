"""Made-up rows that a schema allows: the same for everyone, and no patient's.

They stand in for a hospital's rows where it must not matter which rows it has, or whether it has
any: a state is tried on them before the first row of the table is read, and the time and memory
that a stage takes are measured on them. Every level and every kind of missing cell occurs once
there are enough rows, and consecutive pairs of rows belong to one patient.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.tables.records import Records
from kernels.tables.schema import Numeric, Schema
from kernels.tables.standardiser import Scale, Standardiser
from kernels.tables.targets import Binary, Classes, Count, Outcome, Target, TimeToEvent

_GOLDEN = (math.sqrt(5) - 1) / 2
_ROWS_OF_A_PATIENT = 2
_MISSING_EVERY = 4
_REACH = 1.5
"""How far made-up cells are from the mean at most, in deviations."""


def made_up_rows(schema: Schema, count: int, standardiser: Standardiser | None = None) -> Records:
    """Return `count` rows within the schema's bounds, a function of the arguments alone.

    standardiser: if given, cells are also near its means, as most rows of an honest sum are. Where
    its means are outside the bounds, the cells are at a bound.

    >>> schema = Schema((Numeric("age", "a", 0, 120),), (Target("stay", "d", 0, 30),))
    >>> made_up_rows(schema, 3).numeric.round().flatten().tolist()
    [74.0, 28.0, 102.0]
    """
    scales = None if standardiser is None else standardiser.numeric
    targets = None if standardiser is None else standardiser.targets
    numeric = _numbers(schema.numeric, scales, count, first=1)
    missing = torch.zeros(numeric.shape, dtype=torch.bool)
    for index, column in enumerate(schema.numeric):
        if column.may_be_missing:
            missing[index % _MISSING_EVERY :: _MISSING_EVERY, index] = True
    levels = torch.zeros(count, len(schema.categorical), dtype=torch.int64)
    for index, labels in enumerate(schema.categorical):
        kinds = len(labels.levels) + labels.may_be_missing
        own = (torch.arange(count) + index) % kinds
        levels[:, index] = torch.where(own < len(labels.levels), own, -1)
    patients = (str(row // _ROWS_OF_A_PATIENT) for row in range(count))
    return Records(
        schema,
        numeric=numeric.masked_fill(missing, 0.0),
        missing=missing,
        outside=torch.zeros(numeric.shape, dtype=torch.bool),
        levels=levels,
        targets=_numbers(schema.real, targets, count, first=1 + len(schema.numeric)),
        outcomes=_outcomes(schema.outcomes, count),
        patients=None if schema.patient is None else tuple(patients),
    )


def _numbers(
    columns: Sequence[Numeric | Target],
    scales: Sequence[Scale] | None,
    count: int,
    *,
    first: int,
) -> Tensor:
    """Return cells (count, columns): an evenly spread sequence for each column."""
    rows = torch.arange(1, count + 1, dtype=torch.float64)
    cells = torch.zeros(count, len(columns), dtype=torch.float64)
    for index, column in enumerate(columns):
        spread = (rows * (first + index) * _GOLDEN) % 1.0
        if scales is not None:
            lower, upper = (scales[index].mean + end * scales[index].scale for end in _ENDS)
        else:
            lower, upper = _unscaled_ends(column)
        # Not lower + (upper − lower)·u, which overflows for bounds of ±1e308.
        own = lower * (1 - spread) + upper * spread
        least = -math.inf if column.lower is None else column.lower
        most = math.inf if column.upper is None else column.upper
        cells[:, index] = own.clamp(least, most)
    return cells


def _outcomes(outcomes: Sequence[Outcome], count: int) -> Tensor:
    """Return the columns of outcomes, (count, C): every level, and times in every interval."""
    rows, ones, columns = torch.arange(count), torch.ones(count), []
    for index, outcome in enumerate(outcomes):
        spread = ((rows + 1).double() * (index + 1) * _GOLDEN) % 1.0
        match outcome:
            case Binary():
                columns.append((rows + index) % 2)
            case Classes():
                columns.append((rows + index) % len(outcome.levels))
            case Count():
                columns += [(spread * (min(_MOST_COUNT, outcome.upper) + 1)).floor(), ones]
            case TimeToEvent():
                columns += [spread * 1.25 * outcome.intervals[-1], (rows + index) % 2]
    if not columns:
        return torch.zeros(count, 0, dtype=torch.float64)
    return torch.stack([own.double() for own in columns], 1)


_MOST_COUNT = 4.0
_ENDS = (-_REACH, _REACH)


def _unscaled_ends(column: Numeric | Target) -> tuple[float, float]:
    """Return the bounds; where one is missing, the other one or 0, which fits any unit."""
    ends = [end for end in (column.lower, column.upper) if end is not None] or [0.0]
    return ends[0], ends[-1]
