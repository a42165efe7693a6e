"""Reading a source with a schema: the whole table is checked, then becomes a site.

>>> from kernels.rounds.site.dealing import Dealing
>>> from kernels.tables.schema import Numeric, Schema, Target
>>> schema = Schema((Numeric("age", "a", 0, 120),), (Target("stay", "d"),))
>>> table = {"age": [61, 47, 52], "stay": [3.5, 1, 2]}
>>> read_site(table, schema, held_out=0, dealing=Dealing.generate())
Site(training: 3, stopping: 0, calibration: 0)
"""

from collections.abc import Callable, Iterator, Mapping

from client_sdk.tables.opening import open_table
from client_sdk.tables.source import TableSource
from kernels.rounds.site.dealing import Dealing
from kernels.rounds.site.site import Site
from kernels.tables.arrow_cells import Column, as_labels, as_numbers
from kernels.tables.outcome_cells import label_columns
from kernels.tables.problems import LeavingOut, RowByRow
from kernels.tables.records import Records, read_in_pieces
from kernels.tables.schema import Schema


class SchemaStream:
    """The schema's columns of a source, as cells; each iteration reads the source again.

    watch: called with these columns as they are in the source, batch by batch.
    """

    def __init__(
        self,
        source: TableSource,
        schema: Schema,
        *,
        watch: Callable[[Mapping[str, Column]], None] | None = None,
    ) -> None:
        self._source, self._watch = source, watch
        labels = {column.name for column in schema.categorical} | {schema.patient}
        labels |= {name for outcome in schema.outcomes for name in label_columns(outcome)}
        self._wanted = set(schema.columns)
        self._numbers = self._wanted - labels
        self._codes = schema.missing_codes

    def __iter__(self) -> Iterator[Mapping[str, object]]:
        text = self._source.numbers_are_text
        columns = [name for name in self._source.columns if name in self._wanted]
        if not columns:
            yield {}
            return
        for batch in self._source.batches(columns):
            if self._watch is not None:
                self._watch(batch)
            yield {
                name: as_numbers(column, text=text, missing_codes=self._codes.get(name, ()))
                if name in self._numbers
                else as_labels(column)
                for name, column in batch.items()
            }


def count_rows(data: object) -> int:
    """Count the rows of a table, of which the first column is read."""
    source = open_table(data)
    first = source.columns[:1]
    return sum(len(batch[first[0]]) for batch in source.batches(first)) if first else 0


def read_records(data: object, schema: Schema, *, problems: LeavingOut) -> Records:
    """Read a table that fits in memory, check all of it, and leave out rows without a target."""
    stream = SchemaStream(open_table(data), schema)
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
    stream = SchemaStream(open_table(data), schema)
    return Site.of_stream(
        schema,
        stream,
        held_out=held_out,
        dealing=dealing,
        watch=watch,
        row_by_row=row_by_row,
    )
