"""The choice of weights in phase 1, by the error on held-out rows, from one or several passes.

A pass evaluates θ after every step, using the held-out error that its sum includes
(`kernels.rounds.shared.held_out`), and keeps the last θ that is about as good as the best. It ends
after its last step, or after `patience` steps that are worse than the one kept. Among several
passes, each with a different penalty or α, the one whose θ has the lowest error is chosen.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from kernels.errors import ProgramError
from kernels.layer.posterior import Hyperparameters
from kernels.model.model import Model
from kernels.rounds.shared.held_out import keeps

MARGIN = 1e-4
"""How much better a later pass must be to be chosen, as a share of the held-out error: rounding
must not decide between ties, or cohorts that train alike would keep different passes."""


@dataclass(frozen=True, eq=False)
class Kept:
    """θ after `step` steps of a pass, with its σ and λ and, if known, its held-out error."""

    STORED_AS: ClassVar[str] = "judged.kept"

    error: float | None
    weights: Tensor
    hyperparameters: Hyperparameters
    run: int
    step: int

    def restored(self, model: Model) -> Model:
        """Return the model with these weights, σ and λ."""
        return model.advanced(weights=self.weights, hyperparameters=self.hyperparameters)


@dataclass(frozen=True, eq=False)
class Progress:
    """Measurements of θ after `step` steps of a pass: L/n and the held-out mean absolute error."""

    STORED_AS: ClassVar[str] = "judged.progress"

    run: int
    step: int
    evidence: float | None = None
    held_out_error: float | None = None


def kept(now: Kept, before: Kept | None, history: Iterable[Progress]) -> Kept:
    """Return what a pass keeps after evaluating θ: this θ, or what it kept before.

    history: the stage's progress so far, without this θ.
    """
    earlier = (each.held_out_error for each in history if each.run == now.run)
    return now if before is None or keeps(now.error, earlier) else before


def stalled(kept: Kept, *, step: int, patience: int) -> bool:
    """Return whether a pass ends early; with a patience of 0 it never does."""
    return 0 < patience <= step - kept.step


def better(best: Kept | None, of_run: Kept) -> Kept:
    """Return what is kept after a pass has ended: its own choice, or that of earlier passes."""
    if best is None or best.error is None or of_run.error is None:
        return of_run
    return of_run if of_run.error < best.error * (1 - MARGIN) else best


def check_choice(candidates: int, error: float | None, what: str) -> None:
    """Refuse a choice among several passes if no rows are held out to choose by."""
    if error is None and candidates > 1:
        raise ProgramError(
            f"choosing among several {what} needs held-out rows, and no site has any: give only "
            "one, or set the program's held_out above 0"
        )
