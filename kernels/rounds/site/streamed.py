"""Rows that are read again for every sum, so that a site's memory does not grow with its table.

A stream is any re-iterable of pieces of a table, each a mapping of columns: for example files on a
disk, read by row groups. The first reading checks every cell, deals each row to a part (one byte
per row is kept), and computes the table's fingerprint. Later readings select the rows of a part.
Each piece's checksum shows whether it is still the table that was checked: if a file were exported
again during a session, the stored parts would be applied to other patients' rows.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from kernels.errors import ChangedTable
from kernels.rounds.site.dealing import Dealing
from kernels.tables.chunks import CHUNK_ROWS
from kernels.tables.problems import LeavingOut, RowByRow
from kernels.tables.records import Records, read_in_pieces
from kernels.tables.row_hashes import Fingerprint, keys_and_hashes
from kernels.tables.schema import Schema

Stream = Iterable[Mapping[str, object]]

DEALT = 3
"""The number of parts that rows are dealt to: training, stopping, calibration, in this order."""
_LEFT_OUT = 255
"""The part number of rows that exceed the maximum per patient."""


@dataclass(frozen=True, eq=False, repr=False)
class Dealt:
    """A stream after its first reading.

    records: all rows if there are at most `rows_in_memory`; otherwise None.
    without_target: how many rows of the stream were left out because a target is missing.
    """

    schema: Schema
    stream: Stream
    parts: NDArray[np.uint8]
    fingerprint: Fingerprint
    checksums: list[int]
    records: Records | None
    row_by_row: bool
    without_target: int

    @classmethod
    def of(
        cls,
        schema: Schema,
        stream: Stream,
        *,
        held_out: float,
        dealing: Dealing,
        rows_in_memory: int | None,
        watch: Callable[[int], None] | None = None,
        row_by_row: RowByRow | None = None,
    ) -> "Dealt":
        """Check and deal the rows; `watch` is called with the number of rows read so far."""
        parts, checksums, fingerprint = [], [], Fingerprint()
        kept: list[Records] | None = []
        problems = LeavingOut() if row_by_row is None else row_by_row
        before = problems.without_target
        for records in read_in_pieces(schema, stream, problems=problems):
            keys, hashes = keys_and_hashes(records)
            parts.append(dealing.parts(keys, held_out=held_out))
            checksums.append(_checksum(records))
            fingerprint += Fingerprint.of(hashes)
            if rows_in_memory is not None and fingerprint.rows > rows_in_memory:
                kept = None
            if kept is not None:
                kept.append(records)
            if watch is not None:
                watch(fingerprint.rows)
        whole = None if kept is None else kept[0] if len(kept) == 1 else Records.concatenate(kept)
        dealt = np.concatenate(parts)
        return cls(
            schema,
            stream,
            dealt,
            fingerprint,
            checksums,
            whole,
            row_by_row=row_by_row is not None,
            without_target=problems.without_target - before,
        )

    def part(self, number: int) -> "Records | Streamed":
        """Return the rows of a part, in memory if all rows are in memory."""
        if self.records is not None:
            return self.records.take(torch.from_numpy(self.parts == number))
        return Streamed(self, number)


class Streamed:
    """The rows of one part, read again whenever they are needed."""

    def __init__(self, dealt: Dealt, number: int) -> None:
        self._dealt = dealt
        self._number = number
        self._rows = int((dealt.parts == number).sum())

    @property
    def schema(self) -> Schema:
        """Return the schema that the rows are read with."""
        return self._dealt.schema

    def in_pieces(self, rows: int) -> Iterator[Records]:
        """Yield pieces of at most `rows` rows, in the order of the table."""
        dealt, first = self._dealt, 0
        checksums = iter(dealt.checksums)
        problems = RowByRow() if dealt.row_by_row else LeavingOut()
        for records in read_in_pieces(dealt.schema, dealt.stream, problems=problems):
            if next(checksums, None) != _checksum(records):
                raise ChangedTable(_CHANGED)
            own = dealt.parts[first : first + len(records)] == self._number
            first += len(records)
            yield from records.take(torch.from_numpy(own)).in_pieces(rows)
        if first != len(dealt.parts):
            raise ChangedTable(_CHANGED)

    def bounded(self, most: int, dealing: Dealing) -> "Streamed":
        """Return the part with at most `most` rows per patient; this reads the table once more."""
        keys: list[bytes] = []
        hashes: list[bytes] = []
        for records in self.in_pieces(CHUNK_ROWS):
            own = keys_and_hashes(records)
            keys += own[0]
            hashes += own[1]
        parts = self._dealt.parts.copy()
        rows = np.flatnonzero(parts == self._number)
        parts[rows[~dealing.kept(keys, hashes, most=most)]] = _LEFT_OUT
        return Streamed(replace(self._dealt, parts=parts), self._number)

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return f"Streamed({len(self)} rows)"


_CHANGED = (
    "the table is not the one that was checked when the session began: put it back as it was, or "
    "join again with the new one"
)


def _checksum(records: Records) -> int:
    """Return a checksum of a piece; it only protects against accidental changes."""
    columns = [records.numeric, records.missing, records.levels]
    columns += [own for own in (records.targets, records.outcomes) if own is not None]
    checksum = 0
    for column in columns:
        checksum = zlib.crc32(column.contiguous().numpy().data, checksum)
    return checksum
