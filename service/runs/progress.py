"""The progress of an open run, shown to admins and sent to members with every item."""

from dataclasses import dataclass

from kernels.rounds.registry import algorithm_of
from service.runs.machine.state import RunState


@dataclass(frozen=True)
class Progress:
    """The progress of an open run, and the names of the members it waits for."""

    number: int
    """Number of the epoch."""
    stage: int
    stages: int
    algorithm: str
    sums: int
    deadline_at: float
    awaited: tuple[str, ...]

    @classmethod
    def of(cls, run: RunState) -> "Progress":
        """Return the progress of a run."""
        return cls(
            number=run.epoch.number,
            stage=run.stage,
            stages=len(run.plan.program.stages),
            algorithm=algorithm_of(run.plan.program.stages[run.stage]).NAME,
            sums=run.sums,
            deadline_at=run.plan.deadline_at,
            awaited=tuple(member.name for member in run.awaited),
        )
