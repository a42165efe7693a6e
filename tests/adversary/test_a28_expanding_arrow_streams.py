"""A28: an Arrow stream never becomes more than its own bytes, whatever it announces.

The attack: metadata version V4 with `ARROW:experimental_compression` in a message's custom metadata
is a second way to compress, and 49 kB became 1.5 GB. It is carried out here with less. Every stream
is a real one, with single fields changed.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from service.errors import ArrowRefused, TableTooLong
from service.prediction.arrow_messages import (
    MAX_CATEGORIES,
    MAX_COLUMNS,
    MAX_METADATA,
    MAX_PIECES,
    check_messages,
)
from service.prediction.arrow_stream import read_table
from service.prediction.flatbuffer import Table

ROWS = 1 << 21
"""Rows of zeros: 16 MiB as float64, a few hundred bytes compressed."""
MESSAGE, BATCH = (), (2,)
"""The path to a table of a message, by the numbers of fields."""
VERSION, BODY_BYTES = (MESSAGE, 0), (MESSAGE, 3)
LENGTH, NODES, BUFFERS, COMPRESSION = ((BATCH, number) for number in range(4))

FIRST, SECOND = "first of a pair", "second of a pair"


def written(
    table: pa.Table, *, metadata: dict[str, str] | None = None, batch_rows: int = 0, **options: Any
) -> bytearray:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in table.to_batches(max_chunksize=batch_rows or None):
            writer.write_batch(batch, custom_metadata=metadata)
    return bytearray(sink.getvalue().to_pybytes())


def messages(stream: bytearray) -> Iterator[memoryview]:
    """Return the flatbuffer of each message, as a view into the stream."""
    at = 0
    while size := struct.unpack_from("<i", stream, at + 4)[0]:
        view = memoryview(stream)[at + 8 : at + 8 + size]
        yield view
        at += 8 + size + Table.root(view).integer(3, "<q")


def found(view: memoryview, path: tuple[int, ...]) -> Table:
    """Return a table of a message."""
    table = Table.root(view)
    for step in path:
        inner = table.table(step)
        assert inner is not None
        table = inner
    return table


def change(
    stream: bytearray, message: int, place: tuple[tuple[int, ...], int], form: str, value: int
) -> None:
    """Overwrite a number: of a field, or with form FIRST or SECOND of a vector's last pair."""
    view = list(messages(stream))[message]
    path, number = place
    table = found(view, path)
    if (path, number) in (NODES, BUFFERS):
        vector = table.vector(number, 16)
        at = vector.start + 16 * vector.count - (8 if form == SECOND else 16)
        struct.pack_into("<q", view, at, value)
        return
    at = table._place(number)
    assert at is not None
    struct.pack_into(form, view, at, value)


def without(stream: bytearray, message: int, place: tuple[tuple[int, ...], int]) -> None:
    """Remove a field of a table."""
    view = list(messages(stream))[message]
    path, number = place
    table = found(view, path)
    struct.pack_into("<H", view, table._offsets + 4 + 2 * number, 0)


SMALL = pa.table({"age": [1.0, 2.0, 3.0], "ward": ["a", "b", "a"]})


def compressed_twice(codec: str = "zstd") -> bytearray:
    """The attack: V4, compression announced in the custom metadata only."""
    table = pa.table({"age": pa.repeat(0.0, ROWS)})
    key = {"ARROW:experimental_compression": codec}
    stream = written(table, metadata=key, compression=codec)
    without(stream, 1, COMPRESSION)
    for message in range(2):
        change(stream, message, VERSION, "<h", 3)
    return stream


def refused(stream: bytes, *, most_rows: int = 100_000) -> str:
    """Return the reason of the refusal, for which Arrow has allocated nothing."""
    pool = pa.default_memory_pool()
    before, most = pool.bytes_allocated(), pool.max_memory()
    with pytest.raises(ArrowRefused) as caught:
        read_table(bytes(stream), most_rows=most_rows)
    assert pool.bytes_allocated() <= before  # others may have been collected
    assert pool.max_memory() == most
    return str(caught.value)


def test_the_attack_is_real_and_refused_before_anything_is_allocated():
    stream = compressed_twice()
    table = pa.ipc.open_stream(bytes(stream)).read_all()
    assert table.nbytes > 10_000 * len(stream) > 0
    assert table.nbytes == 8 * ROWS
    del table
    assert "V5" in refused(stream, most_rows=ROWS)


@pytest.mark.parametrize("message", [0, 1])
def test_each_message_must_have_the_one_version(message: int) -> None:
    stream = written(SMALL)
    change(stream, message, VERSION, "<h", 3)
    assert "V5" in refused(stream)


def test_whatever_pyarrow_writes_for_old_readers_is_refused() -> None:
    assert "V5" in refused(written(SMALL, metadata_version=pa.ipc.MetadataVersion.V4))
    with pytest.raises(ArrowRefused):
        read_table(bytes(written(SMALL, use_legacy_format=True)), most_rows=3)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_batches_and_dictionaries_are_refused(codec: str) -> None:
    zeros = pa.table({"age": pa.repeat(0.0, ROWS)})
    assert "compress" in refused(written(zeros, compression=codec), most_rows=ROWS)
    categories = pa.DictionaryArray.from_arrays([0], pa.repeat("medical", 100_000))
    assert "compress" in refused(written(pa.table({"ward": categories}), compression=codec))


