"""What a member of a run can be asked for next; coordinator and hospital name it by these words."""

from enum import StrEnum


class ItemKind(StrEnum):
    """What a member is asked for next; all but `ended` come with the message that asks for it."""

    OPENING = "opening"
    """An epoch begins: answered by an `Advert`."""
    ADVERTS = "adverts"
    """Who takes part: answered by `Boxes`."""
    TASK = "task"
    """A sum: answered by an `Upload` and its vector."""
    PROPOSAL = "proposal"
    """Whose vectors would be summed: answered by a `Certification`."""
    CERTIFICATE = "certificate"
    """Whose vectors are summed: answered by a `Reveal`."""
    REPAIR = "repair"
    """Shares of a member that fell silent: answered by a `Repair`."""
    ABANDON = "abandon"
    """A slot is to be given up: answered by an `Abandonment`."""
    ABANDONED = "abandoned"
    """A slot was given up; there is nothing to answer."""
    ENDED = "ended"
    """The run is over; there is nothing to answer."""
