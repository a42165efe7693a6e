"""The origin of an error, as a mark on the error: it decides what may be told to whom.

An error of any class can be about this hospital's rows, or be the coordinator's own response. The
class does not show this, so the code that raises the error marks it.
"""

from enum import Enum


class Origin(Enum):
    """The origin of an error; the value is the sentence shown to people at the hospital."""

    OWN_ROWS = (
        "This is about this hospital's own rows: nobody else is told, and to the others this "
        "hospital is absent."
    )
    COORDINATOR = "This message comes from the coordinator."


def mark(error: BaseException, origin: Origin) -> None:
    """Mark an error; marks accumulate and are never removed."""
    vars(error)[_MARKS] = origins_of(error) | {origin}


def origins_of(error: BaseException) -> frozenset[Origin]:
    """Return an error's marks; there are none if this hospital raised it for another reason."""
    marks: frozenset[Origin] = vars(error).get(_MARKS, frozenset())
    return marks


_MARKS = "veilgp_origins"
