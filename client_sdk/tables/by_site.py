"""Tables of several sites, as scikit-learn's users have them: a list, or rows with labels."""

from collections.abc import Mapping
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from client_sdk.tables.arrays import ArrayColumns
from client_sdk.tables.opening import open_table
from client_sdk.tables.source import TableSource


def open_tables(given: Any) -> list[TableSource]:
    """Return one open table per site."""
    if not isinstance(given, list | tuple) or not given:
        raise ValueError("pass a list of tables, one for each site")
    return [open_table(table) for table in given]


def is_table(given: Any) -> bool:
    """Return whether something is a table whose columns have names, rather than an array."""
    return isinstance(given, Mapping | str) or hasattr(given, "__fspath__") or _is_frame(given)


def columns_of(given: Any) -> dict[str, Any] | None:
    """Return the columns of a frame with names; None for everything else."""
    if not _is_frame(given):
        return None
    frame = nw.from_native(given, eager_only=True)
    return {name: frame[name].to_native() for name in frame.columns}


def divided(columns: Mapping[str, Any], sites: Any, rows: int) -> list[TableSource]:
    """Return one table per site, with the rows that have its label; without labels only one."""
    if sites is None:
        return [ArrayColumns(columns)]
    labels = np.asarray(sites)
    if labels.shape != (rows,):
        raise ValueError(f"sites must have one label for each of {rows} rows, not {labels.shape}")
    parted: list[TableSource] = []
    for label in np.unique(labels):
        (own,) = np.nonzero(labels == label)
        parted.append(ArrayColumns({name: _rows(cells, own) for name, cells in columns.items()}))
    return parted


def _is_frame(given: Any) -> bool:
    frame = nw.from_native(given, eager_only=True, pass_through=True)
    return isinstance(frame, nw.DataFrame) and all(isinstance(own, str) for own in frame.columns)


def _rows(cells: Any, own: NDArray[np.intp]) -> Any:
    if isinstance(cells, np.ndarray):
        return cells[own]
    return nw.from_native(cells, series_only=True)[own].to_native()
