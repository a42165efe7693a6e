"""Reading a source with a schema: the whole table is checked, then becomes a site.

>>> from kernels.rounds.site.dealing import Dealing
>>> from kernels.tables.schema import Numeric, Schema, Target
>>> schema = Schema((Numeric("age", "a", 0, 120),), (Target("stay", "d"),))
>>> table = {"age": [61, 47, 52], "stay": [3.5, 1, 2]}
>>> read_site(table, schema, held_out=0, dealing=Dealing.generate())
Site(training: 3, stopping: 0, calibration: 0)
"""

from collections.abc import Callable

from client_sdk.tables.schema_stream import stream_of
from kernels.rounds.site.dealing import Dealing
from kernels.rounds.site.site import Site
from kernels.tables.problems import LeavingOut, RowByRow
from kernels.tables.records import Records, read_in_pieces
from kernels.tables.schema import Schema


def read_records(data: object, schema: Schema, *, problems: LeavingOut) -> Records:
    """Read a table that fits in memory, check all of it, and leave out rows without a target."""
    stream = stream_of(data, schema)
    return Records.concatenate([*read_in_pieces(schema, stream, problems=problems)])


def read_site(
    data: object,
    schema: Schema,
    *,
    held_out: float,
    dealing: Dealing,
    watch: Callable[[int], None] | None = None,
    row_by_row: RowByRow | None = None,
) -> Site:
    """Read a hospital's table, check all of it against the schema, and split its rows into parts.

    Raises `TableSourceError` if it cannot be read as a table, and `kernels.errors.TableRefused`,
    with every problem of every column, if it does not match the schema. A table of more than
    `ROWS_IN_MEMORY` rows is not kept in memory but read again for every sum. Rows without a target
    are in no part; the site has their number.

    data: anything that `open_table` accepts.
    watch: called with the number of rows read so far.
    row_by_row: with differential privacy, as in `Site.of_stream`.
    """
    stream = stream_of(data, schema)
    return Site.of_stream(
        schema,
        stream,
        held_out=held_out,
        dealing=dealing,
        watch=watch,
        row_by_row=row_by_row,
    )
