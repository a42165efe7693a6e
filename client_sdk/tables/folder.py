"""A folder of CSV or Parquet files as one table, in the order of their names."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from client_sdk.errors import DifferentColumns, EmptySource
from client_sdk.tables.source import TableSource
from kernels.tables.arrow_cells import Column


class Folder:
    """Files with the same columns, read one after the other."""

    def __init__(self, path: Path, files: Sequence[TableSource]) -> None:
        self.name = str(path)
        if not files:
            raise EmptySource(
                f"{self.name} contains no CSV or Parquet file: put the table there, or correct the "
                "path"
            )
        self._files = tuple(files)
        self.columns = files[0].columns
        self.numbers_are_text = files[0].numbers_are_text
        for file in files:
            if {*file.columns} != {*self.columns}:
                differ = sorted({*file.columns} ^ {*self.columns})
                raise DifferentColumns(
                    f"{file.name} and {files[0].name} must have the same columns to be one table; "
                    f"only one of them has {', '.join(map(repr, differ))}"
                )
            if file.numbers_are_text != self.numbers_are_text:
                raise DifferentColumns(
                    f"{self.name} has both CSV and Parquet files: use one format for a table"
                )

    def batches(self, columns: Sequence[str]) -> Iterator[Mapping[str, Column]]:
        """Yield the pieces of each file in turn."""
        for file in self._files:
            yield from file.batches(columns)
