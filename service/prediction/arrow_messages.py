"""The messages of an untrusted Arrow stream, checked before Arrow's own reader sees any of them.

What is accepted cannot expand: every buffer that the reader uses is a piece of the received bytes,
and no byte belongs to two buffers. Refused are

    metadata versions other than V5     V4 has a second way to compress, in a message's custom
                                        metadata, which made 1.5 GB of 49 kB (docs/threats.md A28)
    custom metadata                     of the stream, of a column or of a message
    compressed buffers                  a few bytes could become gigabytes
    nested, view and run-end types      can repeat one piece of memory any number of times
    dictionaries that grow (deltas)     each batch would have its own copy of all of them
    lengths beyond the received bytes   of metadata, bodies and buffers; overlapping buffers
    too many rows, columns, batches or categories

Format: https://arrow.apache.org/docs/format/Columnar.html, flatbuffers Message.fbs and Schema.fbs.
"""

from dataclasses import dataclass, field

from service.errors import ArrowRefused
from service.prediction.flatbuffer import DamagedFlatbuffer, Table
from service.prediction.row_limit import check_rows

MAX_METADATA = 1 << 20
"""Most bytes of one message's metadata."""
MAX_COLUMNS = 4096
MAX_PIECES = 1 << 16
"""Most pieces: each column has one in each batch. Arrow's reader needs some hundred bytes for each,
more than it takes to send one."""
MAX_CATEGORIES = 1 << 20
"""Most categories, counted again for each batch, because they are compared for each batch."""

_CONTINUATION = b"\xff\xff\xff\xff"
_V5 = 4
_SCHEMA, _DICTIONARY_BATCH, _RECORD_BATCH = 1, 2, 3
_BUFFERS = {
    **dict.fromkeys((1,), 0),  # null
    **dict.fromkeys((2, 3, 6, 7), 2),  # integers, floats, booleans, decimals
    **dict.fromkeys((8, 9, 10, 11, 15, 18), 2),  # temporal types, binary of a fixed size
    **dict.fromkeys((4, 5, 19, 20), 3),  # binary and text
}
"""How many buffers a column of each accepted type has, by the number of the type."""


def check_messages(body: bytes, *, most_rows: int) -> None:
    """Check all messages of a stream, or raise `ArrowRefused` or `TableTooLong`."""
    try:
        _Stream(memoryview(body), most_rows).check()
    except DamagedFlatbuffer:
        raise _not_a_stream() from None


