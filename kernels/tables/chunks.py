"""Tables processed in chunks of rows: the size of a chunk, not of the table, bounds the memory."""

from collections.abc import Iterator

from kernels.errors import WrongShape

CHUNK_ROWS = 8192


def chunks(rows: int, chunk_rows: int) -> Iterator[slice]:
    """Yield consecutive slices of at most `chunk_rows` rows that cover `rows` rows.

    >>> list(chunks(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    if chunk_rows < 1:
        raise WrongShape(f"chunk_rows must be at least 1, not {chunk_rows}")
    for first in range(0, rows, chunk_rows):
        yield slice(first, min(first + chunk_rows, rows))
