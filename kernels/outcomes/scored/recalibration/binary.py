"""Recalibration of a yes/no outcome: a rising map of its log odds, and conformal sets.

Both follow from one histogram of the model's log odds l by outcome and fold: the map
(`kernels.outcomes.scored.logit_map`) from its likelihood, and the sets
(`kernels.outcomes.scored.conformal`) because the log odds against the outcome are −l for an event
and l for none, so that their histogram is one half of this one and the mirror image of the other.

**With noise** the histogram is coarse and has no folds: one row changes it by 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from kernels.outcomes.scored import conformal
from kernels.outcomes.scored.binary import Predicted
from kernels.outcomes.scored.conformal import Covered
from kernels.outcomes.scored.logit_bins import COARSE, FINE, from_coarse
from kernels.outcomes.scored.logit_map import LogitMap
from kernels.outcomes.scored.summed import HeldOut, SumBlock, in_folds
from kernels.scores.metrics import LEVELS
from kernels.scores.recalibration import FOLDS
from kernels.tables.targets import Binary


@dataclass(frozen=True, eq=False)
class Held(HeldOut[Binary, Predicted]):
    """Held-out rows of a yes/no outcome."""

    STORED_AS: ClassVar[str] = "outcome.binary.held"

    scores: Tensor
    """(FOLDS, 2, FINE.count) rows by fold, outcome and log odds."""

    @classmethod
    def blocks(cls, target: Binary) -> tuple[SumBlock, ...]:
        """Return the histogram."""
        return (SumBlock("scores", (FOLDS, 2, FINE.count), 1.0, 1.0),)

    @classmethod
    def few_blocks(cls, target: Binary) -> tuple[SumBlock, ...]:
        """Return the coarse histogram."""
        return (SumBlock("scores", (2, COARSE.count), 1.0, 1.0, 1.0),)

    @classmethod
    def of(cls, target: Binary, outcomes: Tensor, predicted: Predicted, folds: Tensor) -> "Held":
        """Return the histogram of rows with outcomes (n, 1) and folds (n,)."""
        group = 2 * folds.long() + outcomes[:, 0].long()
        return cls(FINE.by_group(predicted.logits, group, 2 * FOLDS).view(FOLDS, 2, -1))

    @classmethod
    def few(cls, target: Binary, outcomes: Tensor, predicted: Predicted) -> dict[str, Tensor]:
        """Return the coarse histogram over rows."""
        return {"scores": COARSE.by_group(predicted.logits, outcomes[:, 0], 2)}


@dataclass(frozen=True, eq=False)
class Calibration:
    """A yes/no outcome's map of log odds, with the rows that it was fitted to."""

    STORED_AS: ClassVar[str] = "outcome.binary.calibration"

    held: Held
    mapped: LogitMap

    @classmethod
    def of(cls, target: Binary, held: Held, *, dispersion: float | None = None) -> "Calibration":
        """Return the recalibration of held-out rows; with none of them, it changes nothing."""
        return cls(held, LogitMap.of(held.scores))

    @classmethod
    def from_noisy(
        cls,
        target: Binary,
        totals: Mapping[str, Tensor],
        noise: Mapping[str, float],
        *,
        dispersion: float | None = None,
    ) -> "Calibration":
        """Return the recalibration of noisy totals, with the deviation of each block's noise."""
        scores = in_folds(from_coarse(totals["scores"], FINE))
        return cls(Held(scores), LogitMap.from_noisy(totals["scores"], noise=noise["scores"]))

    def check(self, target: Binary) -> None:
        """Refuse what cannot be this target's; it may come from untrusted bytes."""
        self.held.check(target)

    def without(self, fold: int) -> "Calibration":
        """Return the recalibration of the other fold, by a map of the same form."""
        held = self.held.without(fold)
        return Calibration(held, self.mapped.again(held.scores))

    def apply(self, predicted: Predicted) -> Predicted:
        """Return the recalibrated prediction."""
        return Predicted(self.mapped(predicted.logits))

    def limit(self, level: float) -> float:
        """Return q: a set of this level has the outcomes with log odds of at least −q."""
        without, with_event = self.held.scores.sum(0)
        return conformal.quantile(without + with_event.flip(0), FINE.edges, level)

    def sets(self, predicted: Predicted, level: float) -> Tensor:
        """Return which of no event and the event are in each row's set, (n, 2) of bool.

        predicted: that of the model, not recalibrated.
        """
        return _odds_against(predicted) <= self.limit(level)

    def covered(self, target: Binary, outcomes: Tensor, predicted: Predicted) -> Covered:
        """Return how the sets do on rows, from the model's own prediction."""
        odds = _odds_against(predicted)
        own = odds.gather(1, outcomes.long()).squeeze(1)
        return Covered.of(own, self._limits(), odds)

    def few_covered(
        self, target: Binary, outcomes: Tensor, predicted: Predicted
    ) -> dict[str, Tensor]:
        """Return the block of the sum with noise of how the sets do."""
        own = _odds_against(predicted).gather(1, outcomes.long()).squeeze(1)
        return Covered.few(own, self._limits())

    def _limits(self) -> Tensor:
        return torch.tensor([self.limit(level) for level in LEVELS], dtype=torch.float64)


def _odds_against(predicted: Predicted) -> Tensor:
    """Return the log odds against no event and against the event, (n, 2)."""
    return torch.stack([predicted.logits, -predicted.logits], 1)
