"""Dataframes: pandas, polars, pyarrow, through narwhals."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from client_sdk.tables.arrays import arrow_of
from client_sdk.tables.source import BATCH_ROWS
from kernels.tables.arrow_cells import Column

if TYPE_CHECKING:
    import narwhals as nw


class Frame:
    """A dataframe in memory, converted to arrow slice by slice, never as a whole."""

    numbers_are_text = False
    name = "the table"

    def __init__(self, frame: "nw.DataFrame[Any]") -> None:
        self._frame = frame
        self.columns = tuple(name for name in frame.columns if isinstance(name, str))

    def batches(self, columns: Sequence[str]) -> Iterator[Mapping[str, Column]]:
        """Yield slices."""
        rows = len(self._frame)
        for first in range(0, max(rows, 1), BATCH_ROWS):
            piece = self._frame[first : first + BATCH_ROWS]
            yield {name: arrow_of(piece[name]) for name in columns}
