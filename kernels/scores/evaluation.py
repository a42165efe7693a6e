"""Scores of a model on held-out rows, as sums with known bounds.

`score` is `Scores.of` for any law of z = (y − μ)/√v, on the standardised scale. A secure sum needs
a bound on what is summed, and one row must not make a finished training fail in its evaluation. So
each row's losses are clipped at values that no usable model reaches: residuals at ±200 deviations
of the target, log losses at ±10,000 nats, intervals at a width of 10,000 deviations.

In a target's unit of size `scale`: errors, CRPS, widths and interval scores are multiplied by
`scale`, squares by its square, and log `scale` is added to the NLL (a density per unit, not per
deviation).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from kernels.errors import StatisticsError
from kernels.scores.metrics import LEVELS, Scores, count_intervals
from kernels.scores.student_t import StudentT
from kernels.tables.standardiser import Standardiser

RESIDUAL_BOUND = 200.0
LOG_LOSS_BOUND = 1e4
WIDTH_BOUND = 1e4
INTERVAL_LOSS_BOUND = WIDTH_BOUND + 2 / (1 - max(LEVELS)) * RESIDUAL_BOUND * (1 + 1e-9)


@dataclass(frozen=True, eq=False)
class MethodScores:
    """The scores of another method on the same rows, by its own N(μ, v)."""

    STORED_AS: ClassVar[str] = "judged"

    method: str
    scores: Scores


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Sums over all sites' rows of one part, on the standardised scale.

    part: which rows. gaussian: scores of N(μ, v). recalibrated: scores of the calibrated law.
    conformal_inside: (T, 19) number of rows inside their conformal intervals. The latter two are
    None if not requested; on the part `calibration`, which they were made from, each fold of rows
    is scored with the recalibration of the other fold. students: scores of the model's other
    methods.
    """

    STORED_AS: ClassVar[str] = "evaluated"

    part: str
    gaussian: Scores
    recalibrated: Scores | None = None
    conformal_inside: Tensor | None = None
    students: tuple[MethodScores, ...] = ()

    def check(self, targets: int) -> None:
        """Refuse an invalid evaluation of `targets` targets; it may come from untrusted bytes."""
        shapes = Scores.zero(targets)
        if not all(isinstance(each, MethodScores) for each in self.students):
            raise StatisticsError("evaluation.students must be a tuple of MethodScores")
        judged = [self.gaussian, *([] if self.recalibrated is None else [self.recalibrated])]
        judged += [each.scores for each in self.students]
        pairs = [
            (getattr(scores, field.name, None), getattr(shapes, field.name))
            for scores in judged
            for field in fields(Scores)
        ]
        if self.conformal_inside is not None:
            pairs.append((self.conformal_inside, shapes.inside))
        if not isinstance(self.part, str) or not all(_fits(*pair) for pair in pairs):
            raise StatisticsError(
                f"the scores of an evaluation must be finite float64 sums for {targets} targets"
            )

    def conformal_curve(self) -> Tensor | None:
        """(T, 19) share of rows inside their conformal intervals of each of `LEVELS`."""
        rows = self.gaussian.rows[:, None]
        return None if self.conformal_inside is None else self.conformal_inside / rows


def _fits(value: object, like: Tensor) -> bool:
    return (
        isinstance(value, Tensor)
        and (value.shape, value.dtype) == (like.shape, like.dtype)
        and bool(value.isfinite().all())
    )


def score(laws: Sequence[StudentT], residuals: Tensor, variance: Tensor) -> Scores:
    """Score residuals y − μ with the model's variances v, (n, T), by one law per target."""
    s = variance.sqrt()
    r = residuals.clamp(-RESIDUAL_BOUND, RESIDUAL_BOUND)

    def by_law(loss: Callable[[StudentT, Tensor], Tensor], z: Tensor) -> Tensor:
        return torch.stack([loss(*each) for each in zip(laws, z.unbind(1), strict=True)], 1)

    def interval(level: float) -> tuple[Tensor, Tensor]:
        reach = torch.tensor([law.half_width(level) for law in laws], dtype=torch.float64)
        half = (reach * s).clamp_max(WIDTH_BOUND / 2)
        return -half, half

    log_losses = s.log() - by_law(StudentT.log_density, residuals / s)
    ranked_losses = by_law(StudentT.ranked_loss, r / s) * s
    return Scores(
        torch.full((len(laws),), len(r), dtype=torch.float64),
        r.square().sum(0),
        log_losses.clamp(-LOG_LOSS_BOUND, LOG_LOSS_BOUND).sum(0),
        ranked_losses.clamp_max(RESIDUAL_BOUND).sum(0),
        *count_intervals(interval, r),
    )


def in_units(scores: Scores, standardiser: Standardiser) -> Scores:
    """Convert scores of standardised targets to the targets' units."""
    scale = torch.tensor([target.scale for target in standardiser.targets], dtype=torch.float64)
    logs = torch.tensor(
        [math.log(target.scale) for target in standardiser.targets], dtype=torch.float64
    )
    return Scores(
        scores.rows,
        scores.squared_errors * scale.square(),
        scores.log_losses + scores.rows * logs,
        scores.ranked_losses * scale,
        scores.inside,
        scores.widths * scale[:, None],
        scores.interval_losses * scale[:, None],
    )
