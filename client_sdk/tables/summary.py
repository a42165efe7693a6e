"""Row counts that a site's policy limits; they are computed and kept at the site."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from kernels.rounds.site.site import Part, Site
from kernels.tables.chunks import CHUNK_ROWS


@dataclass(frozen=True)
class TableSummary:
    """Counts of rows.

    rows: rows of the whole table.
    training_rows: rows in the training part.
    level_rows: for each categorical column, the training rows of each level that occurs.
    held_out_rows: rows in each of the other parts.
    """

    rows: int
    training_rows: int
    level_rows: Mapping[str, Mapping[str, int]]
    held_out_rows: Mapping[Part, int] = field(default_factory=dict)

    @property
    def fewest_level_rows(self) -> int | None:
        """The minimum of `level_rows`; None without categorical columns."""
        counts = [count for levels in self.level_rows.values() for count in levels.values()]
        return min(counts, default=None)


def summarise(site: Site) -> TableSummary:
    """Return the counts of a site's rows; its training part is read once."""
    training = site.parts[Part.TRAINING]
    columns = training.schema.categorical
    counts = [torch.zeros(len(column.levels), dtype=torch.int64) for column in columns]
    for records in training.in_pieces(CHUNK_ROWS):
        for count, codes in zip(counts, records.levels.unbind(1), strict=True):
            count += torch.bincount(codes[codes >= 0], minlength=len(count))
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
        },
        held_out_rows=held_out,
    )
