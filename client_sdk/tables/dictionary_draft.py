"""A draft data dictionary for a table: kinds, levels and rounded bounds, for a person to check.

Bounds contain every value of the table, so that no session can make the table's extreme rows decide
whether it fits. They do not carry these values: each bound is rounded outward to a multiple of a
step, the first of 1, 2 or 5 times a power of ten that is at least a quarter of the distance between
the 5th and the 95th percentile. A level of a category that fewer than FEW_ROWS rows have is not
listed. Cells with a missing code of the schema are missing, and no bound contains such a code.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from client_sdk.errors import DraftError
from client_sdk.tables.column_seen import ColumnSeen
from client_sdk.tables.draft_limits import FEW_ROWS, UNKNOWN
from client_sdk.tables.opening import open_table
from kernels.tables.arrow_cells import as_numbers
from kernels.tables.cells import read_numbers

_SAMPLE = 50_000
"""Maximum number of values per column from which percentiles are computed."""
_MOST_HALVINGS = 20
"""How often a step is halved so that bounds do not contain a missing code."""


@dataclass(frozen=True)
class DraftedColumn:
    """One column: a number with bounds, a category with levels, or the patient column.

    rare: how many levels are not listed because too few rows have them.
    """

    name: str
    lower: float | None = None
    upper: float | None = None
    levels: tuple[str, ...] | None = None
    rare: int = 0
    missing_codes: tuple[float | str, ...] = ()
    patient: bool = False


@dataclass(frozen=True)
class DictionaryDraft:
    """The columns that can be used, and a sentence for each one that was left out."""

    columns: tuple[DraftedColumn, ...]
    advice: tuple[str, ...]
    units: Mapping[str, str] = field(default_factory=dict)

    def unit(self, column: str) -> str:
        """Return a column's unit, or UNKNOWN."""
        return self.units.get(column, UNKNOWN)


def draft_dictionary(
    data: object,
    *,
    patient: str | None = None,
    units: Mapping[str, str] | None = None,
    labels: Collection[str] = (),
    missing_codes: Mapping[str, tuple[float | str, ...]] | None = None,
) -> DictionaryDraft:
    """Read all rows of a table, and return a draft; units are known only if they are given.

    labels: columns whose numbers are codes, such as 0 and 1 for an outcome.
    missing_codes: cells that mean "missing", by column.
    """
    codes = missing_codes or {}
    source = open_table(data)
    if patient is not None and patient not in source.columns:
        raise DraftError(f"{source.name} has no column {patient!r}: correct the name")
    names = [name for name in source.columns if name != patient]
    seen = {name: ColumnSeen(codes.get(name, ())) for name in names}
    values = {name: _Values() for name in names}
    for batch in source.batches(names):
        for name, column in batch.items():
            seen[name].look(column, text=source.numbers_are_text)
            if seen[name].numeric:
                text, own = source.numbers_are_text, codes.get(name, ())
                cells = as_numbers(column, text=text, missing_codes=own)
                values[name].look(read_numbers(cells, own)[0])
    drafted = [] if patient is None else [DraftedColumn(patient, patient=True)]
    advice: list[str] = []
    for name in names:
        column = _drafted(name, seen[name], values[name], coded=name in labels)
        if column is None:
            advice.append(f"column {name!r}: left out, it has neither numbers nor common levels")
            continue
        drafted.append(column)
        if dropped := [repr(own) for own in codes.get(name, ()) if own not in column.missing_codes]:
            advice.append(
                f"column {name!r}: the missing codes {', '.join(dropped)} lie among its values "
                "and are left out: correct the table or the schema"
            )
    return DictionaryDraft(tuple(drafted), tuple(advice), dict(units or {}))


def _drafted(
    name: str, seen: ColumnSeen, values: "_Values", *, coded: bool
) -> DraftedColumn | None:
    if seen.dates or seen.missing == seen.rows:
        return None
    if seen.numeric and not coded:
        outside = tuple(own for own in seen.missing_codes if not values.contain(own))
        lower, upper = values.bounds([own for own in outside if not isinstance(own, str)])
        return DraftedColumn(name, lower=lower, upper=upper, missing_codes=outside)
    labels: Counter[str] = seen.labels or Counter()
    common = tuple(sorted(label for label, rows in labels.items() if rows >= FEW_ROWS))
    if not common:
        return None
    rare, codes = len(labels) - len(common), seen.missing_codes
    return DraftedColumn(name, levels=common, rare=rare, missing_codes=codes)


@dataclass
class _Values:
    """The range of a column's numbers so far, and some of them."""

    least: float = math.inf
    most: float = -math.inf
    kept: list[NDArray[np.float64]] = field(default_factory=list)
    count: int = 0

    def look(self, values: NDArray[np.float64]) -> None:
        finite = values[np.isfinite(values)]
        if not len(finite):
            return
        self.least = min(self.least, float(finite.min()))
        self.most = max(self.most, float(finite.max()))
        if self.count < _SAMPLE:
            self.kept.append(finite[: _SAMPLE - self.count])
            self.count += len(self.kept[-1])

    def contain(self, code: float | str) -> bool:
        """Return whether a missing code lies among the values."""
        return not isinstance(code, str) and self.least <= code <= self.most

    def bounds(self, codes: Sequence[float] = ()) -> tuple[float, float]:
        """Return bounds that contain every value, rounded outward to multiples of a step.

        codes: missing codes, none of them among the values, which the bounds do not contain: near
        one, the steps are smaller.
        """
        low, high = np.percentile(np.concatenate(self.kept), [5, 95])
        spread = float(high - low) or self.most - self.least or abs(self.most) or 1.0
        for halvings in range(_MOST_HALVINGS):
            step = _round_step(spread / 4 / 2**halvings)
            lower, upper = math.floor(self.least / step) * step, math.ceil(self.most / step) * step
            # A constant that is a multiple of the step would give an empty interval.
            ends = _plain(lower), _plain(upper if upper > lower else lower + step)
            if not any(ends[0] <= code <= ends[1] for code in codes):
                return ends
        return self.least, self.most


def _round_step(least: float) -> float:
    """Return the first of 1, 2 or 5 times a power of ten that is at least `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(times * power for times in (1.0, 2.0, 5.0, 10.0) if times * power >= least)


def _plain(value: float) -> float:
    """Return a number without the rounding of its last digits, such as 0.30000000000000004."""
    return float(f"{value:.12g}")
