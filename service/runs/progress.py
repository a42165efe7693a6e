"""What an open run shows of itself: to admins, and with every item to its members."""

from dataclasses import dataclass

from service.runs.machine.state import RunState


@dataclass(frozen=True)
class Progress:
    """How far an open run is, and whose answers it waits for, by name."""

    number: int
    """Of the epoch."""
    stage: int
    stages: int
    algorithm: str
    sums: int
    deadline_at: float
    awaited: tuple[str, ...]

    @classmethod
    def of(cls, run: RunState) -> "Progress":
        """Look at a run."""
        return cls(
            number=run.epoch.number,
            stage=run.position.stage,
            stages=len(run.plan.program.stages),
            algorithm=run.position.algorithm.NAME,
            sums=run.sums,
            deadline_at=run.plan.deadline_at,
            awaited=tuple(member.name for member in run.awaited),
        )
