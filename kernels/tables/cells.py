"""The cells that a table may contain, and what they mean.

**Numbers**, for numeric columns and targets: integers and floats. NaN and None are missing. Text
and booleans are refused even if they could be converted: "7,125" can mean about seven or about
seven thousand, and we do not guess; a yes or no belongs in a categorical column.

**Labels**, for categorical columns and patients: text, unchanged, with its capitals and spaces. An
integer is read as the label of its digits, so that a code 3 matches the level "3". This includes
3.0, because dataframes convert integers to floats in columns with missing cells. Booleans are the
labels "true" and "false". None, NaN and empty text are missing.

Nothing here raises because of a cell: Python's own exceptions would quote the cell.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_DIGITS = 100


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


def read_numbers(cells: Cells) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return (n,) cells as float64, NaN where missing, and a mask of those that are not numbers.

    >>> values, no_number = read_numbers(as_array([1, None, True, "4"]))
    >>> values.tolist(), no_number.tolist()
    ([1.0, nan, nan, nan], [False, False, True, True])
    """
    if isinstance(cells, Coded):
        values, no_number = read_numbers(cells.distinct)
        # Code −1 selects the last position, which is appended for missing cells.
        return np.append(values, np.nan)[cells.codes], np.append(no_number, False)[cells.codes]
    if cells.dtype.kind in "iuf":
        with np.errstate(over="ignore"):  # a long double beyond float64 becomes infinite
            return cells.astype(np.float64), np.zeros(len(cells), np.bool_)
    objects = cells.dtype.kind == "O"
    numbers = [read_number(cell) if objects else None for cell in cells]
    no_number = np.array([number is None for number in numbers], np.bool_)
    return np.array(numbers, np.float64), no_number


def read_labels(cells: Cells) -> tuple[list[str | None], NDArray[np.int64]]:
    """Return labels, "" for a missing cell and None for a cell that is not a label, and positions.

    The positions are those of the n rows' labels in the returned list.

    >>> read_labels(as_array(["F", 3, 3.0, True, float("nan"), 0.5]))[0]
    ['F', '3', '3', 'true', '', None]
    """
    if isinstance(cells, Coded):
        labels, _ = read_labels(cells.distinct)
        return [*labels, ""], cells.codes % (len(labels) + 1)
    readable = cells.dtype.kind in "biufUTO"
    return [read_label(cell) if readable else None for cell in cells], np.arange(len(cells))


def are_dates(cells: Cells) -> bool:
    """Return whether cells are dates, times or durations, which are neither numbers nor labels."""
    return (cells.distinct if isinstance(cells, Coded) else cells).dtype.kind in "mM"


def read_number(cell: object) -> float | None:
    """Return a cell as a number: NaN if it is missing, None if it is not a number."""
    if cell is None:
        return math.nan
    if isinstance(cell, bool) or not isinstance(cell, Real):
        return None
    try:
        return float(cell)
    except OverflowError:  # an integer beyond float64
        return math.inf


def read_label(cell: object) -> str | None:
    """Return a cell as a label: "" if it is missing, None if it is not a label."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return str(cell)
    if isinstance(cell, bool | np.bool_):
        return "true" if cell else "false"
    if isinstance(cell, Integral):
        # Python refuses to print integers of thousands of digits, and no code is that long.
        return str(int(cell)) if abs(int(cell)) < 10**_MOST_DIGITS else None
    if isinstance(cell, Real):
        number = float(cell)
        if math.isnan(number):
            return ""
        return str(int(number)) if number.is_integer() else None
    return None
