"""How a site's outcomes are read: events, classes, counts and times, for the site's own eyes.

`veilgp check` shows this, so that a wrong event, unit or code is noticed before a session. Nothing
of it leaves the hospital.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kernels.tables.checked_rows import CheckedRows
from kernels.tables.outcome_cells import positions
from kernels.tables.schema import Schema
from kernels.tables.targets import Binary, Classes, Count, Outcome, TimeToEvent


@dataclass(frozen=True)
class LevelsSummary:
    """The rows of each level of a binary target, or of classes."""

    outcome: Binary | Classes
    rows: tuple[int, ...]
    """In the order of the outcome's levels."""

    @property
    def name(self) -> str:
        """The target's name."""
        return self.outcome.name

    def levels(self) -> Mapping[str, Mapping[str, int]]:
        """Return the rows of each level that occurs, under the name of its column."""
        both = zip(self.outcome.levels, self.rows, strict=True)
        return {self.name: {level: rows for level, rows in both if rows}}

    def doubts(self) -> list[str]:
        """Return what a person should look at."""
        present = self.levels()[self.name]
        if len(present) == 1:
            return [f"all rows here have {next(iter(present))!r}: is the column the right one?"]
        absent = [repr(level) for level in self.outcome.levels if level not in present]
        return [f"no row here has {', '.join(absent)}: is the spelling right?"] if absent else []

    def look(self, columns: NDArray[np.float64]) -> "LevelsSummary":
        """Return the summary with further rows."""
        codes, levels = columns[:, 0].astype(np.int64), self.outcome.levels
        if isinstance(self.outcome, Binary):
            event = levels.index(self.outcome.event)
            codes = np.where(codes == 1, event, 1 - event)
        more = np.bincount(codes, minlength=len(levels)).tolist()
        return replace(self, rows=tuple(a + b for a, b in zip(self.rows, more, strict=True)))

    def __str__(self) -> str:
        if isinstance(self.outcome, Binary):
            events = self.rows[self.outcome.levels.index(self.outcome.event)]
            share = _percent(events, sum(self.rows))
            return f"{self.name}: {events} events ({self.outcome.event!r}), {share} of all rows"
        both = zip(self.outcome.levels, self.rows, strict=True)
        return f"{self.name}: " + ", ".join(f"{level!r} {rows}" for level, rows in both)


@dataclass(frozen=True)
class CountSummary:
    """The rows, their counts and exposures."""

    outcome: Count
    rows: int = 0
    total: float = 0.0
    largest: float = 0.0
    zeros: int = 0
    exposure: float = 0.0

    @property
    def name(self) -> str:
        """The target's name."""
        return self.outcome.name

    def levels(self) -> Mapping[str, Mapping[str, int]]:
        """Return nothing: a count has no levels."""
        return {}

    def doubts(self) -> list[str]:
        """Return what a person should look at."""
        if self.rows and self.zeros == self.rows:
            return ["all counts here are 0: is the column the right one?"]
        return []

    def look(self, columns: NDArray[np.float64]) -> "CountSummary":
        """Return the summary with further rows."""
        counts = columns[:, 0]
        return CountSummary(
            self.outcome,
            self.rows + len(counts),
            self.total + float(counts.sum()),
            float(counts.max(initial=self.largest)),
            self.zeros + int((counts == 0).sum()),
            self.exposure + float(columns[:, 1].sum()),
        )

    def __str__(self) -> str:
        mean = self.total / max(self.rows, 1)
        text = (
            f"{self.name}: {mean:.3g} {self.outcome.unit} per row, at most {self.largest:g}, "
            f"{_percent(self.zeros, self.rows)} of all rows have 0"
        )
        if self.outcome.exposure is None:
            return text
        rate = self.total / self.exposure if self.exposure else 0.0
        return f"{text}; {rate:.3g} per unit of {self.outcome.exposure!r}"


