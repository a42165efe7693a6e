"""What may be in a cell of a table, and what it means.

**Numbers**, for numeric columns and targets: integers and floats. NaN and None are missing. Text
and booleans are refused even where they could be converted: whether "7,125" is about seven or
about seven thousand is not for us to guess, and a yes or no belongs in a categorical column.

**Labels**, for categorical columns and patients: text as it is, capitals and spaces included. A
whole number is the label of its digits, so that a code 3 matches the level "3", also as 3.0, which
is what dataframes make of integers beside missing cells. Booleans are the labels "true" and
"false". None, NaN and empty text are missing.

Nothing here raises over a cell: an exception of Python's own would quote it.
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
    """A column as dataframes keep categories: its distinct cells, and each row's position.

    codes: (n,) positions in `distinct`, −1 where missing. A million rows of five labels are read
    as fast as five.
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
    """Take an array as it is and a list as an array of objects; 0 dimensions if it is neither.

    NumPy would make one type of a mixed list: text of [7, "x"], numbers of [True, 7.5].
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
    """Read (n,) cells as float64, NaN where missing, and say which are no numbers.

    >>> values, no_number = read_numbers(as_array([1, None, True, "4"]))
    >>> values.tolist(), no_number.tolist()
    ([1.0, nan, nan, nan], [False, False, True, True])
    """
    if isinstance(cells, Coded):
        values, no_number = read_numbers(cells.distinct)
        # Code −1 is the last position: a missing cell.
        return np.append(values, np.nan)[cells.codes], np.append(no_number, False)[cells.codes]
    if cells.dtype.kind in "iuf":
        with np.errstate(over="ignore"):  # a long double beyond float64 becomes infinite
            return cells.astype(np.float64), np.zeros(len(cells), np.bool_)
    objects = cells.dtype.kind == "O"
    numbers = [read_number(cell) if objects else None for cell in cells]
    no_number = np.array([number is None for number in numbers], np.bool_)
    return np.array(numbers, np.float64), no_number


def read_labels(cells: Cells) -> tuple[list[str | None], NDArray[np.int64]]:
    """Read cells as labels, "" where missing, None where a cell is no label.

    Returns labels and, for each of the n rows, the position of its own among them.

    >>> read_labels(as_array(["F", 3, 3.0, True, float("nan"), 0.5]))[0]
    ['F', '3', '3', 'true', '', None]
    """
    if isinstance(cells, Coded):
        labels, _ = read_labels(cells.distinct)
        return [*labels, ""], cells.codes % (len(labels) + 1)
    readable = cells.dtype.kind in "biufUTO"
    return [read_label(cell) if readable else None for cell in cells], np.arange(len(cells))


def are_dates(cells: Cells) -> bool:
    """Whether these are points or spans of time, which are neither numbers nor labels."""
    return (cells.distinct if isinstance(cells, Coded) else cells).dtype.kind in "mM"


def read_number(cell: object) -> float | None:
    """Read one cell as a number: NaN where missing, None where it is none."""
    if cell is None:
        return math.nan
    if isinstance(cell, bool) or not isinstance(cell, Real):
        return None
    try:
        return float(cell)
    except OverflowError:  # an integer beyond float64
        return math.inf


def read_label(cell: object) -> str | None:
    """Read one cell as a label: "" where missing, None where it is none."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return str(cell)
    if isinstance(cell, bool | np.bool_):
        return "true" if cell else "false"
    if isinstance(cell, Integral):
        # Python refuses to write out thousands of digits, which are nobody's code either.
        return str(int(cell)) if abs(int(cell)) < 10**_MOST_DIGITS else None
    if isinstance(cell, Real):
        number = float(cell)
        if math.isnan(number):
            return ""
        return str(int(number)) if number.is_integer() else None
    return None
