"""How good a prediction is, from counts that hospitals can add.

Every field of `Scores` is a sum over rows, so the scores of two tables add up to the scores of
the pooled table, and a federated evaluation is one secure sum. Per row with target y, predictive
mean μ and variance v = s² (noise included), residual r = y − μ and z = r/s:

    NLL   ½ log 2πv + z²/2
    CRPS  s·[z(2Φ(z) − 1) + 2φ(z) − 1/√π]
    IS_p  (u − l) + 2/(1−p)·[(l − y)₊ + (y − u)₊]   for the central p-interval [l, u]

With c(p) the share of rows inside their central p-interval:

    ECE = mean_k |p_k − c(p_k)|    MCE = max_k |p_k − c(p_k)|
    BRI = mean_k mean_i (p_k − 1[i inside])² = mean_k [p_k² − 2 p_k c(p_k) + c(p_k)]

over the ten levels 0.05, 0.15 … 0.95. BRI is not a score of sharpness: any calibrated predictor
has 0.1675, the worst 0.3325. CRPS, NLL and the interval score are.

[GneitingRaftery07] has the scores.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from statistics import NormalDist
from typing import ClassVar, Self

import torch
from torch import Tensor

from kernels.errors import EmptyTable, NotFinite, PredictionError, WrongShape

LEVELS = tuple(k / 20 for k in range(1, 20))
"""The 19 levels 0.05, 0.10 … 0.95 of the calibration curve."""

TEN_LEVELS = LEVELS[::2]
"""The ten of them, 0.05, 0.15 … 0.95, that ECE, MCE and Brier are taken over."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Sums over rows, for each of T targets; float64; `+` adds the rows of another table.

    >>> mean, variance = torch.zeros(3), torch.ones(3)
    >>> here = Scores.of(mean, variance, torch.tensor([0.0, 1.0, -2.0]))
    >>> there = Scores.of(mean, variance, torch.tensor([2.0, 0.0, 0.0]))
    >>> (here + there).rmse()
    tensor([1.2247], dtype=torch.float64)
    """

    STORED_AS: ClassVar[str] = "scores"

    rows: Tensor
    """(T,) number of rows n."""
    squared_errors: Tensor
    """(T,) Σ r²."""
    log_losses: Tensor
    """(T,) Σ NLL, in nats of the target's unit, the constant included."""
    ranked_losses: Tensor
    """(T,) Σ CRPS, in the target's unit."""
    inside: Tensor
    """(T, 19) rows inside the central interval of each of `LEVELS`, ends included."""
    widths: Tensor
    """(T, 19) Σ (u − l)."""
    interval_losses: Tensor
    """(T, 19) Σ IS_p."""

    @classmethod
    def zero(cls, targets: int) -> Self:
        """Return the scores of no rows, neutral for `+`."""
        shapes = [(targets,)] * 4 + [(targets, len(LEVELS))] * 3
        return cls(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))

    @classmethod
    def of(cls, mean: Tensor, variance: Tensor, targets: Tensor) -> Self:
        """Score the Gaussian predictions N(mean, variance), noise included, of `targets`.

        All (n, T), or (n,) for a single target; a `variance` of (n,) beside several targets is
        shared by them. n = 0 gives `zero`: a hospital may hold out nothing.
        """
        y = _columns(targets, "targets")
        mu = _columns(mean, "mean")
        v = _columns(variance, "variance")
        if v.shape[1] == 1:
            v = v.expand(-1, y.shape[1])
        if not mu.shape == v.shape == y.shape:
            raise WrongShape(
                f"mean is {tuple(mean.shape)}, variance {tuple(variance.shape)} and targets "
                f"{tuple(targets.shape)}; pass one row each for the same rows and targets"
            )
        if not bool((v > 0).all()):
            raise PredictionError(
                f"the predictive variance is not positive at {int((v <= 0).sum())} of {v.numel()} "
                "predictions; pass the variance with the noise in it, not the latent one"
            )
        s = v.sqrt()
        z = (y - mu) / s
        density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
        ranked = s * (z * torch.erf(z / math.sqrt(2)) + 2 * density - 1 / math.sqrt(math.pi))

        def central_interval(p: float) -> tuple[Tensor, Tensor]:
            half_width = NormalDist().inv_cdf((1 + p) / 2) * s
            return mu - half_width, mu + half_width

        scores = cls(
            torch.full((y.shape[1],), y.shape[0], dtype=torch.float64),
            (y - mu).square().sum(0),
            (0.5 * torch.log(2 * math.pi * v) + z.square() / 2).sum(0),
            ranked.sum(0),
            *count_intervals(central_interval, y),
        )
        if not all(bool(getattr(scores, f.name).isfinite().all()) for f in fields(scores)):
            raise NotFinite(
                "a sum of losses overflows float64; standardise the targets, or floor the variance"
            )
        return scores

    def __add__(self, other: "Scores") -> "Scores":
        if self.inside.shape != other.inside.shape:
            raise WrongShape(
                f"scores of {len(self.rows)} and of {len(other.rows)} targets do not add; "
                "score the same targets at every site"
            )
        return Scores(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Scores)))

    def rmse(self) -> Tensor:
        """(T,) root mean squared error, in the target's unit."""
        return self._mean(self.squared_errors).sqrt()

    def nll(self) -> Tensor:
        """(T,) mean negative log predictive density."""
        return self._mean(self.log_losses)

    def crps(self) -> Tensor:
        """(T,) mean continuous ranked probability score; of a point forecast, the mean |r|."""
        return self._mean(self.ranked_losses)

    def calibration_curve(self) -> Tensor:
        """(T, 19) share c(p) of rows inside the central interval of each of `LEVELS`."""
        return self._mean(self.inside)

    def width(self) -> Tensor:
        """(T, 19) mean width of the central interval of each of `LEVELS`."""
        return self._mean(self.widths)

    def interval_score(self) -> Tensor:
        """(T, 19) mean interval score of each of `LEVELS`; lower is better."""
        return self._mean(self.interval_losses)

    def ece(self) -> Tensor:
        """(T,) expected calibration error over `TEN_LEVELS`, at most 0.50."""
        return self._gaps().mean(1)

    def mce(self) -> Tensor:
        """(T,) maximum calibration error over `TEN_LEVELS`, at most 0.95."""
        return self._gaps().amax(1)

    def brier(self) -> Tensor:
        """(T,) Brier score over `TEN_LEVELS`: 0.1675 if calibrated, at most 0.3325."""
        p, c = _ten_levels(), self.calibration_curve()[:, ::2]
        return (p.square() - 2 * p * c + c).mean(1)

    def _gaps(self) -> Tensor:
        return (_ten_levels() - self.calibration_curve()[:, ::2]).abs()

    def _mean(self, total: Tensor) -> Tensor:
        if not bool((self.rows > 0).all()):
            raise EmptyTable("there is no row to take a mean over; score at least one held-out row")
        return total / (self.rows if total.ndim == 1 else self.rows[:, None])


