"""The cells that a table may contain, and what they mean.

**Numbers**, for numeric columns and targets: integers and floats. NaN and None are missing. Text
and booleans are refused even if they could be converted: "7,125" can mean about seven or about
seven thousand, and we do not guess; a yes or no belongs in a categorical column.

**Labels**, for categorical columns and patients: text with its capitals and spaces. A number is the
label of its digits: 3 and 3.0 are "3", and 0.5 is "0.5". Booleans are the labels "true" and
"false". None, NaN and empty text are missing.

A cell means the same in every format. Dataframes convert integers to floats in columns with missing
cells, and write them to CSV as 3.0; booleans become True there. So the *text* that software writes
for a number, a boolean or NaN is read as that number, boolean or NaN, wherever it is, and a
schema's levels are compared in the same way (`kernels.tables.labels`). Other text is unchanged:
007 stays 007, and 1.10 stays 1.10.

**Missing codes** of a column (`missing_codes` in a schema) are missing cells, too.

Nothing here raises because of a cell: Python's own exceptions would quote the cell.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.tables.labels import canonical_label, label_of_float

_MOST_DIGITS = 100

Codes = Collection[float | str]
"""Cells of one column that mean "missing": of a column of labels, canonical labels."""


@dataclass(frozen=True, eq=False, repr=False)
class Coded:
    """A column in the form in which dataframes store categories: distinct cells and codes.

    codes: (n,) positions in `distinct`, −1 where missing. Reading a million rows with five distinct
    labels is as fast as reading five.
    """

    distinct: NDArray[Any]
    codes: NDArray[np.int64]

    @property
    def ndim(self) -> int:
        """Return 1, as an array would."""
        return self.codes.ndim

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[object]:
        return (None if code < 0 else self.distinct[code] for code in self.codes)

    def __getitem__(self, rows: slice) -> "Coded":
        return Coded(self.distinct, self.codes[rows])


Cells = NDArray[Any] | Coded


def as_array(values: object) -> Cells:
    """Return an array unchanged, a list as an array of objects, anything else as 0-dimensional.

    NumPy would convert a mixed list to one type: [7, "x"] to text, [True, 7.5] to numbers.
    """
    if isinstance(values, Coded):
        return values
    if isinstance(values, np.ma.MaskedArray):
        cells = np.array(values.data, dtype=object)
        cells[np.ma.getmaskarray(values)] = None
        return cells
    if hasattr(values, "__array__"):
        return np.asarray(values)
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return np.fromiter(values, dtype=object, count=len(values))
    return np.array(None)


def read_numbers(
    cells: Cells, missing_codes: Codes = ()
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return (n,) cells as float64, NaN where missing, and a mask of those that are not numbers.

    >>> values, no_number = read_numbers(as_array([1, None, True, "4", -9, "?"]), (-9.0, "?"))
    >>> values.tolist(), no_number.tolist()
    ([1.0, nan, nan, nan, nan, nan], [False, False, True, True, False, False])
    """
    if isinstance(cells, Coded):
        values, no_number = read_numbers(cells.distinct, missing_codes)
        # Code −1 selects the last position, which is appended for missing cells.
        return np.append(values, np.nan)[cells.codes], np.append(no_number, False)[cells.codes]
    if cells.dtype.kind in "iuf":
        with np.errstate(over="ignore"):  # a long double beyond float64 becomes infinite
            values = cells.astype(np.float64)
        if missing_codes:
            codes = [code for code in missing_codes if not isinstance(code, str)]
            values[np.isin(values, codes)] = np.nan
        return values, np.zeros(len(cells), np.bool_)
    readable = cells.dtype.kind in "OUT"
    numbers = [read_number(cell, missing_codes) if readable else None for cell in cells]
    no_number = np.array([number is None for number in numbers], np.bool_)
    return np.array(numbers, np.float64), no_number


def read_labels(
    cells: Cells, missing_codes: Codes = ()
) -> tuple[list[str | None], NDArray[np.int64]]:
    """Return labels, "" for a missing cell and None for a cell that is not a label, and positions.

    The positions are those of the n rows' labels in the returned list.

    >>> read_labels(as_array(["F", 3, 3.0, "3.0", True, float("nan"), 0.5, [7]]))[0]
    ['F', '3', '3', '3', 'true', '', '0.5', None]
    """
    if isinstance(cells, Coded):
        labels, _ = read_labels(cells.distinct, missing_codes)
        return [*labels, ""], cells.codes % (len(labels) + 1)
    readable = cells.dtype.kind in "biufUTO"
    labels = [read_label(cell, missing_codes) if readable else None for cell in cells]
    return labels, np.arange(len(cells))


def are_dates(cells: Cells) -> bool:
    """Return whether cells are dates, times or durations, which are neither numbers nor labels."""
    return (cells.distinct if isinstance(cells, Coded) else cells).dtype.kind in "mM"


def read_number(cell: object, missing_codes: Codes = ()) -> float | None:
    """Return a cell as a number: NaN if it is missing, None if it is not a number."""
    if cell is None:
        return math.nan
    if isinstance(cell, str):
        return math.nan if missing_codes and cell.strip() in missing_codes else None
    if isinstance(cell, bool) or not isinstance(cell, Real):
        return None
    try:
        number = float(cell)
    except OverflowError:  # an integer beyond float64
        return math.inf
    return math.nan if missing_codes and number in missing_codes else number


def read_label(cell: object, missing_codes: Codes = ()) -> str | None:
    """Return a cell as a label: "" if it is missing, None if it is not a label."""
    label = _label(cell)
    return "" if missing_codes and label in missing_codes else label


def _label(cell: object) -> str | None:
    if cell is None:
        return ""
    if isinstance(cell, str):
        return canonical_label(str(cell))
    if isinstance(cell, bool | np.bool_):
        return "true" if cell else "false"
    if isinstance(cell, Integral):
        # Python refuses to print integers of thousands of digits, and no code is that long.
        return str(int(cell)) if abs(int(cell)) < 10**_MOST_DIGITS else None
    if isinstance(cell, Real):
        return _of_single(cell) if type(cell) in _SINGLE else label_of_float(float(cell))
    return None


_SINGLE: tuple[type[object], ...] = (np.float16, np.float32)


def _of_single(number: Any) -> str:
    """Return the shortest digits at the number's own precision."""
    if not np.isfinite(number):
        return label_of_float(float(number))
    return np.format_float_positional(number + 0, trim="-")  # −0 is 0
