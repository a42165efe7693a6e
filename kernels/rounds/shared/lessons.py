"""Parameters of algorithms that distil students on public rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from kernels.ensembles.distilled import DIVERGENCE_STEP, Lesson
from kernels.ensembles.interpolation import BETA_STEP
from kernels.ensembles.student_network import PARAMETER_STEP, StudentSpec
from kernels.errors import ProgramError
from kernels.model.model import Model
from kernels.parameter_checks import check_learning_rate, check_whole
from kernels.rounds.replay import Grid, Step
from kernels.rounds.shared.local_network import OfNetworks
from kernels.rounds.shared.public_set import MOST_PUBLIC_ROWS, Columns, checked, public_inputs


@dataclass(frozen=True, kw_only=True)
class OfPublicRows(OfNetworks):
    """The public rows, and how students are distilled.

    public: `columns_of` a table with the schema's features, in their units; labels are read only
    if an algorithm states so.
    extra_rows: the number of additional rows made from the public ones, so that students see more
    of their teachers.
    distillation_epochs, distillation_rate: the epochs and learning rate of each student, which has
    the same hidden layers as the sites' networks.
    """

    public: Columns
    extra_rows: int = 2000
    distillation_epochs: int = 60
    distillation_rate: float = 0.005

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "public", checked(self.public))
        check_whole(0, extra_rows=self.extra_rows)
        check_whole(1, distillation_epochs=self.distillation_epochs)
        check_learning_rate(distillation_rate=self.distillation_rate)
        if self.public_rows > MOST_PUBLIC_ROWS:
            raise ProgramError(
                f"extra_rows plus the public rows must be at most {MOST_PUBLIC_ROWS}, not "
                f"{self.public_rows}"
            )

    @property
    def public_rows(self) -> int:
        """Return K, the number of public rows including the extra ones."""
        return len(self.public[0][1]) + self.extra_rows

    @property
    def lesson(self) -> Lesson:
        """Return how students are distilled."""
        return Lesson(
            epochs=self.distillation_epochs,
            learning_rate=self.distillation_rate,
            seed=self.seed,
        )

    def student(self, model: Model) -> StudentSpec:
        """Return the specification of the students' network."""
        return StudentSpec(inputs=model.kernel.inputs, targets=model.targets, hidden=self.hidden)

    def inputs(self, model: Model) -> Tensor:
        """Return the rows that sites predict, (K, p)."""
        return public_inputs(self.public, model, extra_rows=self.extra_rows, seed=self.seed)


STUDENTS: Mapping[str, Grid] = MappingProxyType(
    {
        "model.distilled.students.parameters": Step(PARAMETER_STEP),
        "model.distilled.students.divergence": Step(DIVERGENCE_STEP),
        "model.distilled.beta": Step(BETA_STEP),
    }
)
"""The grids of a model's students and of β."""
