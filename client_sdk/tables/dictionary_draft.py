"""What a table shows of columns for a data dictionary: rounded bounds, and rows per label.

Bounds contain every value of the table, so that no session can make the table's extreme rows decide
whether it fits. They never are these values: each bound is rounded outward to a multiple of a step,
the first of 1, 2 or 5 times a power of ten that is at least a quarter of the distance between the
5th and the 95th percentile, and to the next one if an extreme value is such a multiple itself. Only
0 stays 0: that nothing is negative belongs to a column and not to a patient. Cells with a missing
code of the schema are missing; where a bound would contain such a code, the step is halved.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from client_sdk.tables.opening import open_table
from kernels.tables.arrow_cells import as_labels, as_numbers
from kernels.tables.cells import read_labels, read_numbers

_SAMPLE = 50_000
"""Maximum number of values per column from which percentiles are computed."""
_MOST_HALVINGS = 20
"""How often a step is halved so that bounds do not contain a missing code."""


@dataclass(frozen=True)
class ColumnShown:
    """Rounded bounds of a column's numbers, or how many rows have each of its labels."""

    bounds: tuple[float, float] | None = None
    labels: Mapping[str, int] = field(default_factory=dict)


def look(
    data: object,
    *,
    numbers: Collection[str],
    labels: Collection[str],
    missing_codes: Mapping[str, tuple[float | str, ...]],
) -> dict[str, ColumnShown]:
    """Read all rows of a table, and return what it shows of those columns that it has.

    missing_codes: cells that mean "missing", by column.
    """
    source = open_table(data)
    values = {name: _Values() for name in source.columns if name in numbers}
    counts = {name: Counter[str]() for name in source.columns if name in labels}
    for batch in source.batches([*values, *counts]) if values or counts else ():
        for name, column in batch.items():
            if name in values:
                codes = missing_codes.get(name, ())
                cells = as_numbers(column, text=source.numbers_are_text, missing_codes=codes)
                values[name].look(read_numbers(cells, codes)[0])
            else:
                texts, own = read_labels(as_labels(column))
                rows = np.bincount(own, minlength=len(texts)).tolist()
                for text, count in zip(texts, rows, strict=True):
                    if text and text not in missing_codes.get(name, ()):
                        counts[name][text] += count
    shown = {
        name: ColumnShown(
            bounds=own.bounds(
                [code for code in missing_codes.get(name, ()) if not isinstance(code, str)]
            )
        )
        for name, own in values.items()
    }
    return shown | {name: ColumnShown(labels=own) for name, own in counts.items()}


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

    def bounds(self, codes: Sequence[float] = ()) -> tuple[float, float] | None:
        """Return bounds around every value; None if there is no value.

        codes: missing codes, which the bounds do not contain, unless they lie among the values.
        """
        if not self.kept:
            return None
        low, high = np.percentile(np.concatenate(self.kept), [5, 95])
        spread = float(high - low) or self.most - self.least or abs(self.most) or 1.0
        apart = [code for code in codes if not self.least <= code <= self.most]
        ends = self.least, self.most
        for halvings in range(_MOST_HALVINGS):
            step = _round_step(spread / 4 / 2**halvings)
            ends = -_outward(-self.least, step), _outward(self.most, step)
            if not any(ends[0] <= code <= ends[1] for code in apart):
                break
        return ends


def _outward(value: float, step: float) -> float:
    """Return the next multiple of a step above a value; 0 for 0.

    >>> _outward(90.0, 20.0), _outward(100.0, 20.0), _outward(0.0, 20.0), _outward(-20.0, 20.0)
    (100.0, 120.0, 0.0, 0.0)
    """
    if value == 0:
        return 0.0
    rounded = _plain(math.ceil(value / step) * step)
    # A bound that the rounding of its digits has put below the value must not exclude it either.
    return rounded if rounded > value else _plain((math.floor(value / step) + 1) * step)


def _round_step(least: float) -> float:
    """Return the first of 1, 2 or 5 times a power of ten that is at least `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(times * power for times in (1.0, 2.0, 5.0, 10.0) if times * power >= least)


def _plain(value: float) -> float:
    """Return a number without the rounding of its last digits, such as 0.30000000000000004."""
    return float(f"{value:.12g}") + 0.0