@dataclass(frozen=True)
class TimeSummary:
    """The rows with an event, and those of which little or nothing is known.

    at_zero: events at time 0, which belong to the first interval. late: events after the last edge,
    which count as survived. unknown: rows that were censored before the first edge, of which
    nothing is learned.
    """

    outcome: TimeToEvent
    events: int = 0
    censored: int = 0
    at_zero: int = 0
    late: int = 0
    unknown: int = 0

    @property
    def name(self) -> str:
        """The target's name."""
        return self.outcome.name

    def levels(self) -> Mapping[str, Mapping[str, int]]:
        """Return the rows with and without an event, under the name of the event's column."""
        both = {self.outcome.happened: self.events, self.outcome.censored: self.censored}
        return {self.outcome.event: {level: rows for level, rows in both.items() if rows}}

    def doubts(self) -> list[str]:
        """Return what a person should look at."""
        found, rows = [], self.events + self.censored
        if rows and not self.events:
            found.append("no event here: is 'happened' the right label?")
        elif rows and not self.censored:
            found.append("every row here has the event: is 'censored' the right label?")
        if self.at_zero:
            found.append(f"{self.at_zero} events are at time 0: is it the origin of time?")
        if 2 * self.late > self.events:
            found.append(
                "most events are after the last edge: is the unit of 'horizon' the times'?"
            )
        if 2 * self.unknown > rows:
            found.append("most rows were observed for less than one interval: choose shorter ones")
        return found

    def look(self, columns: NDArray[np.float64]) -> "TimeSummary":
        """Return the summary with further rows."""
        times, happened = columns[:, 0], columns[:, 1] == 1
        first, last = self.outcome.intervals[0], self.outcome.intervals[-1]
        return TimeSummary(
            self.outcome,
            self.events + int(happened.sum()),
            self.censored + int((~happened).sum()),
            self.at_zero + int((happened & (times == 0)).sum()),
            self.late + int((happened & (times > last)).sum()),
            self.unknown + int((~happened & (times < first)).sum()),
        )

    def __str__(self) -> str:
        share = _percent(self.events, self.events + self.censored)
        last = f"{self.outcome.intervals[-1]:g} {self.outcome.unit}"
        return (
            f"{self.name}: {self.events} events ({share} of all rows), {self.late} of them after "
            f"{last}; {self.censored} rows without an event, {self.unknown} of them observed for "
            "less than one interval"
        )


OutcomeSummary = LevelsSummary | CountSummary | TimeSummary


class OutcomesSeen:
    """The summaries of all outcomes, over the rows seen so far."""

    def __init__(self, schema: Schema) -> None:
        self._where = positions(schema.outcomes)
        self._found = [_nothing_of(outcome) for outcome in schema.outcomes]

    def look(self, rows: CheckedRows) -> None:
        """Look at further rows."""
        if rows.outcomes is None or not len(rows):
            return
        columns = [rows.outcomes[:, where] for where in self._where]
        self._found = [own.look(columns[place]) for place, own in enumerate(self._found)]

    def found(self) -> tuple[OutcomeSummary, ...]:
        """Return the summaries, in the order of the schema."""
        return tuple(self._found)


def number_columns(outcomes: Sequence[Outcome]) -> dict[int, str]:
    """Return the table's columns of numbers, by their positions among those of all outcomes."""
    found = {}
    for outcome, where in zip(outcomes, positions(tuple(outcomes)), strict=True):
        match outcome:
            case Count():
                found[where.start] = outcome.name
                if outcome.exposure is not None:
                    found[where.start + 1] = outcome.exposure
            case TimeToEvent():
                found[where.start] = outcome.name
    return found


def _nothing_of(outcome: Outcome) -> OutcomeSummary:
    match outcome:
        case Binary() | Classes():
            return LevelsSummary(outcome, (0,) * len(outcome.levels))
        case Count():
            return CountSummary(outcome)
        case TimeToEvent():
            return TimeSummary(outcome)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.3g} %"