def count_intervals(
    interval: Callable[[float], tuple[Tensor, Tensor]], targets: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Count `inside` and sum `widths` and `interval_losses` of any predictive intervals.

    `interval(p)` gives (lower, upper) for a level p, each end (n, T), or (n,) for a single target,
    as `targets` is. It is asked for one of `LEVELS` at a time, which keeps the memory at n × T.
    Returns three (T, 19) tensors: the last three fields of `Scores`.
    """
    y = _columns(targets, "targets")
    per_level = []
    for p in LEVELS:
        lower, upper = interval(p)
        low, up = _columns(lower, "lower"), _columns(upper, "upper")
        if not low.shape == up.shape == y.shape:
            raise WrongShape(
                f"at level {p:.2f} lower is {tuple(lower.shape)}, upper {tuple(upper.shape)} and "
                f"targets {tuple(targets.shape)}; pass both ends for every row and target"
            )
        if bool((low > up).any()):
            raise PredictionError(
                f"at level {p:.2f} lower exceeds upper in {int((low > up).sum())} intervals; "
                "swap the ends, or check the quantiles that they come from"
            )
        inside = ((low <= y) & (y <= up)).to(torch.float64)
        width = up - low
        beyond = (low - y).clamp(min=0) + (y - up).clamp(min=0)
        loss = width + 2 / (1 - p) * beyond
        per_level.append(torch.stack([inside.sum(0), width.sum(0), loss.sum(0)]))
    counts, widths, losses = torch.stack(per_level, dim=-1)
    return counts, widths, losses


def _ten_levels() -> Tensor:
    return torch.tensor(TEN_LEVELS, dtype=torch.float64)


def _columns(values: Tensor, name: str) -> Tensor:
    """`values` as finite float64 of shape (n, T)."""
    if values.ndim not in (1, 2):
        raise WrongShape(f"{name} is {tuple(values.shape)}; pass (rows,) or (rows, targets)")
    columns = values.detach().to(torch.float64)
    if columns.ndim == 1:
        columns = columns[:, None]
    if not bool(columns.isfinite().all()):
        raise NotFinite(
            f"{name} is not finite in {int((~columns.isfinite()).sum())} of {columns.numel()} "
            "cells; drop these rows, or find out why the model gave them"
        )
    return columns
