"""Scores of predictions, from sums that hospitals can add.

Every field of `Scores` is a sum over rows, so the scores of two tables add up to the scores of
the pooled table, and a federated evaluation is one secure sum. Per row with target y, predictive
mean μ and variance v = s² (noise included), residual r = y − μ and z = r/s:

    NLL   ½ log 2πv + z²/2
    CRPS  s·[z(2Φ(z) − 1) + 2φ(z) − 1/√π]
    IS_p  (u − l) + 2/(1−p)·[(l − y)₊ + (y − u)₊]   for the central p-interval [l, u]

With c(p) the share of rows inside their central p-interval:

    ECE = mean_k |p_k − c(p_k)|    MCE = max_k |p_k − c(p_k)|
    BRI = mean_k mean_i (p_k − 1[i inside])² = mean_k [p_k² − 2 p_k c(p_k) + c(p_k)]

over the ten levels 0.05, 0.15 … 0.95. BRI does not measure sharpness: any calibrated predictor has
0.1675, the worst 0.3325. CRPS, NLL and the interval score do measure it.

The scores are those of [GneitingRaftery07].
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
"""The ten of `LEVELS`, 0.05, 0.15 … 0.95, over which ECE, MCE and Brier are computed."""


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
    """(T,) Σ NLL, in nats, of a density per unit of the target, including the constant."""
    ranked_losses: Tensor
    """(T,) Σ CRPS, in the target's unit."""
    inside: Tensor
    """(T, 19) number of rows inside the central interval of each of `LEVELS`, ends included."""
    widths: Tensor
    """(T, 19) Σ (u − l)."""
    interval_losses: Tensor
    """(T, 19) Σ IS_p."""

    @classmethod
    def zero(cls, targets: int) -> Self:
        """Return the scores of an empty table, the neutral element of `+`."""
        shapes = [(targets,)] * 4 + [(targets, len(LEVELS))] * 3
        return cls(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))

    @classmethod
    def of(cls, mean: Tensor, variance: Tensor, targets: Tensor) -> Self:
        """Return the scores of the predictions N(mean, variance), noise included, of `targets`.

        All (n, T), or (n,) for a single target; a `variance` of (n,) with several targets is
        shared by them. n = 0 gives `zero`: a hospital may hold out no rows.
        """
        y = _columns(targets, "targets")
        mu = _columns(mean, "mean")
        v = _columns(variance, "variance")
        if v.shape[1] == 1:
            v = v.expand(-1, y.shape[1])
        if not mu.shape == v.shape == y.shape:
            raise WrongShape(
                f"mean, variance and targets must have the same shape, not {tuple(mean.shape)}, "
                f"{tuple(variance.shape)} and {tuple(targets.shape)}"
            )
        if not bool((v > 0).all()):
            raise PredictionError(
                f"variance is not positive for {int((v <= 0).sum())} of {v.numel()} predictions; "
                "pass the predictive variance, which includes the noise, not the latent variance"
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
                "a sum of losses overflows float64; standardise the targets, or set a lower bound "
                "for the variance"
            )
        return scores

    def __add__(self, other: "Scores") -> "Scores":
        if self.inside.shape != other.inside.shape:
            raise WrongShape(
                f"scores of {len(self.rows)} and of {len(other.rows)} targets cannot be added; "
                "score the same targets at every site"
            )
        return Scores(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Scores)))

    def rmse(self) -> Tensor:
        """Return the root mean squared error, (T,), in the target's unit."""
        return self._mean(self.squared_errors).sqrt()

    def nll(self) -> Tensor:
        """Return the mean negative log predictive density, (T,)."""
        return self._mean(self.log_losses)

    def crps(self) -> Tensor:
        """Return the mean CRPS, continuous ranked probability score, (T,); mean |r| for a point."""
        return self._mean(self.ranked_losses)

    def calibration_curve(self) -> Tensor:
        """Return the share c(p) of rows inside the central interval of each level, (T, 19)."""
        return self._mean(self.inside)

    def width(self) -> Tensor:
        """Return the mean width of the central interval of each of `LEVELS`, (T, 19)."""
        return self._mean(self.widths)

    def interval_score(self) -> Tensor:
        """Return the mean interval score of each of `LEVELS`, (T, 19); lower is better."""
        return self._mean(self.interval_losses)

    def ece(self) -> Tensor:
        """Return the expected calibration error over `TEN_LEVELS`, (T,), at most 0.50."""
        return self._gaps().mean(1)

    def mce(self) -> Tensor:
        """Return the maximum calibration error over `TEN_LEVELS`, (T,), at most 0.95."""
        return self._gaps().amax(1)

    def brier(self) -> Tensor:
        """Return the Brier score over `TEN_LEVELS`, (T,): 0.1675 if calibrated, at most 0.3325."""
        p, c = _ten_levels(), self.calibration_curve()[:, ::2]
        return (p.square() - 2 * p * c + c).mean(1)

    def _gaps(self) -> Tensor:
        return (_ten_levels() - self.calibration_curve()[:, ::2]).abs()

    def _mean(self, total: Tensor) -> Tensor:
        if not bool((self.rows > 0).all()):
            raise EmptyTable("these scores have no rows; score at least one held-out row")
        return total / (self.rows if total.ndim == 1 else self.rows[:, None])


def count_intervals(
    interval: Callable[[float], tuple[Tensor, Tensor]], targets: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return `inside`, `widths` and `interval_losses` of any predictive intervals.

    `interval(p)` returns (lower, upper) for a level p, each (n, T), or (n,) for a single target,
    like `targets`. It is called for one of `LEVELS` at a time, which keeps the memory at n × T.
    Returns three (T, 19) tensors: the last three fields of `Scores`.
    """
    y = _columns(targets, "targets")
    per_level = []
    for p in LEVELS:
        lower, upper = interval(p)
        low, up = _columns(lower, "lower"), _columns(upper, "upper")
        if not low.shape == up.shape == y.shape:
            raise WrongShape(
                f"at level {p:.2f}, lower and upper must have the shape of targets, "
                f"{tuple(targets.shape)}, not {tuple(lower.shape)} and {tuple(upper.shape)}"
            )
        if bool((low > up).any()):
            raise PredictionError(
                f"at level {p:.2f}, lower exceeds upper in {int((low > up).sum())} intervals; "
                "swap them, or check the quantiles that they come from"
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
    """Return `values` as finite float64 of shape (n, T)."""
    if values.ndim not in (1, 2):
        raise WrongShape(
            f"{name} must have shape (rows,) or (rows, targets), not {tuple(values.shape)}"
        )
    columns = values.detach().to(torch.float64)
    if columns.ndim == 1:
        columns = columns[:, None]
    if not bool(columns.isfinite().all()):
        raise NotFinite(
            f"{name} is NaN or infinite in {int((~columns.isfinite()).sum())} of "
            f"{columns.numel()} cells; drop these rows, or check the model that predicted them"
        )
    return columns
