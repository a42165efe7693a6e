"""The kinds of requests to a member of a run, as named by both coordinator and hospital."""

from enum import StrEnum


class ItemKind(StrEnum):
    """The next request to a member; all except `ended` come with the requesting message."""

    OPENING = "opening"
    """An epoch begins: answered by an `Advert`."""
    ADVERTS = "adverts"
    """The members of the epoch: answered by `Boxes`."""
    AUTHOR = "author"
    """The next task of blind sums: answered by a `Draft`, or an `Endorsement` at the end."""
    TASK = "task"
    """A sum: answered by an `Upload` and its vector."""
    SEAL = "seal"
    """Others do not hold the state of a task: answered by its author's `SealedState`."""
    PROPOSAL = "proposal"
    """The members whose vectors would be summed: answered by a `Certification`."""
    CERTIFICATE = "certificate"
    """The members whose vectors are summed: answered by a `Reveal`."""
    REPAIR = "repair"
    """Shares of a silent member: answered by a `Repair`."""
    ABANDON = "abandon"
    """A slot to abandon: answered by an `Abandonment`."""
    ABANDONED = "abandoned"
    """A slot was abandoned; there is nothing to answer."""
    ENDORSE = "endorse"
    """The finished model: answered by an `Endorsement`."""
    HANDOVER = "handover"
    """The endorsed model of blind sums: answered by the model, or by an `Archive` of it."""
    ENDED = "ended"
    """The run is over; there is nothing to answer."""
