"""The changes that a run's methods return, to be stored."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Closed:
    """The members of the epoch are fixed."""


@dataclass(frozen=True)
class Restarted:
    """The epoch, and the current sum if any, is abandoned for a new epoch."""


@dataclass(frozen=True)
class Began:
    """A sum has started."""


@dataclass(frozen=True)
class Proposed:
    """The survivors of the sum are fixed; no more vectors are accepted."""


@dataclass(frozen=True)
class RepairRequested:
    """Survivors are requested to send their shares of silent survivors' keys."""


@dataclass(frozen=True)
class Summed:
    """The total of a blind sum is there for members to read; one of them writes the next task."""


@dataclass(frozen=True)
class Asked:
    """One more member is asked for the next task of blind sums, or for the model."""


@dataclass(frozen=True)
class Abandoning:
    """Members are requested to abandon the sum: too many do not hold the state of its task."""


@dataclass(frozen=True)
class Finished:
    """The program is finished; members are requested to endorse its model."""


@dataclass(frozen=True)
class Endorsed:
    """Enough members have endorsed the model, or it stays without a certificate."""


@dataclass(frozen=True)
class Refused:
    """The run continues without a member that refuses."""

    key: bytes


@dataclass(frozen=True)
class Returned:
    """A member that was left out of the current sum takes part in the next one again."""

    key: bytes


@dataclass(frozen=True)
class Ended:
    """The run has ended."""


Change = (
    Closed
    | Restarted
    | Began
    | Proposed
    | RepairRequested
    | Summed
    | Asked
    | Abandoning
    | Finished
    | Endorsed
    | Refused
    | Returned
    | Ended
)
