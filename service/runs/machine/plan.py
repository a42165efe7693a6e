"""What is fixed when a run starts, its status, and how it ended."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from kernels.rounds.program import Program
from kernels.rounds.task import program_digest


class Status(StrEnum):
    """The status of a run."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN = (Status.WAITING, Status.RUNNING)


@dataclass(frozen=True, eq=False)
class Plan:
    """What is fixed when a run starts; times are in seconds."""

    id: str
    session_id: str
    kind: str
    program: Program
    text: str
    """The program's JSON, as every member receives it."""
    base_model: str | None
    """The id of the model that the run starts from."""
    deadline_at: float
    repair_after_s: float
    restart_after_s: float
    author_after_s: float
    gather_s: float
    leave_out_after_s: float
    max_vector: int
    """The most elements of one sum."""

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the program's text."""
        return program_digest(self.text)


@dataclass(frozen=True)
class Ending:
    """How a run ended; `code` and `detail` are None if it is done."""

    status: Status
    code: str | None = None
    detail: str | None = None