@dataclass
class _Stream:
    data: memoryview
    most_rows: int
    at: int = 0
    columns: list[tuple[int, int | None]] = field(default_factory=list)
    """For each column the number of its buffers, and the id of its dictionary if it has one."""
    of_values: dict[int, int] = field(default_factory=dict)
    """For each dictionary the number of buffers of its values."""
    in_force: dict[int, int] = field(default_factory=dict)
    """For each dictionary the number of its categories in the next batch."""
    rows: int = 0
    pieces: int = 0
    categories: int = 0

    def check(self) -> None:
        message = self._next()
        if message is None or message.integer(1, "<B") != _SCHEMA:
            raise _not_a_stream()
        self._check_schema(_present(message.table(2)))
        self._check_body(message)
        while (message := self._next()) is not None:
            kind, header = message.integer(1, "<B"), _present(message.table(2))
            body_bytes = self._check_body(message)
            if kind == _RECORD_BATCH:
                self._check_record_batch(header, body_bytes)
            elif kind == _DICTIONARY_BATCH:
                self._check_dictionary_batch(header, body_bytes)
            else:
                raise _not_a_stream()
        if self.at != len(self.data):
            raise ArrowRefused("Bytes follow the end of the Arrow stream.")

    def _next(self) -> Table | None:
        """Return the next message; None at the marker that ends the stream."""
        head = bytes(self.data[self.at : self.at + 8])
        if len(head) < 8 or head[:4] != _CONTINUATION:
            if self.at and not head:
                raise ArrowRefused(
                    "The Arrow stream ends without its end marker: it was cut off, or its writer "
                    "was not closed."
                )
            raise _not_a_stream()
        size = int.from_bytes(head[4:], "little", signed=True)
        self.at += 8
        if size == 0:
            return None
        if size < 0 or size > len(self.data) - self.at:
            raise _beyond("metadata")
        if size > MAX_METADATA:
            raise ArrowRefused(
                f"A message of the Arrow stream has {size} bytes of metadata; {MAX_METADATA} are "
                "allowed. Send fewer columns."
            )
        message = Table.root(self.data[self.at : self.at + size])
        self.at += size
        if message.integer(0, "<h") != _V5:
            raise ArrowRefused(
                "The Arrow stream does not have metadata version V5, the only one that is "
                "accepted: write it with Arrow 1.0 or later, without options for older versions."
            )
        _check_no_metadata(message, 4, "a message of the stream")
        return message

    def _check_body(self, message: Table) -> int:
        """Skip the message's body and return its length."""
        size = message.integer(3, "<q")
        if not 0 <= size <= len(self.data) - self.at:
            raise _beyond("body")
        self.at += size
        return size

    def _check_schema(self, schema: Table) -> None:
        if schema.integer(0, "<h") != 0:
            raise ArrowRefused("The Arrow stream must be little-endian.")
        _check_no_metadata(schema, 2, "the stream's schema")
        fields = schema.vector(1, 4)
        if fields.count > MAX_COLUMNS:
            raise ArrowRefused(
                f"The Arrow stream has {fields.count} columns; {MAX_COLUMNS} are allowed. Send "
                "only the columns that the model uses."
            )
        for position, column in enumerate(fields.tables(), start=1):
            _check_no_metadata(column, 6, f"column {position}")
            buffers = _BUFFERS.get(column.integer(2, "<B"))
            if buffers is None or column.vector(5, 4).count:
                raise ArrowRefused(
                    f"Column {position} of the Arrow stream has a nested, view or run-end-encoded "
                    "type. Send columns of numbers, text (utf8 or large_utf8) or categories "
                    "only, and leave the others out."
                )
            encoding = column.table(4)
            if encoding is None:
                self.columns.append((buffers, None))
                continue
            identifier = encoding.integer(0, "<q")
            if self.of_values.setdefault(identifier, buffers) != buffers:
                raise _not_a_stream()
            self.columns.append((2, identifier))

    def _check_record_batch(self, batch: Table, body_bytes: int) -> None:
        self.rows += _check_batch(batch, [each for each, _ in self.columns], body_bytes)
        check_rows(self.rows, self.most_rows)
        self._count(len(self.columns))
        for _, identifier in self.columns:
            if identifier is not None:
                self._count_categories(self.in_force.get(identifier, 0))

    def _check_dictionary_batch(self, dictionary: Table, body_bytes: int) -> None:
        identifier = dictionary.integer(0, "<q")
        if identifier not in self.of_values:
            raise _not_a_stream()
        if dictionary.integer(2, "<B"):
            raise ArrowRefused(
                "The Arrow stream extends a dictionary (a delta). Write it without "
                "emit_dictionary_deltas."
            )
        batch = _present(dictionary.table(1))
        length = _check_batch(batch, [self.of_values[identifier]], body_bytes)
        self._count(1)
        self._count_categories(length)
        self.in_force[identifier] = length

    def _count(self, pieces: int) -> None:
        # A batch without columns counts, too.
        self.pieces += max(pieces, 1)
        if self.pieces > MAX_PIECES:
            raise ArrowRefused(
                f"The Arrow stream has more than {MAX_PIECES} pieces (columns × batches). Write it "
                "in fewer and larger batches."
            )

    def _count_categories(self, categories: int) -> None:
        self.categories += categories
        if self.categories > MAX_CATEGORIES:
            raise ArrowRefused(
                f"The batches of the Arrow stream have more than {MAX_CATEGORIES} categories. "
                "Write it in fewer and larger batches, or with the categories that occur."
            )


def _check_batch(batch: Table, columns: list[int], body_bytes: int) -> int:
    """Check a batch of columns with these numbers of buffers, and return its length."""
    if batch.has(3):
        raise ArrowRefused("The Arrow stream has compressed buffers; write it without compression.")
    length, nodes, buffers = batch.integer(0, "<q"), batch.vector(1, 16), batch.vector(2, 16)
    if length < 0 or (nodes.count, buffers.count) != (len(columns), sum(columns)):
        raise _not_a_stream()
    if any(count != length or not 0 <= nulls <= count for count, nulls in nodes.pairs()):
        raise ArrowRefused("The columns of a batch of the Arrow stream have different lengths.")
    end = 0
    for offset, size in buffers.pairs():
        if size < 0 or not 0 <= offset <= body_bytes - size:
            raise _beyond("buffer")
        if size and offset < end:
            raise ArrowRefused("Buffers of the Arrow stream overlap.")
        end = max(end, offset + size)
    return length


def _check_no_metadata(table: Table, number: int, whose: str) -> None:
    # Some writers always write the vector, without items.
    if table.vector(number, 4).count:
        raise ArrowRefused(
            f"The Arrow stream has custom metadata ({whose}), which is not accepted. With pyarrow, "
            "write table.replace_schema_metadata(None); metadata of single columns goes with "
            "Field.remove_metadata()."
        )


def _present(table: Table | None) -> Table:
    if table is None:
        raise _not_a_stream()
    return table


def _beyond(what: str) -> ArrowRefused:
    return ArrowRefused(
        f"The Arrow stream announces a {what} that goes beyond the received bytes: it was cut off "
        "or damaged."
    )


def _not_a_stream() -> ArrowRefused:
    return ArrowRefused("The body is not an Arrow stream.")
