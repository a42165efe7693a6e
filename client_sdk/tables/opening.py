"""Opening a table: from an object in memory, or from a path."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from client_sdk.errors import FileNotThere, NotATable, UnknownSuffix
from client_sdk.tables.arrays import ArrayColumns, of_array
from client_sdk.tables.csv_file import CsvFile
from client_sdk.tables.folder import Folder
from client_sdk.tables.frames import Frame
from client_sdk.tables.parquet_file import ParquetFile
from client_sdk.tables.source import TableSource, check_names

_KINDS: dict[str, Callable[[Path], TableSource]] = {
    ".csv": CsvFile,
    ".csv.gz": CsvFile,
    ".parquet": ParquetFile,
    ".pq": ParquetFile,
}

_ACCEPTED = (
    "a pandas, polars or pyarrow table, a mapping of columns, a structured numpy array, "
    "(array, names), or the path of a CSV (also .csv.gz) or Parquet file or of a folder of them"
)


def open_table(data: object) -> TableSource:
    """Return a table as a source; refuse what is not a table. No row is read yet."""
    if isinstance(data, ArrayColumns | CsvFile | Folder | Frame | ParquetFile):
        return data
    if isinstance(data, str | os.PathLike):
        return _open_path(Path(data))
    if isinstance(data, np.ndarray):
        return of_array(data)
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], np.ndarray):
        names = [name for name in data[1] if isinstance(name, str)]
        return of_array(data[0], names)
    if isinstance(data, Mapping):
        return ArrayColumns(data)
    return _open_frame(data)


def _open_frame(data: Any) -> TableSource:
    import narwhals as nw  # a table in a file does not wait for it
    from narwhals.exceptions import DuplicateError

    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    try:
        return Frame(nw.from_native(data, eager_only=True))
    except DuplicateError:
        names = data.column_names if isinstance(data, pa.Table) else data.columns
        check_names("the table", [*map(str, names)])
        raise
    except TypeError:
        raise NotATable(
            f"{type(data).__name__} is not a supported table: pass {_ACCEPTED}; collect a lazy "
            "frame first"
        ) from None


def _open_path(path: Path) -> TableSource:
    if path.is_dir():
        # Such names are leftovers of tools; any other file may be a part of the table.
        inside = sorted(each for each in path.iterdir() if not each.name.startswith((".", "_")))
        return Folder(path, [_open_file(each) for each in inside])
    return _open_file(path)


def _open_file(path: Path) -> TableSource:
    if not path.exists():
        raise FileNotThere(f"{path} does not exist: correct the path")
    name = path.name.lower()
    kind = next((own for suffix, own in _KINDS.items() if name.endswith(suffix)), None)
    if kind is None or not path.is_file():
        raise UnknownSuffix(
            f"the name of {path} must end in {', '.join(_KINDS)}: rename the file, or move it out "
            "of the folder"
        )
    return kind(path)
