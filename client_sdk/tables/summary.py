"""Row counts that a site's policy limits; they are computed and kept at the site."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from client_sdk.tables.outcome_summary import OutcomesSeen, OutcomeSummary, number_columns
from kernels.rounds.site.site import Part, Site
from kernels.tables.chunks import CHUNK_ROWS
from kernels.tables.records import Records
from kernels.tables.schema import Schema


@dataclass(frozen=True)
class TableSummary:
    """Counts of rows.

    rows: rows of the whole table.
    training_rows: rows in the training part.
    level_rows: for each categorical column, the training rows of each level that occurs.
    held_out_rows: rows in each of the other parts.
    level_rows has the levels of outcomes too: whether a row has an event, and its class.
    ranges: the least and greatest value of each numeric column and of each number of a target, over
    all rows.
    outcomes: how the targets that are not real numbers are read, over all rows; shown only here.
    """

    rows: int
    training_rows: int
    level_rows: Mapping[str, Mapping[str, int]]
    held_out_rows: Mapping[Part, int] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    outcomes: Sequence[OutcomeSummary] = ()

    @property
    def fewest_level_rows(self) -> int | None:
        """The minimum of `level_rows`; None without levels."""
        counts = [count for levels in self.level_rows.values() for count in levels.values()]
        return min(counts, default=None)


class Ranges:
    """The least and greatest value of each number in the rows seen so far."""

    def __init__(self, schema: Schema) -> None:
        numbers = number_columns(schema.outcomes)
        self._names = [column.name for column in schema.numeric]
        self._names += [target.name for target in schema.real] + [*numbers.values()]
        self._of_outcomes = [*numbers]
        self._least = torch.full((len(self._names),), torch.inf, dtype=torch.float64)
        self._most = -self._least

    def look(self, records: Records) -> None:
        """Look at further rows."""
        if not len(records):
            return
        rest = [] if records.targets is None else [records.targets]
        rest += [] if records.outcomes is None else [records.outcomes[:, self._of_outcomes]]
        least = records.numeric.masked_fill(records.missing, torch.inf)
        most = records.numeric.masked_fill(records.missing, -torch.inf)
        self._least = self._least.minimum(torch.cat([least, *rest], dim=1).amin(0))
        self._most = self._most.maximum(torch.cat([most, *rest], dim=1).amax(0))

    def found(self) -> dict[str, tuple[float, float]]:
        """Return the ranges of all columns that have a value."""
        both = zip(self._names, self._least.tolist(), self._most.tolist(), strict=True)
        return {name: (least, most) for name, least, most in both if least <= most}


def summarise(site: Site) -> TableSummary:
    """Return the counts of a site's rows; its parts are read once."""
    training = site.parts[Part.TRAINING]
    columns = training.schema.categorical
    counts = [torch.zeros(len(column.levels), dtype=torch.int64) for column in columns]
    ranges, outcomes = Ranges(training.schema), OutcomesSeen(training.schema)
    for records in training.in_pieces(CHUNK_ROWS):
        ranges.look(records)
        outcomes.look(records)
        for count, codes in zip(counts, records.levels.unbind(1), strict=True):
            count += torch.bincount(codes[codes >= 0], minlength=len(count))
    # Those of training rows, before the others are looked at.
    of_outcomes = {name: rows for own in outcomes.found() for name, rows in own.levels().items()}
    for part in (Part.STOPPING, Part.CALIBRATION):
        if part in site.parts:
            for records in site.parts[part].in_pieces(CHUNK_ROWS):
                ranges.look(records)
                outcomes.look(records)
    held_out = {part: site.count(part) for part in (Part.STOPPING, Part.CALIBRATION)}
    return TableSummary(
        rows=len(training) + sum(held_out.values()),
        training_rows=len(training),
        level_rows={
            column.name: {
                level: rows
                for level, rows in zip(column.levels, count.tolist(), strict=True)
                if rows
            }
            for column, count in zip(columns, counts, strict=True)
        }
        | of_outcomes,
        held_out_rows=held_out,
        ranges=ranges.found(),
        outcomes=outcomes.found(),
    )
