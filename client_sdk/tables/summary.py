"""Row counts that a site's policy limits; they are computed and kept at the site."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from client_sdk.tables.outcome_summary import OutcomesSeen, OutcomeSummary, number_columns
from kernels.rounds.site.parts import Part
from kernels.tables.checked_rows import CheckedRows
from kernels.tables.chunks import CHUNK_ROWS
from kernels.tables.schema import Schema

if TYPE_CHECKING:
    from kernels.rounds.site.site import Site

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
        self._least = np.full(len(self._names), np.inf)
        self._most = -self._least

    def look(self, rows: CheckedRows) -> None:
        """Look at further rows."""
        if not len(rows):
            return
        rest = [] if rows.targets is None else [rows.targets]
        rest += [] if rows.outcomes is None else [rows.outcomes[:, self._of_outcomes]]
        least = np.where(rows.missing, np.inf, rows.numeric)
        most = np.where(rows.missing, -np.inf, rows.numeric)
        self._least = np.minimum(self._least, np.concatenate([least, *rest], axis=1).min(0))
        self._most = np.maximum(self._most, np.concatenate([most, *rest], axis=1).max(0))

    def found(self) -> dict[str, tuple[float, float]]:
        """Return the ranges of all columns that have a value."""
        both = zip(self._names, self._least.tolist(), self._most.tolist(), strict=True)
        return {name: (least, most) for name, least, most in both if least <= most}


class _LevelsSeen:
    """The rows of each level of columns and outcomes, in the rows seen so far."""

    def __init__(self, schema: Schema) -> None:
        self._columns = schema.categorical
        self._counts = [np.zeros(len(column.levels), np.int64) for column in self._columns]
        self._outcomes = OutcomesSeen(schema)

    def look(self, rows: CheckedRows) -> None:
        for count, codes in zip(self._counts, rows.levels.T, strict=True):
            count += np.bincount(codes[codes >= 0], minlength=len(count))
        self._outcomes.look(rows)

    def found(self) -> LevelRows:
        """Return the rows of each level that occurs."""
        found = {
            column.name: {
                level: rows
                for level, rows in zip(column.levels, count.tolist(), strict=True)
                if rows
            }
            for column, count in zip(self._columns, self._counts, strict=True)
        }
        of_outcomes = self._outcomes.found()
        return found | {name: rows for each in of_outcomes for name, rows in each.levels().items()}


def summarise(site: "Site") -> TableSummary:
    """Return the counts of a site's rows; its parts are read once."""
    schema, held_out = site.schema, (Part.STOPPING, Part.CALIBRATION)
    ranges, outcomes = Ranges(schema), OutcomesSeen(schema)
    rows = dict.fromkeys((Part.TRAINING, *held_out), 0)
    levels = {part: _LevelsSeen(schema) for part in rows}
    for part in rows:
        for records in site.parts[part].in_pieces(CHUNK_ROWS) if part in site.parts else ():
            rows[part] += len(records)
            for seen in (ranges, outcomes, levels[part]):
                seen.look(records.checked)
    training = rows.pop(Part.TRAINING)
    return TableSummary(
        rows=training + sum(rows.values()),
        training_rows=training,
        level_rows=levels.pop(Part.TRAINING).found(),
        held_out_rows=rows,
        ranges=ranges.found(),
        outcomes=outcomes.found(),
        held_out_level_rows={part: own.found() for part, own in levels.items()},
    )
