"""A Parquet file, streamed by row groups."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from client_sdk.errors import UnreadableFile
from client_sdk.tables.source import BATCH_ROWS, check_names
from kernels.tables.arrow_cells import Column

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_BUFFER = 1 << 20


class ParquetFile:
    """A Parquet file; only the requested columns are read, one piece at a time."""

    numbers_are_text = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)
        with self._opened() as file:
            names = file.schema_arrow.names
        check_names(self.name, names)
        self.columns = tuple(names)

    def batches(self, columns: Sequence[str]) -> Iterator[Mapping[str, Column]]:
        """Yield pieces of at most BATCH_ROWS rows, row group by row group."""
        with self._opened() as file:
            for group in range(file.num_row_groups):
                batches = file.iter_batches(
                    BATCH_ROWS, row_groups=[group], columns=[*columns], use_threads=False
                )
                while (batch := self._next(batches, group)) is not None:
                    yield {name: batch.column(name) for name in columns}

    def _opened(self) -> "pq.ParquetFile":
        import pyarrow.parquet as pq  # a CSV file does not wait for it

        try:
            return pq.ParquetFile(self._path, buffer_size=_BUFFER)
        except PermissionError:
            raise UnreadableFile(
                f"{self.name}: permission denied: give this user permission to read it"
            ) from None
        except (pa.ArrowException, OSError):
            raise UnreadableFile(
                f"{self.name} is not a Parquet file, or is damaged: export it again"
            ) from None

    def _next(self, batches: Iterator[pa.RecordBatch], group: int) -> pa.RecordBatch | None:
        try:
            return next(batches, None)
        except (pa.ArrowException, OSError):
            # Arrow's own message may quote cells.
            raise UnreadableFile(
                f"{self.name}: row group {group} (counted from 0) is damaged: export it again"
            ) from None
