"""A table of text for a terminal, whose widest columns are wrapped.

Rich would do this too, but takes longer to import than most commands take.
"""

import textwrap
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest

GAP = "  "
NARROWEST = 10
"""In characters: no column is wrapped to less."""


def table_lines(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int,
    right: Collection[str] = (),
) -> Iterator[str]:
    """Yield the lines of a table of at most `width` characters, if its columns can be so narrow.

    right: headings of the columns that are aligned to the right.

    >>> rows = [("ward", "medical, surgical, other"), ("age", "17 to 98")]
    >>> for line in table_lines(("column", "content"), rows, width=24):
    ...     print(line)
    column  content
    ------  ----------------
    ward    medical,
            surgical, other
    age     17 to 98
    """
    columns = [*zip(headings, *rows, strict=True)]
    widths = _fitting([max(1, *map(_width, cells)) for cells in columns], width)
    aligned = [heading in right for heading in headings]
    for each in (headings, ["-" * own for own in widths], *rows):
        wrapped = [
            textwrap.wrap(cell, own, break_on_hyphens=False) or [""]
            for cell, own in zip(each, widths, strict=True)
        ]
        for line in zip_longest(*wrapped, fillvalue=""):
            cells = zip(line, widths, aligned, strict=True)
            yield GAP.join(_padded(*cell) for cell in cells).rstrip()


def _fitting(widths: list[int], width: int) -> list[int]:
    """Return widths that fit together, of which the widest are reduced first."""
    room = width - len(GAP) * (len(widths) - 1)
    widths = [*widths]
    while sum(widths) > room and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _padded(cell: str, width: int, to_the_right: bool) -> str:  # noqa: FBT001
    space = " " * (width - _width(cell))
    return space + cell if to_the_right else cell + space


def _width(text: str) -> int:
    """Return how many places a text takes in a terminal; Chinese characters take two."""
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    return len(text) + wide - sum(unicodedata.combining(each) > 0 for each in text)
