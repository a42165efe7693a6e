"""Columns in memory: a mapping of columns, or a numpy array with names."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from client_sdk.errors import NotATable
from client_sdk.tables.source import BATCH_ROWS, check_names
from kernels.tables.arrow_cells import Column, as_array_of
from kernels.tables.cells import as_array

_NAMES_OF_MISSING = frozenset({"NAType", "NaTType"})


class ArrayColumns:
    """A table as a mapping of columns: lists, or numpy, pandas, polars or arrow columns."""

    numbers_are_text = False

    def __init__(self, columns: Mapping[Any, object], name: str = "the table") -> None:
        self.name = name
        # Only text can name a column of a schema.
        self._columns = {each: cells for each, cells in columns.items() if isinstance(each, str)}
        self.columns = tuple(self._columns)

    def batches(self, columns: Sequence[str]) -> Iterator[Mapping[str, Column]]:
        """Yield slices, or everything at once if lengths differ: the schema check reports that."""
        whole = {name: _column(self._columns[name]) for name in columns}
        lengths = {_length(column) for column in whole.values()}
        if len(lengths) != 1 or max(lengths) <= BATCH_ROWS:
            yield whole
            return
        for first in range(0, max(lengths), BATCH_ROWS):
            piece = slice(first, first + BATCH_ROWS)
            yield {name: column[piece] for name, column in whole.items()}


def of_array(array: NDArray[Any], names: Sequence[str] | None = None) -> ArrayColumns:
    """Return a structured array, or a matrix (rows, columns) with column names, as a table."""
    if names is None:
        if array.dtype.names is None:
            raise NotATable(
                "an array without column names is not a table: pass (array, names), or a "
                "structured array"
            )
        return ArrayColumns({name: array[name] for name in array.dtype.names}, "the array")
    if array.ndim != 2 or array.shape[1] != len(names):
        raise NotATable(
            f"an array of shape {array.shape} does not match {len(names)} column names: pass an "
            "array (rows, columns) and one name per column"
        )
    check_names("the array", names)
    return ArrayColumns(dict(zip(names, array.T, strict=True)), "the array")


def arrow_of(series: Any) -> Column:
    """Return a narwhals series as arrow, or as objects if its cells have mixed types."""
    try:
        return combined(series.to_arrow())
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError):
        missing = series.is_null().to_list()
        cells = zip(series.to_list(), missing, strict=True)
        return as_array_of([None if is_missing else cell for cell, is_missing in cells])


def combined(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, with its categories in one list."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return column.combine_chunks()


def _length(column: Column) -> int:
    return len(column) if isinstance(column, pa.Array) or column.ndim == 1 else -1


def _column(values: object) -> Column:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return combined(values)
    import narwhals as nw  # a table in a file does not wait for it

    series = nw.from_native(values, series_only=True, pass_through=True)
    if isinstance(series, nw.Series):
        return arrow_of(series)
    cells = as_array(values)
    if isinstance(cells, np.ndarray) and cells.dtype == object and cells.ndim == 1:
        # pandas' markers for missing cells, in plain lists
        return as_array_of(
            [None if type(cell).__name__ in _NAMES_OF_MISSING else cell for cell in cells]
        )
    return cells
