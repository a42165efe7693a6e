"""Flatbuffers from outside: every position is checked before it is read, and nothing is copied.

Only what Arrow's messages need: tables, their numbers, tables inside tables, and vectors. Format:
https://flatbuffers.dev/internals. Offsets may point anywhere, also to the same place many times,
so the caller bounds how many items it visits.
"""

import struct
from dataclasses import dataclass

_FORMS = {"<B": 1, "<h": 2, "<H": 2, "<i": 4, "<I": 4, "<q": 8}


class DamagedFlatbuffer(Exception):
    """A position lies outside the buffer."""


@dataclass(frozen=True)
class Vector:
    """`count` items of equal size, all of them inside the buffer."""

    data: memoryview
    start: int
    count: int

    def tables(self) -> "list[Table]":
        """Return the items of a vector of tables."""
        places = range(self.start, self.start + 4 * self.count, 4)
        return [Table(self.data, place + _read(self.data, "<I", place)) for place in places]

    def pairs(self) -> list[tuple[int, int]]:
        """Return the items of a vector of structs of two 64-bit integers."""
        return list(struct.iter_unpack("<qq", self.data[self.start : self.start + 16 * self.count]))


class Table:
    """A table, whose fields have numbers; an absent field has its default."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._offsets = at - _read(data, "<i", at)
        self._size = _read(data, "<H", self._offsets)

    @classmethod
    def root(cls, data: memoryview) -> "Table":
        """Return the table that a buffer consists of."""
        return cls(data, _read(data, "<I", 0))

    def has(self, number: int) -> bool:
        """Whether the field is present."""
        return self._place(number) is not None

    def integer(self, number: int, form: str) -> int:
        """Return an integer in one of `struct`'s forms; 0 if it is absent."""
        place = self._place(number)
        return 0 if place is None else _read(self._data, form, place)

    def table(self, number: int) -> "Table | None":
        """Return a table inside this one."""
        place = self._pointed(number)
        return None if place is None else Table(self._data, place)

    def vector(self, number: int, item_bytes: int) -> Vector:
        """Return a vector of items of this size; without items if it is absent."""
        place = self._pointed(number)
        if place is None:
            return Vector(self._data, 0, 0)
        count = _read(self._data, "<I", place)
        if place + 4 + item_bytes * count > len(self._data):
            raise DamagedFlatbuffer
        return Vector(self._data, place + 4, count)

    def _pointed(self, number: int) -> int | None:
        place = self._place(number)
        return None if place is None else place + _read(self._data, "<I", place)

    def _place(self, number: int) -> int | None:
        entry = 4 + 2 * number
        if entry + 2 > self._size:
            return None
        offset = _read(self._data, "<H", self._offsets + entry)
        return self._at + offset if offset else None


def _read(data: memoryview, form: str, at: int) -> int:
    if at < 0 or at + _FORMS[form] > len(data):
        raise DamagedFlatbuffer
    (value,) = struct.unpack_from(form, data, at)
    return int(value)
