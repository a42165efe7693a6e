"""A run that this hospital takes part in, as it remembers it."""

from dataclasses import dataclass
from uuid import UUID

from client_sdk.errors import WrongTask
from kernels.errors import ProgramError
from kernels.rounds.program import Program
from kernels.rounds.task import place_in, program_digest, run_digest, task_parameters
from privacy.securesum.messages import Task


@dataclass(frozen=True)
class RunInHand:
    """The program of a run; `text` is the program as it was received."""

    session: UUID
    run: UUID
    kind: str
    text: str
    program: Program
    parent: str | None
    """The id of the model that the run starts from."""

    @property
    def digest(self) -> str:
        """The digest of everything that the run computes."""
        return run_digest(self.text, run_kind=self.kind, parent=self.parent)

    def parameters(self, stage: int, sum_index: int) -> bytes:
        """Return the parameters of the run's task at a place."""
        return task_parameters(
            program=program_digest(self.text),
            run_kind=self.kind,
            parent=self.parent,
            stage=stage,
            sum_index=sum_index,
        )

    def place(self, task: Task) -> tuple[int, int]:
        """Return stage and sum index of a task; refuse a task of another run or program."""
        try:
            stage, sum_index = place_in(task.parameters)
        except ProgramError as error:
            raise WrongTask(str(error)) from error
        if task.parameters != self.parameters(stage, sum_index):
            raise WrongTask("the task's program or kind differs from the run's")
        if stage >= len(self.program.stages):
            raise WrongTask(
                f"the task is for stage {stage} (counted from 0), but the program has only "
                f"{len(self.program.stages)} stages"
            )
        return stage, sum_index
