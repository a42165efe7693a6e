"""Recalibration of a count: a factor of its mean, a dispersion, and conformal intervals.

**The factor** c of all expected counts is (Σy + 4)/(Σμ + 4): as if four more had been expected and
seen, so with few events it is nearly 1.

**The dispersion** r is fitted again to held-out rows, where the layer's own was fitted to its
training rows. Σ log p(y) of the predicted law at each r of a public grid is a sum over rows; the
prior is N(log r; log r₀, 1) around the layer's r₀, so with few rows r is nearly r₀. The law is
judged at c = 1, because c is known only after the sum: where c is far from 1, r is too small, and
intervals too wide rather than too narrow.

**Conformal intervals** (`kernels.outcomes.scored.conformal`) are central intervals of the model's
law, at the level that held-out rows need: from the histogram of how odd their counts are, −log₂ of
the two-sided tail.

**With noise**: Σy and Σμ, each clipped at the schema's upper bound Y, change by √2·Y. Gains of
log p(y) over that at r₀, clipped to ±1 nat, change by √17 for a grid of 17. The coarse histogram of
tails changes by 1. r₀ is kept if no gain exceeds twice its noise.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from kernels.errors import StateError
from kernels.noisy.counts import repaired
from kernels.noisy.recalibration import COUNT_STEP
from kernels.outcomes.count import GRID
from kernels.outcomes.scored import conformal
from kernels.outcomes.scored.conformal import Covered
from kernels.outcomes.scored.count import expected_counts, step_of
from kernels.outcomes.scored.count_law import Predicted, oddness
from kernels.outcomes.scored.grid_top import log_prior, top
from kernels.outcomes.scored.summed import RESOLUTION, HeldOut, SumBlock, in_folds
from kernels.reproducible import number_to_bits, on_grid
from kernels.scores.metrics import LEVELS
from kernels.scores.recalibration import FOLDS
from kernels.tables.targets import Count

DISPERSIONS = GRID[::2]
"""The values of r to choose from, 1/16 to 4,096, each twice the one before."""
_LOGS = tuple(math.log(r) for r in DISPERSIONS)
_PRIOR = 1.0
_EVENTS = 4.0
_LOSS_REACH = 64.0
_CLIPPED = 1.0
_BITS = 16

ENDS = torch.arange(0, 40 * 16 + 1).double() / 16
"""The upper ends of bins of −log₂ of tails; the first has tails of 1, the last has no end."""
_BINS = len(ENDS) + 1
_EVERY = 8
_COARSE = ENDS[: 12 * 16 + 1 : _EVERY].contiguous()
_COARSE_BINS = len(_COARSE) + 1


@dataclass(frozen=True, eq=False)
class Held(HeldOut[Count, Predicted]):
    """Held-out rows of a count."""

    STORED_AS: ClassVar[str] = "outcome.count.held"

    totals: Tensor
    """(FOLDS, 2) Σy and Σμ."""
    gains: Tensor
    """(FOLDS, 17) Σ log p(y) at each dispersion, minus that at the model's own."""
    tails: Tensor
    """(FOLDS, 642) rows by −log₂ of the tail beyond their count."""

    @classmethod
    def blocks(cls, target: Count) -> tuple[SumBlock, ...]:
        """Return the three blocks."""
        step = step_of(target)
        most = _LOSS_REACH * target.upper
        return (
            SumBlock("totals", (FOLDS, 2), 4 * target.upper, step),
            SumBlock("gains", (FOLDS, len(DISPERSIONS)), most, step),
            SumBlock("tails", (FOLDS, _BINS), 1.0, 1.0),
        )

    @classmethod
    def few_blocks(cls, target: Count) -> tuple[SumBlock, ...]:
        """Return clipped totals and gains, and the coarse histogram."""
        y, points = target.upper, len(DISPERSIONS)
        return (
            SumBlock("totals", (2,), y, step_of(target), math.sqrt(2) * y),
            SumBlock("gains", (points,), _CLIPPED, RESOLUTION, _CLIPPED * math.sqrt(points)),
            SumBlock("tails", (_COARSE_BINS,), 1.0, 1.0, 1.0),
        )

    @classmethod
    def of(cls, target: Count, outcomes: Tensor, predicted: Predicted, folds: Tensor) -> "Held":
        """Return the sums over rows with outcomes (n, 2) and folds (n,)."""
        y, fold = outcomes[:, 0].double(), folds.long()
        most = _LOSS_REACH * target.upper
        totals = torch.stack([y, expected_counts(target, predicted)], 1)
        cells = fold * _BINS + torch.bucketize(oddness(predicted.around(y)), ENDS)
        return cls(
            torch.zeros(FOLDS, 2, dtype=torch.float64).index_add(0, fold, totals),
            torch.zeros(FOLDS, len(DISPERSIONS), dtype=torch.float64).index_add(
                0, fold, _gains(y, predicted).clamp(-most, most)
            ),
            torch.bincount(cells, minlength=FOLDS * _BINS).double().view(FOLDS, _BINS),
        )

    @classmethod
    def few(cls, target: Count, outcomes: Tensor, predicted: Predicted) -> dict[str, Tensor]:
        """Return the three blocks over rows."""
        y = outcomes[:, 0].double()
        totals = torch.stack([y, expected_counts(target, predicted)], 1).clamp_max(target.upper)
        odd = torch.bucketize(oddness(predicted.around(y)), _COARSE)
        return {
            "totals": totals.sum(0),
            "gains": _gains(y, predicted).clamp(-_CLIPPED, _CLIPPED).sum(0),
            "tails": torch.bincount(odd, minlength=_COARSE_BINS).double(),
        }


