"""Arrow streams from outside: only streams that cannot expand beyond their own bytes are read.

`service.prediction.arrow_messages` checks the messages before Arrow's reader sees them; `validate`
checks the contents of a column before its cells are used.
"""

import pyarrow as pa

from service.errors import ArrowRefused
from service.prediction.arrow_messages import check_messages

ARROW = "application/vnd.apache.arrow.stream"


def read_table(body: bytes, *, most_rows: int) -> pa.Table:
    """Read an untrusted stream of at most `most_rows` rows; its columns are not checked yet."""
    check_messages(body, most_rows=most_rows)
    try:
        return pa.ipc.open_stream(pa.py_buffer(body)).read_all()
    except (pa.ArrowException, OSError, EOFError):
        # The reader's own message may quote what was sent.
        raise ArrowRefused("The body is not an Arrow stream.") from None


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
        raise ArrowRefused(
            f"The column {name!r:.120} is damaged; write the stream again."
        ) from None


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
