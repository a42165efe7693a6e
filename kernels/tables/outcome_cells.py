"""The cells of outcomes, read as numbers: one column for a binary target or classes, two otherwise.

    binary          1 for the event, 0 otherwise
    classes         the position of the level
    count           the count; its exposure, 1 if the schema names none
    time_to_event   the time; 1 for an event, 0 for an end of observation

A row in which any of these is missing is no row for training (`kernels.tables.problems`). Whoever
was never observed (a time of 0 without an event) is no problem: such a row says nothing. With
differential privacy a count beyond the schema's upper
bound is clipped, and every other bad cell leaves its row out (`kernels.tables.problems.RowByRow`).
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kernels.errors import (
    ColumnError,
    InfiniteValue,
    MissingTarget,
    NotALabel,
    NotNumeric,
    OutOfBounds,
    UnknownLevel,
    WrongOutcome,
)
from kernels.tables.cells import (
    Cells,
    Codes,
    are_dates,
    read_labels,
    read_numbers,
)
from kernels.tables.labels import canonical_label
from kernels.tables.problems import BadCells, Problems
from kernels.tables.targets import LARGEST_COUNT, Binary, Classes, Count, Outcome, TimeToEvent

EXPOSURES = 2.0**-12, 2.0**24
"""The least and the largest exposure: with smaller or larger ones choose another unit."""
PRIVATE_EXPOSURES = 2.0**-4, 2.0**4
"""With differential privacy, exposures are clipped to this range."""

Numbers = NDArray[np.float64]


def width(outcome: Outcome) -> int:
    """Return the number of columns of numbers that an outcome becomes."""
    return 1 if isinstance(outcome, Binary | Classes) else 2


def positions(outcomes: tuple[Outcome, ...]) -> tuple[slice, ...]:
    """Return where the columns of each outcome are among those of all."""
    ends = np.cumsum([width(own) for own in outcomes]).tolist()
    return tuple(slice(end - width(own), end) for own, end in zip(outcomes, ends, strict=True))


def label_columns(outcome: Outcome) -> tuple[str, ...]:
    """Return the columns whose cells are labels; those of its other columns are numbers."""
    match outcome:
        case Binary() | Classes():
            return (outcome.name,)
        case Count():
            return ()
        case TimeToEvent():
            return (outcome.event,)


def read_outcome(
    outcome: Outcome,
    columns: Mapping[str, Cells],
    problems: Problems,
    *,
    codes: Mapping[str, Codes] | None = None,
) -> list[Numbers]:
    """Return the columns of an outcome, (n,) each; bad cells are noted, and are then any number.

    columns: those of the table that are there; nothing is returned unless all that it needs are.
    codes: the missing codes by column.
    """
    if any(name not in columns for name in outcome.columns):
        return []
    codes = codes or {}
    own = codes.get(outcome.name, ())
    match outcome:
        case Binary():
            levels = _levels(outcome.name, outcome.levels, columns[outcome.name], problems, own)
            return [(levels == outcome.levels.index(outcome.event)).astype(np.float64)]
        case Classes():
            return [_levels(outcome.name, outcome.levels, columns[outcome.name], problems, own)]
        case Count():
            return _count(outcome, columns, problems, codes)
        case TimeToEvent():
            times = _numbers(outcome.name, columns[outcome.name], problems, own)
            below = "are below 0: the event cannot be before the origin of time"
            _note(problems, WrongOutcome, outcome.name, times < 0, below, _DROP_TIMES)
            both, name = (outcome.censored, outcome.happened), outcome.event
            return [
                np.maximum(times, 0.0),
                _levels(name, both, columns[name], problems, codes.get(name, ())),
            ]


_DROP = "correct the cells, or drop the rows: training needs every outcome"
_DAYS = "convert them to numbers, such as the days since admission"
_DROP_TIMES = "correct the times, or drop the rows"


def _count(
    outcome: Count,
    columns: Mapping[str, Cells],
    problems: Problems,
    codes: Mapping[str, Codes],
) -> list[Numbers]:
    name = outcome.name
    counts = _numbers(name, columns[name], problems, codes.get(name, ()))
    fraction = (counts < 0) | (counts != np.floor(counts)) | (counts > LARGEST_COUNT)
    what = "are not counts: 0, 1, 2 …"
    _note(problems, WrongOutcome, name, fraction, what, _DROP)
    above = (counts > outcome.upper) & ~fraction
    what = f"are above {outcome.upper:g} {outcome.unit}"
    advice = "correct the cells, drop the rows, or raise `upper` in the schema"
    _note(problems, OutOfBounds, name, above, what, advice)
    counts = np.where(fraction, 0.0, np.minimum(counts, np.floor(outcome.upper)))
    if outcome.exposure is None:
        return [counts, np.ones_like(counts)]
    name = outcome.exposure
    return [counts, read_exposure(name, columns[name], problems, codes=codes.get(name, ()))]


def read_exposure(column: str, cells: Cells, problems: Problems, *, codes: Codes = ()) -> Numbers:
    """Return exposures, (n,); bad cells are noted, and are then 1."""
    exposure = _numbers(column, cells, problems, codes)
    least, most = EXPOSURES
    outside = ~((exposure >= least) & (exposure <= most))
    what = f"are not exposures from {least:.1g} to {most:.1g}: nothing is counted without exposure"
    advice = "correct the cells, drop the rows, or choose another unit"
    _note(problems, WrongOutcome, column, outside, what, advice)
    return np.where(outside, 1.0, exposure)


def _numbers(column: str, cells: Cells, problems: Problems, codes: Codes) -> Numbers:
    """Return numbers; 1 in place of cells that are none, which are noted."""
    values, no_number = read_numbers(cells, codes)
    problems.count(column, len(values))
    if are_dates(cells):
        _note(problems, NotNumeric, column, no_number, "are dates or times", _DAYS)
    else:
        _note(problems, NotNumeric, column, no_number, "are not numbers", _DROP)
    _note(problems, InfiniteValue, column, np.isinf(values), "are infinite", _DROP)
    _note(problems, MissingTarget, column, np.isnan(values) & ~no_number, "are missing", _DROP)
    return np.where(np.isfinite(values), values, 1.0)


def _levels(
    column: str, levels: tuple[str, ...], cells: Cells, problems: Problems, missing: Codes
) -> Numbers:
    """Return positions among the levels; 0 in place of other cells, which are noted."""
    labels, own = read_labels(cells, missing)
    problems.count(column, len(own))
    known = {canonical_label(level): float(position) for position, level in enumerate(levels)}
    found = [known.get(label or "", -1.0) for label in labels]
    codes: Numbers = np.array(found, np.float64)[own]
    if (codes >= 0).all():
        return codes
    no_label = np.array([label is None for label in labels], np.bool_)[own]
    empty = np.array([label == "" for label in labels], np.bool_)[own]
    _note(problems, NotALabel, column, no_label, "are neither text nor numbers", _DROP)
    _note(problems, MissingTarget, column, empty, "are missing", _DROP)
    what = f"are none of the levels {', '.join(map(repr, levels))}"
    advice = "correct their spelling, or the levels in the schema"
    _note(problems, UnknownLevel, column, (codes < 0) & ~no_label & ~empty, what, advice)
    return np.maximum(codes, 0.0)


def _note(
    problems: Problems,
    kind: type[ColumnError],
    column: str,
    bad: NDArray[np.bool_],
    what: str,
    advice: str,
) -> None:
    problems.note(BadCells(kind, column, bad, what, advice))
