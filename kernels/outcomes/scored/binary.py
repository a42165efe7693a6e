"""Scores of a yes/no outcome, from the log odds of each row by outcome.

The log odds l = logit E[s(f + o)] are counted in fine public bins (`logit_bins`), for rows without
and with the event. From the histogram follow AUC, ROC, the calibration curve and the confusion
matrix at ½, which is exact as 0 is an end of bins. Log loss and Brier's score have sums of their
own, and so no error of binning:

    log loss  −log p(y)        Brier  (p − y)²

**With noise** there is the coarse histogram alone: one row changes it by 1. Log loss and Brier's
score are then those of the bins' centres, and all of the budget is spent on one block.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from kernels.outcomes.quadrature import expected
from kernels.outcomes.scored.logit_bins import COARSE, FINE, from_coarse
from kernels.outcomes.scored.ranking import auc, roc
from kernels.outcomes.scored.reliability import Curve, curve
from kernels.outcomes.scored.summed import (
    LOG_LOSS_BOUND,
    RESOLUTION,
    Scored,
    SumBlock,
    check_some,
)
from kernels.reproducible import on_grid
from kernels.tables.targets import Binary

_MOST_LOGIT = 700.0


@dataclass(frozen=True, eq=False)
class Predicted:
    """The log odds of the event, (n,): those of the probability that is served."""

    logits: Tensor

    @classmethod
    def of(cls, mean: Tensor, variance: Tensor, *, offset: float) -> "Predicted":
        """Return the log odds from the latent f ~ N(mean, variance), each (n,).

        Both probabilities are integrated, so that the rarer one keeps its digits.
        """
        yes = expected(torch.sigmoid, mean + offset, variance)
        no = expected(torch.sigmoid, -mean - offset, variance)
        least = torch.finfo(torch.float64).tiny
        logits = yes.clamp_min(least).log() - no.clamp_min(least).log()
        return cls(logits.clamp(-_MOST_LOGIT, _MOST_LOGIT))

    @property
    def chances(self) -> Tensor:
        """The probabilities of the event, (n,)."""
        return torch.sigmoid(self.logits)

    def __getitem__(self, rows: Tensor) -> "Predicted":
        return Predicted(self.logits[rows])


@dataclass(frozen=True)
class Quality:
    """Scores of a yes/no outcome.

    auc: None if all outcomes are alike. confusion: rows that are (true negative, false positive,
    false negative, true positive) if the event is called at a probability of ½. roc: rates of false
    and of true positives.
    """

    rows: float
    events: float
    log_loss: float
    brier: float
    auc: float | None
    ece: float
    curve: Curve
    confusion: tuple[float, float, float, float]
    roc: tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, eq=False)
class Sums(Scored[Binary, Predicted]):
    """Sums over rows of a yes/no outcome."""

    STORED_AS: ClassVar[str] = "outcome.binary.sums"

    scores: Tensor
    """(2, FINE.count) rows without and with the event, by log odds."""
    log_losses: Tensor
    """() Σ log loss, each at most LOG_LOSS_BOUND."""
    briers: Tensor
    """() Σ (p − y)²."""

    @classmethod
    def blocks(cls, target: Binary) -> tuple[SumBlock, ...]:
        """Return the histogram and the two losses."""
        return (
            SumBlock("scores", (2, FINE.count), 1.0, 1.0),
            SumBlock("log_losses", (), LOG_LOSS_BOUND, RESOLUTION),
            SumBlock("briers", (), 1.0, RESOLUTION),
        )

    @classmethod
    def few_blocks(cls, target: Binary) -> tuple[SumBlock, ...]:
        """Return the coarse histogram."""
        return (SumBlock("scores", (2, COARSE.count), 1.0, 1.0, 1.0),)

    @classmethod
    def of(cls, target: Binary, outcomes: Tensor, predicted: Predicted) -> "Sums":
        """Return the sums over rows with outcomes (n, 1), 0 or 1."""
        y, logits = outcomes[:, 0].double(), predicted.logits
        return cls(
            FINE.by_group(logits, y, 2),
            softplus((1 - 2 * y) * logits).clamp_max(LOG_LOSS_BOUND).sum(),
            (predicted.chances - y).square().sum(),
        )

    @classmethod
    def few(cls, target: Binary, outcomes: Tensor, predicted: Predicted) -> dict[str, Tensor]:
        """Return the coarse histogram over rows."""
        return {"scores": COARSE.by_group(predicted.logits, outcomes[:, 0], 2)}

    @classmethod
    def from_noisy(cls, target: Binary, totals: Mapping[str, Tensor]) -> "Sums":
        """Return valid sums from a noisy histogram, with the losses of the bins' centres."""
        scores = from_coarse(totals["scores"], FINE)
        without, with_event = scores
        losses = without * softplus(FINE.centres) + with_event * softplus(-FINE.centres)
        chances = torch.sigmoid(FINE.centres)
        briers = without * chances.square() + with_event * (1 - chances).square()
        return cls(scores, *(on_grid(own.sum(), RESOLUTION) for own in (losses, briers)))

    @property
    def row_count(self) -> float:
        """The number of rows, or with noise an estimate of it."""
        return float(self.scores.sum())

    def quality(self, target: Binary) -> Quality:
        """Return the scores; refuse sums without rows."""
        rows = check_some(self.row_count)
        without, with_event = self.scores
        found = curve(torch.sigmoid(FINE.centres), without, with_event)
        called = FINE.centres > 0
        return Quality(
            rows,
            float(with_event.sum()),
            float(self.log_losses) / rows,
            float(self.briers) / rows,
            auc(without, with_event),
            found.ece(),
            found,
            (
                float(without[~called].sum()),
                float(without[called].sum()),
                float(with_event[~called].sum()),
                float(with_event[called].sum()),
            ),
            roc(without, with_event),
        )
