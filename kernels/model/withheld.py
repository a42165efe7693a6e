"""The layers of a model before held-out rows were added to them."""

from dataclasses import dataclass
from typing import ClassVar

from kernels.layer.posterior import Hyperparameters
from kernels.layer.statistics import Statistics
from kernels.outcomes.fitted import FittedOutcome


@dataclass(frozen=True, eq=False)
class Withheld:
    """The layers before held-out rows were added to them: those that held-out rows are judged by.

    statistics, hyperparameters: of the targets that are real numbers. outcomes: of all others.
    """

    STORED_AS: ClassVar[str] = "withheld"

    statistics: Statistics | None
    hyperparameters: Hyperparameters | None
    outcomes: tuple[FittedOutcome, ...] | None
