"""What every kind of table is here: named columns that can be read again and again, in pieces."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from client_sdk.errors import DuplicateColumns
from kernels.tables.arrow_cells import Column

BATCH_ROWS = 65_536
"""Rows of a piece at most; a piece of twenty numeric columns is then 10 MB."""


class TableSource(Protocol):
    """A table that is somewhere."""

    name: str
    """What to call it in messages."""
    columns: tuple[str, ...]
    numbers_are_text: bool
    """Whether a number is written as text, as in CSV; elsewhere text is text."""

    def batches(self, columns: Sequence[str]) -> Iterator[Mapping[str, Column]]:
        """Yield these columns of consecutive rows; from the beginning at every call."""


def check_names(where: str, names: Sequence[str]) -> None:
    """Refuse two columns of one name: nobody could say which was meant."""
    repeated = [repr(name) for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DuplicateColumns(
            f"{where} has several columns called {', '.join(repeated)}: rename or remove them"
        )
