"""The kind of a target, from what a table shows of its column; every guess is said.

    two labels, or two whole numbers                            binary
    text with more labels, or few whole numbers                 classes
    whole numbers, of which 0 is the most frequent              count
    other numbers                                               real

What looks like an event by its name ("yes", "1", "dead") is the event; otherwise the rarer level
is. A person must check this: codes are not self-explanatory, and a stay of 1 to 9 whole days looks
like nine codes.
"""

from collections import Counter
from dataclasses import dataclass

from client_sdk.errors import DraftError
from client_sdk.tables.column_seen import ColumnSeen
from client_sdk.tables.draft_limits import FEW_NUMBERS, FEW_ROWS, MOST_LEVELS, UNKNOWN
from kernels.tables.targets import AnyTarget, Binary, Classes, Count, Target, TimeToEvent

_EVENTS = frozenset(
    ("1", "y", "yes", "true", "t", "dead", "died", "death", "deceased", "event", "positive", "case")
)
"""Labels that name an event, in lower case."""


@dataclass(frozen=True)
class DraftedTarget:
    """A target, and sentences on what was guessed."""

    target: AnyTarget
    advice: tuple[str, ...] = ()


def target(name: str, seen: ColumnSeen) -> DraftedTarget:
    """Return the target that a column looks like."""
    labels = tuple(sorted(seen.labels or ()))
    coded = not seen.numeric or seen.whole
    if seen.dates or not (seen.numeric or labels):
        raise DraftError(
            f"the target {name!r} has cells that are not numbers, and no labels of which there are "
            f"at most {MOST_LEVELS}: correct them, or choose another target"
        )
    if coded and len(labels) == 2:
        event, why = _event(seen)
        said = (
            f"it has two levels, so its kind is binary; the event is {event!r}, {why}: change "
            "'event' if the probability of the other level is to be predicted"
        )
        return DraftedTarget(Binary(name, labels, event), (said, *_cells(seen)))
    if not seen.numeric:
        if len(labels) < 2:
            raise DraftError(f"the target {name!r} has one label only: nothing is to be predicted")
        return _classes(name, seen, f"it is text with {len(labels)} labels")
    if _counted(seen):
        return count(name, seen)
    if seen.whole and 2 < len(labels) <= FEW_NUMBERS and seen.rows >= FEW_ROWS * len(labels):
        return _classes(name, seen, f"it has {len(labels)} distinct whole numbers")
    return DraftedTarget(Target(name, UNKNOWN))


def count(
    name: str, seen: ColumnSeen, exposure: str | None = None, of_it: ColumnSeen | None = None
) -> DraftedTarget:
    """Return a count, perhaps with the column of its exposures."""
    if not (seen.numeric and seen.whole):
        raise DraftError(f"the target {name!r} has cells that are not counts: 0, 1, 2 …")
    if of_it is not None and not of_it.numeric:
        raise DraftError(f"the exposure {exposure!r} has cells that are not numbers: correct them")
    own = Count(name, UNKNOWN, exposure=exposure)
    said = []
    if exposure is None:
        said.append(
            "it has whole numbers and 0 is the most frequent, so its kind is count: if it is "
            "a measurement, change 'kind' to real and remove 'exposure'; if rows were observed for "
            "different times, name the column of these times with --exposure"
        )
    beyond = "which values of the table exceed: " if seen.largest > own.upper else ""
    said.append(
        f"'upper' is {own.upper:g}, {beyond}set it to the largest count that is possible, which "
        "is not this table's largest"
    )
    return DraftedTarget(own, (*said, *_cells(seen)))


def time_to_event(
    name: str, times: ColumnSeen, event: str, events: ColumnSeen, *, horizon: float
) -> DraftedTarget:
    """Return a time to an event, with the two labels of its event column."""
    if times.dates or not times.numeric:
        raise DraftError(
            f"the times {name!r} are not numbers: convert them, for instance to days since "
            "admission"
        )
    labels = tuple(sorted(events.labels or ()))
    if len(labels) != 2:
        raise DraftError(
            f"the column {event!r} must have two labels, for an event and for an end of "
            f"observation without it, not {len(labels) or 'many'}: join events of other kinds with "
            "one of them"
        )
    happened, why = _event(events)
    censored = next(label for label in labels if label != happened)
    own = TimeToEvent(name, UNKNOWN, event, horizon=horizon, happened=happened, censored=censored)
    said = (
        f"the event is {happened!r} in {event!r}, {why}, and {censored!r} is the end of "
        "observation without it: exchange 'happened' and 'censored' if it is the other way round"
    )
    return DraftedTarget(own, (said, *_cells(times), *_cells(events)))


def _classes(name: str, seen: ColumnSeen, why: str) -> DraftedTarget:
    labels = tuple(sorted(seen.labels or ()))
    said = [f"{why}, so its kind is classes"]
    if seen.numeric:
        said[0] += (
            ": if it is a measurement or a count, change 'kind' to real or count, and 'levels' to "
            "'unit'"
        )
    if rare := seen.rare_labels:
        said.append(f"fewer than {FEW_ROWS} rows have {rare}: merge them with other classes")
    return DraftedTarget(Classes(name, labels), (*said, *_cells(seen)))


def _event(seen: ColumnSeen) -> tuple[str, str]:
    """Return which of two labels is the event, and why."""
    rows: Counter[str] = seen.labels or Counter()
    named = [label for label in rows if label.strip().lower() in _EVENTS]
    if len(named) == 1:
        return named[0], "by its name"
    return min(sorted(rows, reverse=True), key=lambda label: rows[label]), "the rarer level"


def _counted(seen: ColumnSeen) -> bool:
    """Return whether whole numbers are clearly counts: more than two, and 0 the most frequent."""
    if not seen.whole or seen.rows < FEW_ROWS:
        return False
    if seen.labels is None:
        return seen.zeros >= seen.rows / FEW_ROWS
    return len(seen.labels) > 2 and seen.zeros >= max(seen.labels.values())


def _cells(seen: ColumnSeen) -> tuple[str, ...]:
    if not seen.missing:
        return ()
    return (f"{seen.missing} of {seen.rows} cells are missing: training needs rows without them",)
