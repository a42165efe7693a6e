"""Searching files and memory for numbers that must not be there.

What is looked for are *runs*: consecutive elements of a vector, at least `LEAST_ELEMENTS` and as
many as it takes to have `LEAST_BITS` significant bits between them. Zeros, and what repeats the
element before, count nothing: nobody finds out anything from a run of zeros, and every process is
full of them. A run of 64 bits is met by chance at one of 2⁶⁴ places. A vector without such a run
(counts, most of them zero) is one run as a whole.

A run is looked for as the bytes of int64 or float64, at every alignment, and as their base64 (both
alphabets, all three alignments) and hex. Decimal text has separators that nobody knows, so there a
single number counts, if it has `LEAST_DIGITS` digits.

One pass finds all of them. Whatever lies in memory at whatever offset contains whole words of eight
bytes at offsets that are multiples of eight, if it has at least fifteen bytes. So for each of the
eight offsets at which a needle may start, one word of it is in a table, and only such words of the
haystack are looked up.
"""

import base64
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST_ELEMENTS = 4
LEAST_BITS = 64
LEAST_DIGITS = 15
_WORD = 8
_SHORTEST = 2 * _WORD - 1
_TABLE_BITS = 22
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_PIECE = 4 << 20
_URL_SAFE = bytes.maketrans(b"+/", b"-_")

Numbers = NDArray[Any]


def runs_of(values: Numbers) -> Iterator[slice]:
    """Return the shortest run from each element on, or all of a vector that has none."""
    bits = significant_bits(values)
    bits[1:][values[1:] == values[:-1]] = 0
    sums = np.concatenate([[0], np.cumsum(bits)])
    ends = np.searchsorted(sums, sums[:-1] + LEAST_BITS)
    starts = np.arange(len(values))
    ends = np.maximum(ends, starts + LEAST_ELEMENTS)
    found = (ends <= len(values)) & (bits > 0)
    for start, end in zip(starts[found].tolist(), ends[found].tolist(), strict=True):
        yield slice(start, end)
    present = np.flatnonzero(values)
    if not found.any() and len(present) >= LEAST_ELEMENTS:
        yield slice(int(present[0]), int(present[-1]) + 1)


def significant_bits(values: Numbers) -> NDArray[np.int64]:
    """Return the length of each number in bits, without zeros at either end."""
    if values.dtype.kind == "f":
        mantissas = np.abs(np.ldexp(np.frexp(values)[0], 53)).astype(np.uint64)
    else:
        mantissas = np.abs(values).astype(np.uint64)
    lowest = mantissas & (~mantissas + np.uint64(1))
    return _bit_length(mantissas) - _bit_length(lowest) + (mantissas > 0)


