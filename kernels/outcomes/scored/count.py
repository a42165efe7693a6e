"""Scores of a count, from sums over rows.

    deviance       2[y·log(y/μ) − (y − μ)] of the expected count μ (Poisson's)
    log loss       −log p(y) of the predicted law
    squared error  (y − μ)²

**Observed and expected counts** are summed by μ in public bins, four for each doubling, and merged
into groups of as many rows: the calibration of μ.

**The law's calibration** is the histogram of its probability integral transforms without randomness
[Czado09]: a row is spread evenly from F(y − 1) to F(y). It is flat if the law is right. From it
follow the share of rows, so spread, inside each central interval, which is then its level.

Bounds follow from the schema's upper bound Y of a count: μ is clipped at 4Y, squared errors at
(4Y)², deviances and log losses at 64Y. Steps grow with Y, so that no sum needs more bits.

**With noise** three blocks are summed. The transforms in 40 bins: the shares of a row add up to 1,
so they change by 1. Its deviance, log loss and squared error, clipped at 32, 8 and Y², as parts of
these: by √3. Its row, y/Y and μ/Y, clipped at 1, in one of 12 coarse bins of μ: by √3.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from kernels.noisy.counts import repaired
from kernels.noisy.recalibration import COUNT_STEP
from kernels.outcomes.count import deviance
from kernels.outcomes.scored.count_law import Predicted
from kernels.outcomes.scored.reliability import Curve, merged
from kernels.outcomes.scored.summed import RESOLUTION, Scored, SumBlock, check_some
from kernels.reproducible import on_grid
from kernels.scores.metrics import LEVELS
from kernels.tables.targets import Count

EDGES = 2.0 ** (torch.arange(-12 * 4, 24 * 4 + 1).double() / 4)
"""The ends of bins of μ; one more bin on each side."""
_BINS = len(EDGES) + 1
_COARSE = EDGES[24:112:8].contiguous()
_COARSE_BINS = len(_COARSE) + 1
TRANSFORMS = 40
"""Enough for the ends of the central interval of each of `LEVELS` to be ends of bins."""
_REACH = 4.0
_LOSS_REACH = 64.0
_CLIPPED = 32.0, 8.0
_USUAL = 1024.0
"""An upper bound up to which steps need not grow."""


@dataclass(frozen=True)
class Quality:
    """Scores of a count.

    mean, expected: the mean count and the mean of μ. curve, error: observed and expected counts by
    μ, and their mean distance. transforms: shares of 40 bins, each .025 if the law is right.
    inside: shares of rows in the central intervals of `LEVELS`.
    """

    rows: float
    mean: float
    expected: float
    deviance: float
    log_loss: float
    rmse: float
    error: float
    curve: Curve
    transforms: tuple[float, ...]
    inside: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Sums(Scored[Count, Predicted]):
    """Sums over rows of a count."""

    STORED_AS: ClassVar[str] = "outcome.count.sums"

    rows: Tensor
    """(146,) rows by μ."""
    counts: Tensor
    """(146,) Σy by μ."""
    means: Tensor
    """(146,) Σμ by μ."""
    transforms: Tensor
    """(40,) rows by the transform of their count, in shares."""
    deviances: Tensor
    """() Σ deviance."""
    log_losses: Tensor
    """() Σ log loss."""
    squared_errors: Tensor
    """() Σ (y − μ)²."""

    @classmethod
    def blocks(cls, target: Count) -> tuple[SumBlock, ...]:
        """Return the seven blocks."""
        most, loss, step = _REACH * target.upper, _LOSS_REACH * target.upper, step_of(target)
        return (
            SumBlock("rows", (_BINS,), 1.0, 1.0),
            SumBlock("counts", (_BINS,), target.upper, 1.0),
            SumBlock("means", (_BINS,), most, step),
            SumBlock("transforms", (TRANSFORMS,), 1.0, RESOLUTION),
            SumBlock("deviances", (), loss, step),
            SumBlock("log_losses", (), loss, step),
            SumBlock("squared_errors", (), most**2, step**2 / RESOLUTION),
        )

    @classmethod
    def few_blocks(cls, target: Count) -> tuple[SumBlock, ...]:
        """Return the transforms, losses as parts, and rows, counts and means by coarse bins."""
        return (
            SumBlock("transforms", (TRANSFORMS,), 1.0, RESOLUTION, 1.0),
            SumBlock("losses", (3,), 1.0, RESOLUTION, math.sqrt(3)),
            SumBlock("by_mean", (3, _COARSE_BINS), 1.0, RESOLUTION, math.sqrt(3)),
        )

    @classmethod
    def of(cls, target: Count, outcomes: Tensor, predicted: Predicted) -> "Sums":
        """Return the sums over rows with outcomes (n, 2): counts, and exposures."""
        y = outcomes[:, 0].double()
        mu = expected_counts(target, predicted)
        place = torch.bucketize(mu, EDGES)

        def by_bin(values: Tensor) -> Tensor:
            return torch.zeros(_BINS, dtype=torch.float64).index_add(0, place, values)

        most = _LOSS_REACH * target.upper
        return cls(
            by_bin(torch.ones_like(y)),
            by_bin(y),
            by_bin(mu),
            _transforms(predicted.around(y)),
            deviance(y, mu).clamp(0.0, most).sum(),
            (-predicted.log_density(y)).clamp(0.0, most).sum(),
            (y - mu).square().sum(),
        )

    @classmethod
    def few(cls, target: Count, outcomes: Tensor, predicted: Predicted) -> dict[str, Tensor]:
        """Return the three blocks over rows."""
        y, mu = outcomes[:, 0].double(), expected_counts(target, predicted)
        parts = (
            deviance(y, mu) / _CLIPPED[0],
            -predicted.log_density(y) / _CLIPPED[1],
            ((y - mu) / target.upper).square(),
        )
        place = torch.bucketize(mu, _COARSE)
        columns = torch.stack([torch.ones_like(y), y / target.upper, mu / target.upper])
        by_mean = torch.zeros(3, _COARSE_BINS, dtype=torch.float64)
        return {
            "transforms": _transforms(predicted.around(y)),
            "losses": torch.stack([own.clamp(0.0, 1.0).sum() for own in parts]),
            "by_mean": by_mean.index_add(1, place, columns.clamp_max(1.0)),
        }

    @classmethod
    def from_noisy(cls, target: Count, totals: Mapping[str, Tensor]) -> "Sums":
        """Return valid sums from noisy totals; coarse bins are kept as one fine bin each."""
        rows = repaired(totals["by_mean"][0])
        place = torch.bucketize(torch.cat([_COARSE, 2 * _COARSE[-1:]]), EDGES)

        def fine(coarse: Tensor) -> Tensor:
            found = torch.zeros(_BINS, dtype=torch.float64)
            found[place] = coarse
            return on_grid(found, COUNT_STEP)

        counts, means = totals["by_mean"][1:].clamp_min(0.0).minimum(rows) * target.upper
        transforms = repaired(totals["transforms"])
        losses = totals["losses"].clamp_min(0.0).minimum(rows.sum())
        losses = losses * torch.tensor([*_CLIPPED, target.upper**2], dtype=torch.float64)
        return cls(
            fine(rows),
            fine(counts),
            fine(means),
            on_grid(transforms / transforms.sum() * rows.sum(), COUNT_STEP),
            *(on_grid(own, RESOLUTION) for own in losses),
        )

    @property
    def row_count(self) -> float:
        """The number of rows, or with noise an estimate of it."""
        return float(self.rows.sum())

    def quality(self, target: Count) -> Quality:
        """Return the scores; refuse sums without rows."""
        n = check_some(self.row_count)
        rows, seen, said = merged(self.rows, self.rows, self.counts, self.means)
        curve = Curve.of(said / rows, seen / rows, rows)
        shares = self.transforms / self.transforms.sum().clamp_min(1e-300)
        return Quality(
            n,
            float(self.counts.sum()) / n,
            float(self.means.sum()) / n,
            float(self.deviances) / n,
            float(self.log_losses) / n,
            math.sqrt(float(self.squared_errors) / n),
            curve.ece(),
            curve,
            tuple(shares.tolist()),
            _inside(shares),
        )


def expected_counts(target: Count, predicted: Predicted) -> Tensor:
    """Return μ, clipped at four times the schema's upper bound, (n,)."""
    least = torch.finfo(torch.float64).tiny
    return predicted.means().clamp(least, _REACH * target.upper)