@pytest.mark.parametrize(
    "stream",
    [
        written(SMALL, metadata={"any": "thing"}),
        written(SMALL.replace_schema_metadata({"any": "thing"})),
        written(SMALL.cast(pa.schema([SMALL.schema.field(0), ("ward", pa.string())])
                           .set(0, SMALL.schema.field(0).with_metadata({"any": "thing"})))),
    ],
    ids=["message", "schema", "field"],
)  # fmt: skip
def test_custom_metadata_is_refused_wherever_it_is(stream: bytearray) -> None:
    assert "custom metadata" in refused(stream)


def announced(place: tuple[tuple[int, ...], int], form: str, value: int) -> bytearray:
    stream = written(SMALL)
    change(stream, 1, place, form, value)
    return stream


@pytest.mark.parametrize(
    "stream",
    [
        announced(BODY_BYTES, "<q", 1 << 40),
        announced(BODY_BYTES, "<q", -8),
        announced(BUFFERS, SECOND, 1 << 40),
        announced(BUFFERS, SECOND, -1),
        announced(BUFFERS, FIRST, 1 << 40),
        announced(BUFFERS, FIRST, -8),
        b"\xff\xff\xff\xff" + struct.pack("<i", (1 << 31) - 1),
        b"\xff\xff\xff\xff" + struct.pack("<i", -8) + bytes(64),
    ],
)
def test_a_length_beyond_the_received_bytes_is_refused(stream: bytes) -> None:
    assert "beyond the received bytes" in refused(stream)


def test_metadata_is_bounded_even_if_all_of_it_was_sent() -> None:
    size = MAX_METADATA + 8
    assert "bytes of metadata" in refused(
        b"\xff\xff\xff\xff" + struct.pack("<i", size) + bytes(size)
    )


def test_no_byte_is_used_twice() -> None:
    # The last buffer of one column becomes the first of the other.
    assert "overlap" in refused(announced(BUFFERS, FIRST, 0))


def test_a_batch_has_one_length() -> None:
    assert "different lengths" in refused(announced(LENGTH, "<q", 2))
    assert "different lengths" in refused(announced(NODES, FIRST, 1 << 40))
    assert "different lengths" in refused(announced(NODES, SECOND, 1 << 40))


def test_rows_are_counted_before_they_are_read() -> None:
    stream = written(pa.table({"age": pa.nulls(10**7)}))
    with pytest.raises(TableTooLong):
        read_table(bytes(stream), most_rows=100)
    many = written(pa.table({"age": pa.nulls(101)}), batch_rows=50)
    with pytest.raises(TableTooLong):
        read_table(bytes(many), most_rows=100)


@pytest.mark.parametrize("end", [1, 8, 20, 200, -8, -1])
def test_a_stream_that_was_cut_off_is_refused(end: int) -> None:
    refused(written(SMALL)[:end])


def test_nothing_may_follow_the_end() -> None:
    assert "follow" in refused(written(SMALL) + bytes(8))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1.0]]),
        pa.array([{"a": 1.0}]),
        pa.array(["a"], pa.string_view()),
        pa.array([[1.0]], pa.list_view(pa.float64())),
        pa.RunEndEncodedArray.from_arrays(pa.array([10**9], pa.int32()), pa.array([0.0])),
    ],
    ids=lambda column: str(column.type),
)
def test_types_that_repeat_memory_are_refused_even_in_columns_that_are_not_used(
    column: pa.Array,
) -> None:
    stream = written(pa.table({"else": column}))
    assert "nested, view or run-end-encoded" in refused(stream, most_rows=1 << 40)


def test_columns_pieces_and_categories_are_bounded() -> None:
    many = pa.table({str(number): pa.nulls(1) for number in range(MAX_COLUMNS + 1)})
    assert "columns" in refused(written(many))
    wide = pa.table({str(number): pa.nulls(2) for number in range(MAX_COLUMNS)})
    batch = wide.slice(0, 1)
    batches = pa.concat_tables([batch] * (MAX_PIECES // MAX_COLUMNS + 1))
    assert "pieces" in refused(written(batches, batch_rows=1))
    # One dictionary, which every batch is compared with.
    values = pa.array(range(MAX_CATEGORIES // 8), pa.int32())
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 9, pa.int8()), values)
    assert "categories" in refused(written(pa.table({"ward": column}), batch_rows=1))


def test_a_dictionary_does_not_grow() -> None:
    parts = [pa.array(values).dictionary_encode() for values in (["a"], ["a", "b"])]
    table = pa.table({"ward": pa.chunked_array(parts)})
    assert "delta" in refused(written(table, emit_dictionary_deltas=True))


def test_what_people_write_is_read() -> None:
    encoded = SMALL.set_column(1, "ward", SMALL["ward"].dictionary_encode())
    for table in (SMALL, encoded, SMALL.slice(0, 0)):
        assert read_table(bytes(written(table, batch_rows=1)), most_rows=3) == table


FLATBUFFERS: list[Callable[[bytes], bytes]] = [
    lambda size: size + b"\x00" * 64,
    lambda size: size + b"\xff" * 64,
    lambda size: size + struct.pack("<I", 60) + b"\x7f" * 60,
]


@pytest.mark.parametrize("made", FLATBUFFERS)
def test_offsets_outside_the_metadata_are_refused(made: Callable[[bytes], bytes]) -> None:
    refused(b"\xff\xff\xff\xff" + made(struct.pack("<i", 64)))


def test_vectors_end_inside_the_metadata() -> None:
    stream = written(SMALL)
    view = list(messages(stream))[1]
    # The right number of lengths, of which none is there.
    nodes, end = found(view, BATCH)._place(1), len(view) - 4
    assert nodes is not None
    struct.pack_into("<I", view, end, SMALL.num_columns)
    struct.pack_into("<I", view, nodes, end - nodes)
    with pytest.raises(ArrowRefused):
        check_messages(bytes(stream), most_rows=3)
