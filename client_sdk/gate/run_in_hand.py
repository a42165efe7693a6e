"""A run that this hospital takes part in, as it remembers it."""

from dataclasses import dataclass
from uuid import UUID

from kernels.rounds.program import Program
from kernels.rounds.task import program_digest, task_parameters


@dataclass(frozen=True)
class RunInHand:
    """The program and seed of a run; `text` is the program as it was received."""

    session: UUID
    run: UUID
    kind: str
    text: str
    program: Program
    seed: int

    def parameters(self, stage: int) -> bytes:
        """Return the parameters that a task of this run must have at a stage."""
        program = program_digest(self.text)
        return task_parameters(program=program, run_kind=self.kind, seed=self.seed, stage=stage)
