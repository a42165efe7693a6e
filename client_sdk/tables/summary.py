"""Row counts that a site's policy limits; they are computed and kept at the site."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from client_sdk.tables.outcome_summary import OutcomesSeen, OutcomeSummary, number_columns
from kernels.rounds.site.site import Part, Site
from kernels.tables.chunks import CHUNK_ROWS
from kernels.tables.records import Records
from kernels.tables.schema import Schema

LevelRows = Mapping[str, Mapping[str, int]]
"""For each column with levels, the number of rows of each level that occurs."""


@dataclass(frozen=True)
class TableSummary:
    """Counts of rows.

    rows: rows of the whole table.
    training_rows: rows in the training part.
    level_rows: for each categorical column, the training rows of each level that occurs.
    held_out_rows: rows in each of the other parts. held_out_level_rows: for each of these parts,
    what `level_rows` is for training.
    level_rows has the levels of outcomes too: whether a row has an event, and its class.
    ranges: the least and greatest value of each numeric column and of each number of a target, over
    all rows.
    outcomes: how the targets that are not real numbers are read, over all rows; shown only here.
    """

    rows: int
    training_rows: int
    level_rows: LevelRows
    held_out_rows: Mapping[Part, int] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    outcomes: Sequence[OutcomeSummary] = ()
    held_out_level_rows: Mapping[Part, LevelRows] = field(default_factory=dict)

    def rows_in(self, parts: Collection[Part]) -> int:
        """Return the number of rows of some parts together."""
        own = {Part.TRAINING: self.training_rows, **self.held_out_rows}
        return sum(own.get(part, 0) for part in parts)

    def level_rows_in(self, parts: Collection[Part]) -> LevelRows:
        """Return the rows of each level that occurs in some parts together."""
        of_part = {Part.TRAINING: self.level_rows, **self.held_out_level_rows}
        found: dict[str, dict[str, int]] = {}
        for part in parts:
            for column, levels in of_part.get(part, {}).items():
                own = found.setdefault(column, {})
                for level, rows in levels.items():
                    own[level] = own.get(level, 0) + rows
        return found

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
    schema, held_out = site.schema, (Part.STOPPING, Part.CALIBRATION)
    ranges, outcomes = Ranges(schema), OutcomesSeen(schema)
    levels = {
        part: _level_rows(site, part, ranges, outcomes) for part in (Part.TRAINING, *held_out)
    }
    rows = {part: site.count(part) for part in held_out}
    training = site.count(Part.TRAINING)
    return TableSummary(
        rows=training + sum(rows.values()),
        training_rows=training,
        level_rows=levels.pop(Part.TRAINING),
        held_out_rows=rows,
        ranges=ranges.found(),
        outcomes=outcomes.found(),
        held_out_level_rows=levels,
    )


def _level_rows(site: Site, part: Part, ranges: Ranges, outcomes: OutcomesSeen) -> LevelRows:
    """Return the rows of each level of a part; ranges and outcomes look at its rows too."""
    columns, own = site.schema.categorical, OutcomesSeen(site.schema)
    counts = [torch.zeros(len(column.levels), dtype=torch.int64) for column in columns]
    pieces = site.parts[part].in_pieces(CHUNK_ROWS) if part in site.parts else ()
    for records in pieces:
        ranges.look(records)
        outcomes.look(records)
        own.look(records)
        for count, codes in zip(counts, records.levels.unbind(1), strict=True):
            count += torch.bincount(codes[codes >= 0], minlength=len(count))
    found = {
        column.name: {
            level: rows for level, rows in zip(column.levels, count.tolist(), strict=True) if rows
        }
        for column, count in zip(columns, counts, strict=True)
    }
    return found | {name: rows for each in own.found() for name, rows in each.levels().items()}