def step_of(target: Count) -> float:
    """Return the step of sums in the unit of counts: a power of two."""
    return RESOLUTION * 2.0 ** max(0, math.ceil(math.log2(target.upper / _USUAL)))


def _transforms(around: tuple[Tensor, Tensor]) -> Tensor:
    """Return rows by bin of the transform, each spread evenly from F(y − 1) to F(y)."""
    lower, upper = around[0].unsqueeze(1), around[1].unsqueeze(1)
    ends = torch.arange(TRANSFORMS + 1, dtype=torch.float64) / TRANSFORMS
    width = (upper - lower).clamp_min(1e-15)
    shares = ((ends - lower) / width).clamp(0.0, 1.0)
    # A count beyond all doubt has F(y − 1) = F(y) = 1, or 0.
    shares[:, -1], shares[:, 0] = 1.0, 0.0
    return shares.diff(dim=1).sum(0)


def _inside(shares: Tensor) -> tuple[float, ...]:
    """Return the share of transforms in the central interval of each of `LEVELS`."""
    middle = TRANSFORMS // 2
    each = torch.arange(1, len(LEVELS) + 1)
    below = torch.cat([torch.zeros(1, dtype=torch.float64), shares.cumsum(0)])
    return tuple((below[middle + each] - below[middle - each]).tolist())
