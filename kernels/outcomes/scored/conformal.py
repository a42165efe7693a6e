"""Conformal sets from a summed histogram of how odd the true outcomes were.

Each held-out row has a number that says how badly the outcome fits its prediction, the greater the
worse. With n rows and k = ⌈(n + 1)p⌉, q is the upper end of the bin of the k-th smallest number,
and the set of a new row has all outcomes whose number is at most q. The true one is among them with
a probability of at least p, for any model and any law, if the row is exchangeable with the n rows
[Vovk05]. If k > n or the k-th is in the last bin, q is infinite and the set has everything.

The numbers are those of the model as it is, not recalibrated: a map fitted to the same rows would
void the guarantee. On average the guarantee is over all sites' rows, not within each site.

    binary, classes    the log odds against the outcome, −logit p_y
    count              −log₂ of the two-sided tail beyond it

A time to an event has no conformal sets: of someone censored nobody knows how odd the time was, and
the guarantee holds only with a model of censoring.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from kernels.noisy.evaluation import BINS as LEAST_BINS
from kernels.noisy.evaluation import inside
from kernels.noisy.recalibration import COUNT_STEP
from kernels.outcomes.scored.summed import SumBlock, Summed, check_some
from kernels.reproducible import on_grid
from kernels.scores.metrics import LEVELS
from kernels.scores.student_t import checked_level
from kernels.tables.targets import Binary, Classes, Count


def quantile(counts: Tensor, ends: Tensor, level: float) -> float:
    """Return q from counts (bins,) and the bins' upper ends (bins − 1,); the last has none."""
    rows = round(float(counts.sum()))
    # For a p like 0.9, rounding can move (n + 1)p above the integer that it should be.
    rank = math.ceil((rows + 1) * checked_level(level) * (1 - 1e-12))
    position = int((counts.cumsum(0) < rank - 0.5).sum())
    return float(ends[position]) if position < len(ends) else math.inf


@dataclass(frozen=True)
class Coverage:
    """Shares of rows in their sets, and mean sizes of sets, for each of `LEVELS`.

    sizes: None for counts, and with differential privacy.
    """

    rows: float
    inside: tuple[float, ...]
    sizes: tuple[float, ...] | None


@dataclass(frozen=True, eq=False)
class Covered(Summed[Binary | Classes | Count]):
    """How the sets of `LEVELS` did; sums over rows.

    With noise a row is counted once, at the least level whose set has its outcome, or beyond all of
    them: one row changes the block by 1.
    """

    STORED_AS: ClassVar[str] = "outcome.covered"

    rows: Tensor
    """() rows."""
    inside: Tensor
    """(19,) rows whose outcome is in the set."""
    sizes: Tensor
    """(19,) Σ outcomes in the set; 0 for counts, whose sets are intervals that cost a search."""

    @classmethod
    def blocks(cls, target: Binary | Classes | Count) -> tuple[SumBlock, ...]:
        """Return the three blocks."""
        largest = 1 if isinstance(target, Count) else len(target.levels)
        return (
            SumBlock("rows", (), 1.0, 1.0),
            SumBlock("inside", (len(LEVELS),), 1.0, 1.0),
            SumBlock("sizes", (len(LEVELS),), float(largest), 1.0),
        )

    @classmethod
    def few_blocks(cls, target: Binary | Classes | Count) -> tuple[SumBlock, ...]:
        """Return the counts of rows by the least level whose set has their outcome."""
        return (SumBlock("least", (LEAST_BINS,), 1.0, 1.0, 1.0),)

    @classmethod
    def of(cls, own: Tensor, limits: Tensor, others: Tensor | None = None) -> "Covered":
        """Return the sums over rows whose outcomes have numbers (n,).

        limits: (19,) q of each level. others: (n, m) the numbers of all possible outcomes.
        """
        found = (own.unsqueeze(1) <= limits).double().sum(0)
        sizes = torch.zeros_like(found)
        if others is not None:
            sizes = (others.unsqueeze(2) <= limits).double().sum((0, 1))
        return cls(torch.tensor(float(len(own)), dtype=torch.float64), found, sizes)

    @classmethod
    def few(cls, own: Tensor, limits: Tensor) -> dict[str, Tensor]:
        """Return the block of the sum with noise."""
        least = torch.bucketize(own.contiguous(), limits.contiguous())
        return {"least": torch.bincount(least, minlength=LEAST_BINS).double()}

    @classmethod
    def from_noisy(cls, totals: Mapping[str, Tensor]) -> "Covered":
        """Return valid sums, without sizes, from the noisy totals of `few`."""
        least = totals["least"]
        rows = least.sum().clamp_min(1.0)
        found = inside(least.unsqueeze(0))[0] * rows
        return cls(*(on_grid(own, COUNT_STEP) for own in (rows, found, torch.zeros_like(found))))

    def coverage(self) -> Coverage:
        """Return the shares; refuse sums without rows."""
        rows = check_some(self.rows)
        sizes = None if not bool(self.sizes.any()) else tuple((self.sizes / rows).tolist())
        return Coverage(rows, tuple((self.inside / rows).tolist()), sizes)
