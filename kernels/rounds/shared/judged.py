"""Which weights a phase 1 keeps: those that held-out rows choose, of one pass or of several.

A pass judges θ after every step, by the held-out error that its sum has along
(`kernels.rounds.shared.held_out`), and keeps the last θ about as good as the best. It ends after
its last step, or after `patience` steps worse than the one kept. Of several passes, each with
another penalty or another α, the one whose θ has the lowest error is taken.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from kernels.errors import ProgramError
from kernels.layer.posterior import Hyperparameters, Spectrum
from kernels.layer.refit import refit
from kernels.layer.statistics import Statistics
from kernels.model.model import Model
from kernels.rounds.shared.held_out import keeps

MARGIN = 1e-4
"""By what share of the held-out error a later pass must be better to be taken: rounding must not
choose among ties, or cohorts that train alike would keep different ones."""


@dataclass(frozen=True, eq=False)
class Kept:
    """θ after `step` steps of a pass, with its σ and λ and its held-out error, if there is one."""

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
    """What is known of θ after `step` steps of a pass: L/n and the held-out mean absolute error."""

    STORED_AS: ClassVar[str] = "judged.progress"

    run: int
    step: int
    evidence: float | None = None
    held_out_error: float | None = None


@dataclass(frozen=True, eq=False)
class PooledLayer:
    """The linear layer at one θ, fitted to all rows: σ and λ, w̄ (M, T), and L/n."""

    hyperparameters: Hyperparameters
    posterior_weights: Tensor
    evidence: float

    @classmethod
    def of(cls, statistics: Statistics, scales: Hyperparameters | None = None) -> "PooledLayer":
        """Fit it to pooled statistics; σ and λ too where they are not given."""
        spectrum = Spectrum.of(statistics)
        scales = refit(spectrum) if scales is None else scales
        evidence = -float(spectrum.log_evidence(scales).sum()) / max(spectrum.count, 1)
        return cls(scales, spectrum.posterior_weights(scales), evidence)


def kept(now: Kept, before: Kept | None, history: Iterable[Progress]) -> Kept:
    """Return what a pass keeps once θ is judged: that θ, or what it kept before.

    history: of the stage so far, without this θ.
    """
    earlier = (each.held_out_error for each in history if each.run == now.run)
    return now if before is None or keeps(now.error, earlier) else before


def stalled(kept: Kept, *, step: int, patience: int) -> bool:
    """Say whether a pass ends early; with a patience of 0 it never does."""
    return 0 < patience <= step - kept.step


def better(best: Kept | None, of_run: Kept) -> Kept:
    """Return what is kept once a pass has ended: what it kept, or what passes before it did."""
    if best is None or best.error is None or of_run.error is None:
        return of_run
    return of_run if of_run.error < best.error * (1 - MARGIN) else best


def check_choice(candidates: int, error: float | None, what: str) -> None:
    """Refuse several passes to choose from where no rows are held out to choose by."""
    if error is None and candidates > 1:
        raise ProgramError(
            f"choosing among several {what} needs held-out rows, and no site has any: give only "
            "one, or set the program's held_out above 0"
        )
