"""Scores of classes, from the log-probabilities of each row.

    log loss  −log p_y        Brier  Σ_k (p_k − 1[y = k])²  (from 0 to 2)

For each class the log odds against all others are counted in public bins, for rows of other classes
and of this one: its AUC follows, and their mean over classes that have rows of both kinds (macro).
The greatest probability of each row is counted by whether it was right: accuracy's calibration
curve, and the ECE, follow.

**With noise** three blocks are summed: the confusion matrix and the coarse histogram of the
greatest probability, which one row changes by 1, and the two losses, as shares of 8 nats, where log
losses are clipped, and of 2: by √2. There is no AUC: a row would be in the histograms of all K
classes, and noise of √K in 52·K bins would hide it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from kernels.noisy.counts import repaired
from kernels.noisy.recalibration import COUNT_STEP
from kernels.outcomes import classes
from kernels.outcomes.scored.logit_bins import COARSE, FINE, MEDIUM, from_coarse
from kernels.outcomes.scored.ranking import auc
from kernels.outcomes.scored.reliability import Curve, curve
from kernels.outcomes.scored.summed import (
    LOG_LOSS_BOUND,
    RESOLUTION,
    Scored,
    SumBlock,
    check_some,
)
from kernels.reproducible import on_grid
from kernels.tables.targets import Classes

_CLIPPED = 8.0
_MOST_BRIER = 2.0


@dataclass(frozen=True, eq=False)
class Predicted:
    """The log-probabilities of the classes, (n, K), finite."""

    logs: Tensor

    @classmethod
    def of(cls, mean: Tensor, variance: Tensor, *, offsets: tuple[float, ...]) -> "Predicted":
        """Return them from the K latent functions' means and variances, each (n, K)."""
        return cls.of_chances(classes.predict(mean, variance, offsets=offsets).mean)

    @classmethod
    def of_chances(cls, chances: Tensor) -> "Predicted":
        """Return them from the probabilities, (n, K), some of which may be 0."""
        return cls(chances.clamp_min(torch.finfo(torch.float64).tiny).log().log_softmax(1))

    @property
    def chances(self) -> Tensor:
        """The probabilities, (n, K)."""
        return self.logs.exp()

    @property
    def odds(self) -> Tensor:
        """The log odds of each class against all others, (n, K)."""
        rest = [self.logs[:, torch.arange(self.logs.shape[1]) != k].logsumexp(1) for k in self._all]
        return self.logs - torch.stack(rest, 1)

    @property
    def _all(self) -> range:
        return range(self.logs.shape[1])

    def __getitem__(self, rows: Tensor) -> "Predicted":
        return Predicted(self.logs[rows])


@dataclass(frozen=True)
class Quality:
    """Scores of classes.

    auc: the mean of one class against the rest over classes for which there is one; None if there
    is none. ece and curve: of the greatest probability. confusion: rows by true class, then by the
    class of greatest probability.
    """

    rows: float
    log_loss: float
    brier: float
    accuracy: float
    auc: float | None
    ece: float
    curve: Curve
    confusion: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, eq=False)
