"""What a prediction of the test rows is worth: error, calibration and sharpness, in units.

rmse, nll (natural logarithm, per row), ece, mce and brier on the ten levels 0.05, 0.15 … 0.95, and
width_90, the mean width of the central 90 % interval. A method that only predicts a mean has an
error and nothing else.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from kernels.scores.evaluation import score
from kernels.scores.metrics import LEVELS
from kernels.scores.student_t import StudentT

Scored = Mapping[str, float]

METRICS = "rmse", "rmse_min", "ece", "mce", "brier", "nll", "width_90"

GAUSSIAN = StudentT()


@dataclass(frozen=True, eq=False)
class Belief:
    """Mean and variance, noise included, of standardised targets, (n, 1), and their law.

    variance: None where a method has none.
    """

    mean: Tensor
    variance: Tensor | None = None
    law: StudentT = GAUSSIAN


def rmse(belief: Belief, targets: Tensor) -> float:
    """Return the root mean squared error of standardised targets (n, 1)."""
    return float((belief.mean - targets).square().mean().sqrt())


def scored(belief: Belief, targets: Tensor, *, scale: float) -> Scored:
    """Score standardised targets (n, 1), of which one deviation is `scale` units."""
    found = {"rmse": rmse(belief, targets) * scale}
    if belief.variance is None:
        return found
    scores = score([belief.law], targets - belief.mean, belief.variance)
    return {
        **found,
        "ece": float(scores.ece()),
        "mce": float(scores.mce()),
        "brier": float(scores.brier()),
        "nll": float(scores.nll()) + math.log(scale),
        "width_90": float(scores.width()[0, LEVELS.index(0.9)]) * scale,
    }


def mean_of(scores: Sequence[Scored]) -> Scored:
    """Average each metric that all have.

    >>> mean_of([{"rmse": 1.0, "ece": 0.5}, {"rmse": 2.0}])
    {'rmse': 1.5}
    """
    names = [name for name in scores[0] if all(name in each for each in scores)]
    return {name: sum(each[name] for each in scores) / len(scores) for name in names}
