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
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_DIGITS = 100


def as_array(values: object) -> NDArray[Any]:
    """Take an array as it is and a list as an array of objects; 0 dimensions if it is neither.

    NumPy would make one type of a mixed list: text of [7, "x"], numbers of [True, 7.5].
    """
    if isinstance(values, np.ma.MaskedArray):
        cells = np.array(values.data, dtype=object)
        cells[np.ma.getmaskarray(values)] = None
        return cells
    if hasattr(values, "__array__"):
        return np.asarray(values)
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return np.fromiter(values, dtype=object, count=len(values))
    return np.array(None)


def read_numbers(cells: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Read (n,) cells as float64, NaN where missing, and say which are no numbers.

    >>> values, no_number = read_numbers(as_array([1, None, True, "4"]))
    >>> values.tolist(), no_number.tolist()
    ([1.0, nan, nan, nan], [False, False, True, True])
    """
    if cells.dtype.kind in "iuf":
        with np.errstate(over="ignore"):  # a long double beyond float64 becomes infinite
            return cells.astype(np.float64), np.zeros(len(cells), np.bool_)
    objects = cells.dtype.kind == "O"
    numbers = [_number(cell) if objects else None for cell in cells]
    no_number = np.array([number is None for number in numbers], np.bool_)
    return np.array(numbers, np.float64), no_number


def read_labels(cells: NDArray[Any]) -> list[str | None]:
    """Read (n,) cells as labels, "" where missing, None where a cell is no label.

    >>> read_labels(as_array(["F", 3, 3.0, True, float("nan"), 0.5]))
    ['F', '3', '3', 'true', '', None]
    """
    readable = cells.dtype.kind in "biufUTO"
    return [_label(cell) if readable else None for cell in cells]


def _number(cell: object) -> float | None:
    if cell is None:
        return math.nan
    if isinstance(cell, bool) or not isinstance(cell, Real):
        return None
    try:
        return float(cell)
    except OverflowError:  # an integer beyond float64
        return math.inf


def _label(cell: object) -> str | None:
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