class Sums(Scored[Classes, Predicted]):
    """Sums over rows of classes."""

    STORED_AS: ClassVar[str] = "outcome.classes.sums"

    confusion: Tensor
    """(K, K) rows by true class and by the class of greatest probability."""
    against_rest: Tensor
    """(K, 2, MEDIUM.count) rows of other classes and of each class, by its log odds."""
    tops: Tensor
    """(2, FINE.count) rows whose likeliest class was wrong and right, by its log odds."""
    log_losses: Tensor
    """() Σ log loss, each at most LOG_LOSS_BOUND."""
    briers: Tensor
    """() Σ Brier's score."""

    @classmethod
    def blocks(cls, target: Classes) -> tuple[SumBlock, ...]:
        """Return the five blocks."""
        k = len(target.levels)
        return (
            SumBlock("confusion", (k, k), 1.0, 1.0),
            SumBlock("against_rest", (k, 2, MEDIUM.count), 1.0, 1.0),
            SumBlock("tops", (2, FINE.count), 1.0, 1.0),
            SumBlock("log_losses", (), LOG_LOSS_BOUND, RESOLUTION),
            SumBlock("briers", (), _MOST_BRIER, RESOLUTION),
        )

    @classmethod
    def few_blocks(cls, target: Classes) -> tuple[SumBlock, ...]:
        """Return the confusion matrix, the coarse histogram, and the losses as shares."""
        k = len(target.levels)
        return (
            SumBlock("confusion", (k, k), 1.0, 1.0, 1.0),
            SumBlock("tops", (2, COARSE.count), 1.0, 1.0, 1.0),
            SumBlock("losses", (2,), 1.0, RESOLUTION, math.sqrt(2)),
        )

    @classmethod
    def of(cls, target: Classes, outcomes: Tensor, predicted: Predicted) -> "Sums":
        """Return the sums over rows with outcomes (n, 1), positions of levels."""
        k, y, odds = len(target.levels), outcomes[:, 0].long(), predicted.odds
        top, right = _tops(y, odds)
        losses, briers = _losses(y, predicted)
        return cls(
            _confusion(y, odds, k),
            torch.stack([MEDIUM.by_group(odds[:, own], y == own, 2) for own in range(k)]),
            FINE.by_group(top, right, 2),
            losses.clamp_max(LOG_LOSS_BOUND).sum(),
            briers.sum(),
        )

    @classmethod
    def few(cls, target: Classes, outcomes: Tensor, predicted: Predicted) -> dict[str, Tensor]:
        """Return the three blocks over rows."""
        y, odds = outcomes[:, 0].long(), predicted.odds
        losses, briers = _losses(y, predicted)
        shares = losses.clamp_max(_CLIPPED).sum() / _CLIPPED, briers.sum() / _MOST_BRIER
        return {
            "confusion": _confusion(y, odds, len(target.levels)),
            "tops": COARSE.by_group(*_tops(y, odds), 2),
            "losses": torch.stack(shares),
        }

    @classmethod
    def from_noisy(cls, target: Classes, totals: Mapping[str, Tensor]) -> "Sums":
        """Return valid sums, without histograms of one class against the rest."""
        confusion = repaired(totals["confusion"].flatten()).view_as(totals["confusion"])
        tops = from_coarse(totals["tops"], FINE)
        rows = float(confusion.sum())
        losses = totals["losses"].clamp(0.0, rows)
        return cls(
            on_grid(confusion, COUNT_STEP),
            cls.zero(target).against_rest,
            tops,
            on_grid(losses[0] * _CLIPPED, RESOLUTION),
            on_grid(losses[1] * _MOST_BRIER, RESOLUTION),
        )

    @property
    def row_count(self) -> float:
        """The number of rows, or with noise an estimate of it."""
        return float(self.confusion.sum())

    def quality(self, target: Classes) -> Quality:
        """Return the scores; refuse sums without rows."""
        rows = check_some(self.row_count)
        areas = [own for own in (auc(*each) for each in self.against_rest) if own is not None]
        found = curve(torch.sigmoid(FINE.centres), *self.tops)
        return Quality(
            rows,
            float(self.log_losses) / rows,
            float(self.briers) / rows,
            float(self.confusion.diagonal().sum()) / rows,
            sum(areas) / len(areas) if areas else None,
            found.ece(),
            found,
            tuple(tuple(own) for own in self.confusion.tolist()),
        )


def _confusion(y: Tensor, odds: Tensor, k: int) -> Tensor:
    cells = y * k + odds.argmax(1)
    return torch.bincount(cells, minlength=k * k).double().view(k, k)


def _tops(y: Tensor, odds: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log odds of the likeliest class, and whether it is the true one, each (n,)."""
    top, likeliest = odds.max(1)
    return top, likeliest == y


def _losses(y: Tensor, predicted: Predicted) -> tuple[Tensor, Tensor]:
    """Return log losses and Brier's scores, each (n,)."""
    hot = one_hot(y, predicted.logs.shape[1]).double()
    return -(predicted.logs * hot).sum(1), (predicted.chances - hot).square().sum(1)
