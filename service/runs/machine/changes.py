"""What `Run.advance` and `Run.settle` have changed, for whoever stores it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Closed:
    """The members of the epoch are settled."""


@dataclass(frozen=True)
class Restarted:
    """The epoch is given up for a new one, and any sum under way with it."""


@dataclass(frozen=True)
class Began:
    """A sum has begun."""


@dataclass(frozen=True)
class Proposed:
    """No more vectors are taken: the survivors are settled."""


@dataclass(frozen=True)
class RepairRequested:
    """Survivors are asked for their shares of silent ones' keys."""


@dataclass(frozen=True)
class Refused:
    """The run goes on without a member that will not."""

    key: bytes


@dataclass(frozen=True)
class Returned:
    """A member that was left out of the sum under way is in the next one again."""

    key: bytes


@dataclass(frozen=True)
class Ended:
    """The run is over."""


Change = Closed | Restarted | Began | Proposed | RepairRequested | Refused | Returned | Ended
