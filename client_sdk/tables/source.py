"""The interface of every table: named columns that can be read repeatedly, in pieces."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from client_sdk.errors import DuplicateColumns
from kernels.tables.arrow_cells import Column

BATCH_ROWS = 65_536
"""Maximum number of rows in a piece; twenty numeric columns are then 10 MB."""


class TableSource(Protocol):
    """A table in memory or in files."""

    name: str
    """Its name in messages."""
    columns: tuple[str, ...]
    numbers_are_text: bool
    """Whether numbers are written as text, as in CSV; otherwise text is never a number."""

    def batches(self, columns: Sequence[str]) -> Iterator[Mapping[str, Column]]:
        """Yield these columns for consecutive rows, from the first row at every call."""


def check_names(where: str, names: Sequence[str]) -> None:
    """Refuse two columns with the same name, because the name would be ambiguous."""
    repeated = [repr(name) for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DuplicateColumns(
            f"{where} has several columns named {', '.join(repeated)}: rename or remove them"
        )
