"""What `client_sdk.check_table` found in a table, by column, as plain data for the site's own eyes.

It has cells of the table: values that do not fit, ranges, levels. So it is returned and printed at
home, and never part of an exception: those travel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from client_sdk.tables.draft_limits import FEW_ROWS
from client_sdk.tables.outcome_summary import OutcomeSummary


@dataclass(frozen=True)
class BadCell:
    """A cell that does not fit the schema, as text; how many cells are alike, and the first row.

    rows are counted from 0, as in the messages of a refused table.
    """

    text: str
    count: int
    row: int

    def __str__(self) -> str:
        more = f", {self.count} times" if self.count > 1 else ""
        return f"{self.text} (row {self.row}{more})"


@dataclass(frozen=True)
class Misfit:
    """Something because of which the table does not fit the schema.

    column: None if it is about the whole table. cells: what is there instead, the most frequent
    cells first.
    """

    column: str | None
    sentence: str
    cells: tuple[BadCell, ...] = ()


@dataclass(frozen=True)
class ColumnReport:
    """One column of the schema as the table has it.

    role: feature, target or patient. kind: as in the schema; that of the target for all columns
    that it reads. coded: how many of the missing cells have one of the column's missing codes.
    levels: rows of each level that the schema has, in its order; empty for numbers. other_levels:
    rows with any other label. least, most: the range of the numbers that are there. doubts: what a
    person should look at.
    """

    name: str
    role: str
    kind: str
    unit: str | None = None
    rows: int = 0
    missing: int = 0
    coded: int = 0
    levels: Mapping[str, int] = field(default_factory=dict)
    other_levels: int = 0
    least: float | None = None
    most: float | None = None
    lower: float | None = None
    upper: float | None = None
    doubts: tuple[str, ...] = ()

    @property
    def missing_rate(self) -> float:
        """The share of cells that are missing, from 0 to 1."""
        return self.missing / self.rows if self.rows else 0.0

    @property
    def rare_levels(self) -> Mapping[str, int]:
        """The levels that occur in fewer than `FEW_ROWS` rows."""
        return {level: rows for level, rows in self.levels.items() if 0 < rows < FEW_ROWS}


@dataclass(frozen=True)
class TableReport:
    """A table compared with a schema; nothing of it leaves the hospital.

    without_target: rows that will be left out because a target is missing. fewest_level_rows: how
    many of the other rows the rarest level has. outcomes: how targets that are not real numbers are
    read; empty if the table does not fit. ignored: columns that the schema does not name.
    """

    name: str
    rows: int
    without_target: int
    columns: tuple[ColumnReport, ...]
    misfits: tuple[Misfit, ...]
    fewest_level_rows: int | None = None
    outcomes: tuple[OutcomeSummary, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether a session with this schema accepts the table."""
        return not self.misfits

    def column(self, name: str) -> ColumnReport:
        """Return the report of one column."""
        return next(own for own in self.columns if own.name == name)
