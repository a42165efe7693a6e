"""Arrow streams from outside: only streams that cannot expand beyond their own bytes are read.

Arrow's reader checks a stream's structure, and `validate` its contents. Two things are refused in
addition. Compressed buffers: a few bytes could become gigabytes before their size can be checked.
And types other than numbers, text and categories: nested, view and run-end-encoded types can repeat
one piece of memory any number of times.
"""

import struct

import pyarrow as pa
from fastapi.exceptions import RequestValidationError

ARROW = "application/vnd.apache.arrow.stream"

_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3


def read_table(body: bytes) -> pa.Table:
    """Read an untrusted stream; its rows are not counted and its columns not checked yet."""
    try:
        messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(body))
        for message in messages:
            if _is_compressed(message.metadata.to_pybytes()):
                raise _refused(
                    "the Arrow stream has compressed buffers; write it without compression"
                )
        return pa.ipc.open_stream(pa.py_buffer(body)).read_all()
    except (pa.ArrowException, OSError, EOFError, struct.error):
        # The reader's own message may quote what was sent.
        raise _refused("the body is not an Arrow stream") from None


def column_of(table: pa.Table, name: str) -> pa.Array:
    """Return a column in one piece, with all its cells checked."""
    column = table.column(name)
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not _is_plain(kind):
        # Only its length is used, and whether it is a temporal type.
        return pa.nulls(len(column), pa.date32() if pa.types.is_temporal(kind) else pa.binary())
    try:
        column.validate(full=True)
        if pa.types.is_dictionary(column.type):
            column = column.unify_dictionaries()
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    except pa.ArrowException:
        raise _refused(f"the column {name!r:.120} is damaged; write the stream again") from None


def write_table(table: pa.Table) -> bytes:
    """Return a table as a stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    octets: bytes = sink.getvalue().to_pybytes()
    return octets


def _is_plain(kind: pa.DataType) -> bool:
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    text = kind in (pa.string(), pa.large_string())
    return numbers or text or pa.types.is_boolean(kind) or pa.types.is_null(kind)


def _refused(what: str) -> RequestValidationError:
    return RequestValidationError([{"loc": ("body",), "msg": what}])


def _is_compressed(metadata: bytes) -> bool:
    """Whether a message's flatbuffer has the field Message.header, [.data], .compression."""
    message = _uint32(metadata, 0)
    kind_at, header_at = _field(metadata, message, 1), _field(metadata, message, 2)
    kind = metadata[kind_at] if 0 < kind_at < len(metadata) else 0
    if kind not in (_DICTIONARY_BATCH, _RECORD_BATCH) or not header_at:
        return False
    header = header_at + _uint32(metadata, header_at)
    if kind == _DICTIONARY_BATCH:
        batch_at = _field(metadata, header, 1)
        if not batch_at:
            return False
        header = batch_at + _uint32(metadata, batch_at)
    return _field(metadata, header, 3) > 0


def _field(data: bytes, table: int, number: int) -> int:
    """Return the position of a table's field, from the table's vtable; 0 if it is absent."""
    offsets = table - _int32(data, table)
    entry = offsets + 4 + 2 * number
    if entry + 2 > offsets + _uint16(data, offsets):
        return 0
    offset = _uint16(data, entry)
    return table + offset if offset else 0


def _uint16(data: bytes, at: int) -> int:
    return int(_unpacked("<H", data, at))


def _uint32(data: bytes, at: int) -> int:
    return int(_unpacked("<I", data, at))


def _int32(data: bytes, at: int) -> int:
    return int(_unpacked("<i", data, at))


def _unpacked(form: str, data: bytes, at: int) -> int:
    if at < 0:  # Python would count from the end
        raise struct.error("position outside the message")
    (value,) = struct.unpack_from(form, data, at)
    return int(value)