def _bit_length(numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
    # In halves: a float64 has not enough bits for all of 64, and would round up.
    high, low = numbers >> np.uint64(32), numbers & np.uint64(0xFFFFFFFF)
    return np.where(
        high > 0,
        32 + np.frexp(high.astype(np.float64))[1],
        np.frexp(low.astype(np.float64))[1],
    )


@dataclass(frozen=True)
class Needle:
    """Bytes to look for. what: the vector that they are of, and their form."""

    data: bytes
    what: str


def needles_of(name: str, values: Numbers, *, but_not: bytes = b"") -> list[Needle]:
    """Return all forms of a vector's runs and numbers, except for those in `but_not`."""
    plain = np.ascontiguousarray(values).ravel()
    kind = f"{name}, {plain.dtype}"
    made = []
    for run in runs_of(plain):
        data = plain[run].tobytes()
        if data in but_not:
            continue
        made += [Needle(form, f"{kind} in {how}") for how, form in _forms(data)]
    long = significant_bits(plain) > 2 * LEAST_DIGITS
    for number in np.unique(plain[long]).tolist():
        for text in {repr(number), repr(number % 2**64) if isinstance(number, int) else ""}:
            told = text.encode()
            if sum(map(str.isdigit, text)) >= LEAST_DIGITS and told not in but_not:
                made.append(Needle(told, f"{kind} in decimals"))
    return made


def _forms(data: bytes) -> Iterator[tuple[str, bytes]]:
    yield "bytes", data
    yield "hex", data.hex().encode()
    yield "hex", data.hex().upper().encode()
    for before in range(3):
        # Characters that bytes before or after have a part in are left out.
        first, whole = -(-before * 4 // 3), (before + len(data)) * 4 // 3
        text = base64.b64encode(bytes(before) + data)[first:whole]
        yield "base64", text
        if (other := text.translate(_URL_SAFE)) != text:
            yield "base64", other


class Search:
    """A set of needles, prepared to be found."""

    def __init__(self, needles: Iterable[Needle]) -> None:
        self._needles = list({needle.data: needle for needle in needles}.values())
        if min(len(needle.data) for needle in self._needles) < _SHORTEST:
            raise ValueError(f"a needle needs at least {_SHORTEST} bytes")
        self._longest = max(len(needle.data) for needle in self._needles)
        by_length: dict[int, list[int]] = {}
        for index, needle in enumerate(self._needles):
            by_length.setdefault(len(needle.data), []).append(index)
        parts = [self._words(indices) for indices in by_length.values()]
        words, indices, offsets = (np.concatenate(each) for each in zip(*parts, strict=True))
        order = np.argsort(words, kind="stable")
        self._sorted = words[order]
        self._of, self._at = indices[order].tolist(), offsets[order].tolist()
        self._table = np.zeros(1 << _TABLE_BITS, dtype=np.bool_)
        self._table[_places(words)] = True

    def __len__(self) -> int:
        return len(self._needles)

    def _words(self, indices: list[int]) -> tuple[Numbers, Numbers, Numbers]:
        """Return for each needle of one length and each offset its most telling word."""
        data = b"".join(self._needles[index].data for index in indices)
        needles = np.frombuffer(data, dtype=np.uint8).reshape(len(indices), -1)
        words, offsets = [], []
        for first in range(_WORD):
            count = (needles.shape[1] - first) // _WORD
            own = np.ascontiguousarray(needles[:, first : first + count * _WORD])
            ordered = np.sort(own.reshape(len(indices), count, _WORD), axis=2)
            best = (np.diff(ordered, axis=2) > 0).sum(2).argmax(1)
            words.append(own.view("<u8")[np.arange(len(indices)), best])
            offsets.append(first + best * _WORD)
        return np.concatenate(words), np.tile(indices, _WORD), np.concatenate(offsets)

    def in_bytes(self, data: bytes) -> set[str]:
        """Return which needles are somewhere in these bytes, as their descriptions."""
        words = np.frombuffer(data, dtype="<u8", count=len(data) // _WORD)
        places = np.flatnonzero(self._table[_places(words)])
        lows = np.searchsorted(self._sorted, words[places], "left")
        highs = np.searchsorted(self._sorted, words[places], "right")
        met = highs > lows
        found: set[str] = set()
        for place, low, high in zip(places[met], lows[met], highs[met], strict=True):
            for entry in range(low, high):
                needle = self._needles[self._of[entry]]
                start = int(place) * _WORD - self._at[entry]
                if needle.what not in found and data.startswith(needle.data, max(start, 0)):
                    found.add(needle.what)
        return found

    def in_files(self, folder: Path) -> dict[str, set[str]]:
        """Return what is found in each file below a folder."""
        files = [path for path in folder.rglob("*") if path.is_file()]
        found = {str(path.relative_to(folder)): self.in_bytes(path.read_bytes()) for path in files}
        return {name: what for name, what in found.items() if what}

    def in_database(self, path: Path) -> dict[str, set[str]]:
        """Return what is found in each table of a SQLite database: its rows as they are now.

        In the file a long value is cut into pages.
        """
        found: dict[str, set[str]] = {}
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            for (table,) in tables.fetchall():
                for row in database.execute(f'SELECT * FROM "{table}"'):  # noqa: S608 - its own
                    for value in row:
                        data = value if isinstance(value, bytes) else str(value).encode()
                        found.setdefault(table, set()).update(self.in_bytes(data))
        finally:
            database.close()
        return {table: what for table, what in found.items() if what}

    def in_memory(self, pid: int) -> set[str]:
        """Return what is found in the memory of a process."""
        found: set[str] = set()
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            for first, last in memory_of(pid):
                for start in range(first, last, _PIECE):
                    end = min(start + _PIECE + self._longest // _WORD * _WORD, last)
                    try:
                        memory.seek(start)
                        found |= self.in_bytes(memory.read(end - start))
                    except OSError:  # unmapped in the meantime, or the kernel's own
                        continue
        return found


def _places(words: Numbers) -> Numbers:
    return (words * _SPREAD) >> np.uint64(64 - _TABLE_BITS)


_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) .*$")


def memory_of(pid: int) -> Iterator[tuple[int, int]]:
    """Return the ranges of a process's memory that it may have written to, in order.

    What it could neither write to nor has pages of its own in is a library, as it is on disk.
    """
    joined: list[tuple[int, int]] = []
    for (first, last, rights), sizes in _mappings(Path(f"/proc/{pid}/smaps").read_text()):
        own = sizes["Anonymous"] + sizes["Swap"] > 0
        if "r" not in rights or not (own or ("w" in rights and sizes["Rss"] > 0)):
            continue
        if joined and joined[-1][1] == first:
            joined[-1] = joined[-1][0], last
        else:
            joined.append((first, last))
    yield from joined


def _mappings(text: str) -> Iterator[tuple[tuple[int, int, str], Mapping[str, int]]]:
    where: tuple[int, int, str] | None = None
    sizes: dict[str, int] = {}
    for line in text.splitlines():
        if head := _MAPPING.match(line):
            if where is not None:
                yield where, sizes
            where, sizes = (int(head[1], 16), int(head[2], 16), head[3]), {}
        else:
            name, _, value = line.partition(":")
            if value.endswith(" kB"):
                sizes[name] = int(value.split()[0])
    if where is not None:
        yield where, sizes
