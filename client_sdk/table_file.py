"""The columns of a CSV or Parquet file that a model needs, some rows at a time.

Text in a CSV is a number only where the schema wants one. pyarrow's own complaints quote what is
in a cell or a line, so they are not passed on.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pyarrow import compute, csv, parquet

from client_sdk.errors import TableNotRead
from kernels.errors import EmptyTable, TableRefused
from kernels.schema import Schema

BATCH_ROWS = 65_536
Columns = dict[str, NDArray[Any]]

_MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]


def batches(path: Path, schema: Schema) -> Iterator[Columns]:
    """Yield the schema's features from a file; columns that are not there are left out."""
    readers = {".csv": _csv, ".parquet": _parquet}
    read = readers.get(path.suffix.lower())
    if read is None:
        raise TableNotRead(f"{path.name} is neither .csv nor .parquet: convert it to one of them")
    any_rows = False
    try:
        for columns in read(path, schema):
            any_rows = True
            yield columns
    except OSError as problem:
        reason = os.strerror(problem.errno) if problem.errno else "it is damaged"
        raise TableNotRead(f"{path} cannot be read: {reason}") from None
    except pyarrow.ArrowException as problem:
        raise TableNotRead(
            f"{path} is not a {path.suffix[1:]} file throughout ({type(problem).__name__}): "
            "check its separators, quotes and number of columns"
        ) from None
    if not any_rows:
        raise TableRefused([EmptyTable("the table has no rows; pass at least one")])


def _parquet(path: Path, schema: Schema) -> Iterator[Columns]:
    with parquet.ParquetFile(path) as file:
        names = _wanted(file.schema_arrow.names, schema)
        for batch in file.iter_batches(BATCH_ROWS, columns=names):
            yield {
                name: cells.to_numpy(zero_copy_only=False)
                for name, cells in zip(names, map(_decoded, batch.columns), strict=True)
            }


def _csv(path: Path, schema: Schema) -> Iterator[Columns]:
    parse = csv.ParseOptions(newlines_in_values=True)
    with csv.open_csv(path, parse_options=parse) as reader:
        names = _wanted(reader.schema.names, schema)
    numeric = {column.name for column in schema.numeric}
    if not names:  # to pyarrow no columns are all columns
        yield {}
        return
    as_text = csv.ConvertOptions(
        include_columns=names, column_types=dict.fromkeys(names, pyarrow.string())
    )
    with csv.open_csv(path, parse_options=parse, convert_options=as_text) as reader:
        for batch in reader:
            yield {
                name: _numbers(cells) if name in numeric else cells.to_numpy(zero_copy_only=False)
                for name, cells in zip(names, batch.columns, strict=True)
            }


def _wanted(present: list[str], schema: Schema) -> list[str]:
    """Return the schema's features that a file has, refused if it has one of them twice."""
    names = [column.name for column in schema.features if column.name in present]
    for name in names:
        if present.count(name) > 1:
            raise TableNotRead(f"the file has the column {name!r} more than once: keep one of them")
    return names


def _decoded(cells: Any) -> Any:
    is_dictionary = pyarrow.types.is_dictionary(cells.type)
    return cells.dictionary_decode() if is_dictionary else cells


def _numbers(cells: Any) -> NDArray[Any]:
    """Read text as numbers; cells that are none stay text, which the schema's reader reports."""
    trimmed = compute.utf8_trim_whitespace(cells)
    missing = compute.is_in(trimmed, value_set=pyarrow.array(_MISSING))
    text = compute.if_else(missing, None, trimmed)
    try:
        numbers: NDArray[Any] = text.cast(pyarrow.float64()).to_numpy(zero_copy_only=False)
    except pyarrow.ArrowInvalid:
        return np.array([_number(cell) for cell in text.to_pylist()], dtype=object)
    return numbers


def _number(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
