"""Where an error came from, as a mark on the error: what may be said about it, and to whom.

An error of any class can be about this hospital's rows, or be the coordinator's own answer. The
class does not tell; the place that raised it does, and marks it.
"""

from enum import Enum


class Origin(Enum):
    """Where an error came from; the value is the sentence that the hospital's people read."""

    OWN_ROWS = "This is about this hospital's own rows: the coordinator hears only that it refuses."
    COORDINATOR = "This is the coordinator's own answer."


def mark(error: BaseException, origin: Origin) -> None:
    """Mark an error; marks add up and are never taken off."""
    vars(error)[_MARKS] = origins_of(error) | {origin}


def origins_of(error: BaseException) -> frozenset[Origin]:
    """Return an error's marks; one that this hospital raised for another reason has none."""
    marks: frozenset[Origin] = vars(error).get(_MARKS, frozenset())
    return marks


_MARKS = "veilgp_origins"