@dataclass(frozen=True, eq=False)
class Calibration:
    """A count's factor and dispersion, with the rows that they were fitted to.

    before: the model's dispersion. dispersion: the one that replaces it.
    """

    STORED_AS: ClassVar[str] = "outcome.count.calibration"

    held: Held
    factor: float
    before: float
    dispersion: float

    def __post_init__(self) -> None:
        if not all(0 < own < math.inf for own in (self.factor, self.before, self.dispersion)):
            raise StateError(
                "a count's factor and dispersions must be positive and finite, not "
                f"{self.factor}, {self.before} and {self.dispersion}"
            )

    @classmethod
    def of(cls, target: Count, held: Held, *, dispersion: float) -> "Calibration":
        """Return the recalibration of held-out rows; with none of them, it changes nothing.

        dispersion: the model's own.
        """
        return cls(held, _factor(held.totals.sum(0)), dispersion, _best(held, dispersion))

    @classmethod
    def from_noisy(
        cls,
        target: Count,
        totals: Mapping[str, Tensor],
        noise: Mapping[str, float],
        *,
        dispersion: float,
    ) -> "Calibration":
        """Return the recalibration of noisy totals, with the deviation of each block's noise."""
        sums = totals["totals"].clamp_min(0.0)
        # Noise counts as so many more that were expected and seen.
        factor = _factor(sums, more=noise["totals"] + _EVENTS)
        fine = torch.zeros(_BINS, dtype=torch.float64)
        tails = repaired(totals["tails"])
        fine[0], fine[-1] = tails[0], tails[-1]
        fine[1 : len(_COARSE) * _EVERY - _EVERY + 1] = (tails[1:-1] / _EVERY).repeat_interleave(
            _EVERY
        )
        held = Held(
            in_folds(on_grid(sums, RESOLUTION)),
            in_folds(on_grid(totals["gains"], RESOLUTION)),
            in_folds(on_grid(fine, COUNT_STEP)),
        )
        clear = float(totals["gains"].max()) > 2 * noise["gains"]
        return cls(held, factor, dispersion, _best(held, dispersion) if clear else dispersion)

    def check(self, target: Count) -> None:
        """Refuse what cannot be this target's; it may come from untrusted bytes."""
        self.held.check(target)

    def without(self, fold: int) -> "Calibration":
        """Return the recalibration of the other fold."""
        held = self.held.without(fold)
        return Calibration(held, _factor(held.totals.sum(0)), self.before, _best(held, self.before))

    def apply(self, predicted: Predicted) -> Predicted:
        """Return the recalibrated prediction."""
        logs = predicted.logs + math.log(self.factor)
        return Predicted(logs, predicted.variance, self.dispersion)

    def limit(self, level: float) -> float:
        """Return q: a set of this level has the counts whose tails are at least 2⁻q."""
        return conformal.quantile(self.held.tails.sum(0), ENDS, level)

    def interval(self, predicted: Predicted, level: float) -> tuple[Tensor, Tensor]:
        """Return the least and the greatest count of each row's set, each (n,).

        predicted: that of the model, not recalibrated.
        """
        outside = 2.0 ** -self.limit(level) / 2
        if outside == 0:
            none = torch.zeros_like(predicted.logs)
            return none, none + math.inf
        return predicted.quantile(outside), predicted.quantile(1 - outside)

    def covered(self, target: Count, outcomes: Tensor, predicted: Predicted) -> Covered:
        """Return how the intervals do on rows, from the model's own prediction."""
        return Covered.of(oddness(predicted.around(outcomes[:, 0].double())), self._limits())

    def few_covered(
        self, target: Count, outcomes: Tensor, predicted: Predicted
    ) -> dict[str, Tensor]:
        """Return the block of the sum with noise of how the intervals do."""
        return Covered.few(oddness(predicted.around(outcomes[:, 0].double())), self._limits())

    def _limits(self) -> Tensor:
        return torch.tensor([self.limit(level) for level in LEVELS], dtype=torch.float64)


def _gains(y: Tensor, predicted: Predicted) -> Tensor:
    """Return log p(y) at each dispersion minus that at the model's own, (n, 17)."""
    own = predicted.log_density(y)
    each = [replace(predicted, dispersion=r).log_density(y) - own for r in DISPERSIONS]
    return torch.stack(each, 1)


def _factor(totals: Tensor, *, more: float = _EVENTS) -> float:
    seen, said = totals.tolist()
    return number_to_bits((seen + more) / (said + more), _BITS)


def _best(held: Held, before: float) -> float:
    """Return the likeliest dispersion, or the model's own if held-out rows do not prefer one."""
    gains = held.gains.sum(0)
    if not bool((gains > 0).any()):
        return before
    found = top(_LOGS, gains + log_prior(_LOGS, centre=math.log(before), scale=_PRIOR))
    return number_to_bits(math.exp(found), _BITS)
