"""Arrow columns converted to the cells that `kernels.tables.cells` reads; nulls become missing.

Numbers: integers, floats and decimals as float64. Labels: distinct cells and codes (`Coded`), from
any type that has labels, including dictionaries (categories). Dates and times keep a type by which
they are recognised and refused; lists, structures and binary are neither numbers nor labels.

In CSV every cell is text. The text of a numeric column is read as a number, with a decimal point
and without thousands separators; spaces around it are ignored, and the texts in MISSING are missing
cells, as are the column's own missing codes. The text of a categorical column is its label: a code
007 stays 007, and NA is a label.

Arrow's `to_numpy`, `array` and `scalar` import pandas wherever it is installed, which takes longer
than reading most tables. What is read from a file is converted without them.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kernels.tables.cells import Cells, Coded, Codes, as_array

Column: TypeAlias = Cells | pa.Array
"""Cells as `kernels.tables.cells` reads them, or an Arrow array to convert to them."""

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "Null", "null", "None")

_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_NO_NUMBER = False
"""Replaces any text that is not a number: the text is not needed, and must not leak."""


def as_numbers(column: Column, *, text: bool = False, missing_codes: Codes = ()) -> Cells:
    """Return the cells of a numeric feature or a target.

    text: numbers are written as text, and missing codes that are texts are read as missing here.
    """
    if not isinstance(column, pa.Array):
        return column
    if pa.types.is_dictionary(column.type):
        if _is_text(column.type.value_type) and not text:
            return as_labels(column)  # reads each distinct text once
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if pa.types.is_decimal(kind):
        # By its digits, as from CSV: Arrow's own conversion is not always rounded correctly.
        return _values(pc.cast(pc.cast(column, pa.string()), pa.float64()), null=np.nan)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _values(pc.cast(column, pa.float64(), safe=False), null=np.nan)
    if _is_text(kind):
        return _parsed(column, missing_codes) if text else _to_numpy(column)
    if pa.types.is_boolean(kind):
        return _to_numpy(column)
    return _unreadable(column)


def as_labels(column: Column) -> Cells:
    """Return the cells of a categorical feature or of the patient column."""
    if not isinstance(column, pa.Array):
        return column
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_null(kind):
        return Coded(np.empty(0, object), np.full(len(column), -1))
    decimals, floats = pa.types.is_decimal(kind), pa.types.is_floating(kind)
    others = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or _is_text(kind)
    if not (decimals or floats or others):
        return _unreadable(column)
    if not pa.types.is_dictionary(column.type):
        column = pc.dictionary_encode(column)
    codes = _values(column.indices.cast(pa.int64()), null=-1)
    distinct = column.dictionary.to_pylist()
    if decimals:
        distinct = [None if each is None else f"{each:f}" for each in distinct]
    elif floats:
        # The digits of a float are the shortest at its own precision, so its type must be kept.
        own = kind.to_pandas_dtype()
        distinct = [None if each is None else own(each) for each in distinct]
    return Coded(as_array_of(distinct), codes)


def as_array_of(cells: list[object]) -> NDArray[np.object_]:
    """Return cells as an array of objects."""
    return np.fromiter(cells, dtype=object, count=len(cells))


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _to_numpy(column: pa.Array) -> NDArray[np.generic]:
    values: NDArray[np.generic] = column.to_numpy(zero_copy_only=False)
    return values


def _values(column: pa.Array, *, null: float) -> NDArray[Any]:
    """Return a column of integers or floats as an array, with `null` where it has none."""
    if column.null_count:
        nulls = np.full(len(column), null, column.type.to_pandas_dtype())
        filled = pa.Array.from_buffers(column.type, len(column), [None, pa.py_buffer(nulls)])
        column = pc.coalesce(column, filled)
    return np.from_dlpack(column)


def _texts(words: Sequence[str]) -> pa.Array:
    """Return texts as a column."""
    data = [word.encode() for word in words]
    ends = np.cumsum([0, *map(len, data)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(data), pa.py_buffer(ends), pa.py_buffer(b"".join(data)))


def _unreadable(column: pa.Array) -> NDArray[np.generic]:
    """Return placeholder cells whose type determines why they are refused."""
    return np.zeros(len(column), "datetime64[s]" if pa.types.is_temporal(column.type) else "V1")


def _parsed(column: pa.Array, missing_codes: Codes) -> Cells:
    trimmed = pc.utf8_trim_whitespace(column.cast(pa.string()))
    known = [*MISSING, *(code for code in missing_codes if isinstance(code, str))]
    nothing = pa.nulls(len(column), pa.string())
    trimmed = pc.if_else(pc.is_in(trimmed, value_set=_texts(known)), nothing, trimmed)
    try:
        return _values(pc.cast(trimmed, pa.float64()), null=np.nan)
    except pa.ArrowInvalid:  # some cells are not numbers; the exception quotes one
        are_numbers = pc.match_substring_regex(trimmed, _NUMBER)
        numbers = pc.if_else(are_numbers, trimmed, nothing)
        cells = _values(pc.cast(numbers, pa.float64()), null=np.nan).astype(object)
        cells[_values(pc.invert(are_numbers).cast(pa.int8()), null=0) == 1] = _NO_NUMBER
        return as_array(cells)
