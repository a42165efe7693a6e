"""The columns of a table that a schema names, as cells, in pieces."""

from collections.abc import Callable, Iterator, Mapping

from client_sdk.tables.opening import open_table
from client_sdk.tables.source import TableSource
from kernels.tables.arrow_cells import Column, as_labels, as_numbers
from kernels.tables.outcome_cells import label_columns
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


def stream_of(data: object, schema: Schema) -> SchemaStream:
    """Open a table, and return the schema's columns of it."""
    return SchemaStream(open_table(data), schema)


def count_rows(data: object) -> int:
    """Count the rows of a table, of which the first column is read."""
    source = open_table(data)
    first = source.columns[:1]
    return sum(len(batch[first[0]]) for batch in source.batches(first)) if first else 0
