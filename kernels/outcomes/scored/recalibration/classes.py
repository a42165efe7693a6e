"""Recalibration of classes: a temperature, and conformal sets.

The temperature's inverse a sharpens or flattens all probabilities, p_k → p_kᵃ / Σ_j p_jᵃ [Guo17].
Its log-likelihood at each a of a public grid of log a is a sum over rows, with N(log a; 0, ¼) as a
prior: with few rows a is nearly 1. One number and not K more, for a shift of each class: with few
rows of a class its shift would be chance, and the layer's own means already have the classes'
shares.

Conformal sets (`kernels.outcomes.scored.conformal`) need the histogram of the log odds against the
true class.

**With noise**: of the log-likelihood's gains over a = 1, each row's are clipped to ±2 nats at each
of the 9 points of the grid; at a = 1 there is none, so one row changes that block by 2√8; the
coarse histogram by 1. If no gain exceeds twice its noise, a = 1.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from kernels.errors import StateError
from kernels.outcomes.scored import conformal
from kernels.outcomes.scored.classes import Predicted
from kernels.outcomes.scored.conformal import Covered
from kernels.outcomes.scored.grid_top import log_prior, top
from kernels.outcomes.scored.logit_bins import COARSE, FINE, from_coarse
from kernels.outcomes.scored.summed import (
    LOG_LOSS_BOUND,
    RESOLUTION,
    HeldOut,
    SumBlock,
    in_folds,
)
from kernels.reproducible import number_to_bits, on_grid
from kernels.scores.metrics import LEVELS
from kernels.scores.recalibration import FOLDS
from kernels.tables.targets import Classes

GRID: tuple[float, ...] = tuple(step / 2 for step in range(-4, 5))
"""The values of log a: a from .14 to 7.4."""
_NONE = GRID.index(0.0)
_PRIOR = 0.5
_CLIPPED = 2.0
_BITS = 16


@dataclass(frozen=True, eq=False)
class Held(HeldOut[Classes, Predicted]):
    """Held-out rows of classes."""

    STORED_AS: ClassVar[str] = "outcome.classes.held"

    gains: Tensor
    """(FOLDS, 9) Σ log p_y at each temperature, minus that at a = 1."""
    odds: Tensor
    """(FOLDS, FINE.count) rows by the log odds against their class."""

    @classmethod
    def blocks(cls, target: Classes) -> tuple[SumBlock, ...]:
        """Return the gains and the histogram."""
        return (
            SumBlock("gains", (FOLDS, len(GRID)), LOG_LOSS_BOUND, RESOLUTION),
            SumBlock("odds", (FOLDS, FINE.count), 1.0, 1.0),
        )

    @classmethod
    def few_blocks(cls, target: Classes) -> tuple[SumBlock, ...]:
        """Return clipped gains and the coarse histogram."""
        sensitivity = _CLIPPED * math.sqrt(len(GRID) - 1)
        return (
            SumBlock("gains", (len(GRID),), _CLIPPED, RESOLUTION, sensitivity),
            SumBlock("odds", (COARSE.count,), 1.0, 1.0, 1.0),
        )

    @classmethod
    def of(cls, target: Classes, outcomes: Tensor, predicted: Predicted, folds: Tensor) -> "Held":
        """Return the sums over rows with outcomes (n, 1) and folds (n,)."""
        gains = _gains(outcomes, predicted).clamp(-LOG_LOSS_BOUND, LOG_LOSS_BOUND)
        by_fold = torch.zeros(FOLDS, len(GRID), dtype=torch.float64)
        return cls(
            by_fold.index_add(0, folds.long(), gains),
            FINE.by_group(_own(outcomes, predicted), folds, FOLDS),
        )

    @classmethod
    def few(cls, target: Classes, outcomes: Tensor, predicted: Predicted) -> dict[str, Tensor]:
        """Return clipped gains and the coarse histogram over rows."""
        return {
            "gains": _gains(outcomes, predicted).clamp(-_CLIPPED, _CLIPPED).sum(0),
            "odds": COARSE.histogram(_own(outcomes, predicted)),
        }


@dataclass(frozen=True, eq=False)
class Calibration:
    """The exponent a of probabilities, with the rows that it was fitted to."""

    STORED_AS: ClassVar[str] = "outcome.classes.calibration"

    held: Held
    exponent: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.exponent < math.inf:
            raise StateError(
                f"the exponent of probabilities must be positive and finite, not {self.exponent}"
            )

    @classmethod
    def of(cls, target: Classes, held: Held, *, dispersion: float | None = None) -> "Calibration":
        """Return the recalibration of held-out rows; with none of them, it changes nothing."""
        return cls(held, _exponent(held.gains.sum(0)))

    @classmethod
    def from_noisy(
        cls,
        target: Classes,
        totals: Mapping[str, Tensor],
        noise: Mapping[str, float],
        *,
        dispersion: float | None = None,
    ) -> "Calibration":
        """Return the recalibration of noisy totals, with the deviation of each block's noise."""
        gains = totals["gains"].clone()
        gains[_NONE] = 0.0
        held = Held(
            in_folds(on_grid(gains, RESOLUTION)), in_folds(from_coarse(totals["odds"], FINE))
        )
        clear = float(gains.max()) > 2 * noise["gains"]
        return cls(held, _exponent(gains) if clear else 1.0)

    def check(self, target: Classes) -> None:
        """Refuse what cannot be this target's; it may come from untrusted bytes."""
        self.held.check(target)

    def without(self, fold: int) -> "Calibration":
        """Return the recalibration of the other fold."""
        held = self.held.without(fold)
        return Calibration(held, _exponent(held.gains.sum(0)))

    def apply(self, predicted: Predicted) -> Predicted:
        """Return the recalibrated prediction."""
        return Predicted((self.exponent * predicted.logs).log_softmax(1))

    def limit(self, level: float) -> float:
        """Return q: a set of this level has the classes with log odds of at least −q."""
        return conformal.quantile(self.held.odds.sum(0), FINE.edges, level)

    def sets(self, predicted: Predicted, level: float) -> Tensor:
        """Return which classes are in each row's set, (n, K) of bool.

        predicted: that of the model, not recalibrated.
        """
        return -predicted.odds <= self.limit(level)

    def covered(self, target: Classes, outcomes: Tensor, predicted: Predicted) -> Covered:
        """Return how the sets do on rows, from the model's own prediction."""
        return Covered.of(_own(outcomes, predicted), self._limits(), -predicted.odds)

    def few_covered(
        self, target: Classes, outcomes: Tensor, predicted: Predicted
    ) -> dict[str, Tensor]:
        """Return the block of the sum with noise of how the sets do."""
        return Covered.few(_own(outcomes, predicted), self._limits())

    def _limits(self) -> Tensor:
        return torch.tensor([self.limit(level) for level in LEVELS], dtype=torch.float64)


def _own(outcomes: Tensor, predicted: Predicted) -> Tensor:
    """Return the log odds against each row's class, (n,)."""
    return -predicted.odds.gather(1, outcomes.long()).squeeze(1)


def _gains(outcomes: Tensor, predicted: Predicted) -> Tensor:
    """Return log p_y at each temperature minus that at a = 1, (n, 9)."""
    found = [
        (math.exp(log) * predicted.logs).log_softmax(1).gather(1, outcomes.long()) for log in GRID
    ]
    return torch.cat(found, 1) - found[_NONE]


def _exponent(gains: Tensor) -> float:
    best = top(GRID, gains + log_prior(GRID, centre=0.0, scale=_PRIOR))
    return number_to_bits(math.exp(best), _BITS)
