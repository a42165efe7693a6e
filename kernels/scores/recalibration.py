"""Intervals as wide as held-out residuals say: from one histogram of |z| that hospitals can add.

z = (y − μ)/√v is a held-out row's residual in the model's own deviations. Its histogram is all
that recalibration needs, and gives two things for each target.

**A law of z**, Student's t with a scale (`kernels.scores.student_t`), by maximum likelihood of the
counts: Σ_b n_b·log P(|z| in bin b), which is the exact likelihood of the binned residuals, so sites
have nothing to floor or to clip, and ν and s need no grid. The Gaussian with a scale is kept unless
the t is better by more than its one further parameter, and the model's own N(0, 1) unless either is
by more than its one or two (Akaike): of few rows a scale is mostly their luck. Never the mean of
z²: one outlier would widen every interval.

**Conformal intervals** μ ± q√v: with n rows and k = ⌈(n + 1)p⌉, q is the upper edge of the bin of
the k-th smallest |z|. A new row that is exchangeable with the n is inside with a probability of at
least p, whatever the law of z; the bin's width adds at most 1.1 % to a q above 2^-6, on average
half of it, and about 0.2 points to the coverage of a 90 % interval. Where k > n, or the k-th is in
the last bin, q is infinite: so few rows, or a model so wrong, can promise nothing shorter. The
promise is on average over all sites' rows, not within each site, and for rows, not for patients
with several.

Rows are counted in two folds, so that each fold can be judged by what the other one says
(`Recalibration.without`): intervals look too good on the rows that they were made from.

[Vovk05] is where conformal prediction comes from; split conformal intervals are those of
[Lei18].
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from kernels.errors import StatisticsError
from kernels.scores.student_t import StudentT, checked_level

FOLDS = 2

BINS_PER_DOUBLING = 64
_SMALLEST, _LARGEST = -6, 8
EDGES = 2.0 ** (
    torch.arange(_SMALLEST * BINS_PER_DOUBLING, _LARGEST * BINS_PER_DOUBLING + 1).double()
    / BINS_PER_DOUBLING
)
"""Bins end at 2^(k/64) from 2^-6 to 2^8, ends included; the first begins at 0, the last is open."""
BINS = len(EDGES) + 1

FREEDOM_BOUNDS = 2.5, 100.0
"""ν stays where the variance is at most five times s²: below, the likelihood hardly changes and
the variance grows without bound. Beyond the greatest ν the Gaussian stands for it."""
_LOG_SCALES = (_SMALLEST - 1) * math.log(2), (_LARGEST + 1) * math.log(2)
_LOG_EXCESSES = math.log(FREEDOM_BOUNDS[0] - 2), math.log(FREEDOM_BOUNDS[1] - 2)
_STARTS = 2.6, 4.0, 10.0, 50.0
_AKAIKE = 1.0
# The Gaussian's mass of a far bin underflows, and its logarithm must not.
_LEAST_MASS = 1e-300


@dataclass(frozen=True, eq=False)
class Recalibration:
    """What the held-out residuals of one target say.

    counts: (FOLDS, BINS) float64, rows by fold and bin of |z|.
    fitted: the law of z; None where there were too few rows to fit one.
    """

    STORED_AS: ClassVar[str] = "recalibrated"

    counts: Tensor
    fitted: StudentT | None

    def __post_init__(self) -> None:
        if self.counts.shape != (FOLDS, BINS) or self.counts.dtype != torch.float64:
            raise StatisticsError(
                f"a histogram of |z| is ({FOLDS}, {BINS}) in float64, not "
                f"{tuple(self.counts.shape)} in {self.counts.dtype}"
            )
        if not bool(((self.counts >= 0) & (self.counts < math.inf)).all()):
            raise StatisticsError("a histogram of |z| has no negative or infinite counts")
        if not (self.fitted is None or isinstance(self.fitted, StudentT)):
            raise StatisticsError("the law of z is Student's t, the Gaussian, or None")

    @classmethod
    def of(cls, counts: Tensor, *, min_rows: int) -> "Recalibration":
        """Fit the law to counts (FOLDS, BINS) of at least `min_rows` rows."""
        unfitted = cls(counts, None)
        return unfitted if unfitted.rows < min_rows else cls(counts, fit(counts.sum(0)))

    @property
    def rows(self) -> int:
        """How many rows were counted."""
        return round(float(self.counts.sum()))

    @property
    def law(self) -> StudentT:
        """The law of z: the model's own, N(0, 1), where none was fitted."""
        return self.fitted or StudentT()

    def conformal(self, level: float) -> float:
        """Return q of the conformal interval μ ± q√v; infinite where no shorter one keeps p."""
        # (n + 1)p of a p like 0.9 can be above the whole number that it stands for by a rounding.
        rank = math.ceil((self.rows + 1) * checked_level(level) * (1 - 1e-12))
        position = int((self.counts.sum(0).cumsum(0) < rank - 0.5).sum())
        return float(EDGES[position]) if position < len(EDGES) else math.inf

    def without(self, fold: int) -> "Recalibration":
        """Return what the other fold says, fitted if this is."""
        counts = self.counts.clone()
        counts[fold] = 0.0
        return Recalibration(counts, None if self.fitted is None else fit(counts.sum(0)))


def histogram(z: Tensor) -> Tensor:
    """Count |z|, (n,), by bin, (BINS,) float64; one row more or less moves it by 1."""
    return torch.bincount(torch.bucketize(z.abs(), EDGES), minlength=BINS).double()


def inflation(recalibrations: Sequence[Recalibration] | None, targets: int) -> Tensor:
    """Return the variance of each target's law of z, (T,); 1 where nothing was recalibrated."""
    laws = [StudentT()] * targets if recalibrations is None else [r.law for r in recalibrations]
    return torch.tensor([law.variance for law in laws], dtype=torch.float64)


def fit(counts: Tensor) -> StudentT:
    """Return the likeliest law of z for counts (BINS,); N(0, 1) if there are none."""
    rows = float(counts.sum())
    if rows < 0.5:
        return StudentT()
    ends = np.concatenate([[0.0], EDGES.numpy(), [np.inf]])
    own = counts.numpy() > 0
    shares, lower, upper = counts.numpy()[own] / rows, ends[:-1][own], ends[1:][own]

    def loss(law: StudentT) -> float:
        mass = law.beyond(lower) - law.beyond(upper)
        return -float(shares @ np.log(np.maximum(mass, _LEAST_MASS)))

    median = float(lower[np.searchsorted(shares.cumsum(), 0.5)])
    law = likeliest(loss, median=median, rows=rows)
    parameters = 1 if law.freedom is None else 2
    standard = StudentT()
    return law if rows * (loss(standard) - loss(law)) > parameters * _AKAIKE else standard


def likeliest(loss: Callable[[StudentT], float], *, median: float, rows: float) -> StudentT:
    """Return the law of least loss per row, near a median of |z|; the Gaussian if it will do."""
    median = min(max(median, 2.0**_SMALLEST), 2.0**_LARGEST)
    gaussian = _descend(loss, [StudentT(None, _scale(None, median))])
    student = _descend(loss, [StudentT(nu, _scale(nu, median)) for nu in _STARTS])
    return student if rows * (loss(gaussian) - loss(student)) > _AKAIKE else gaussian


def _scale(freedom: float | None, median: float) -> float:
    """Return the scale with which half of |z| is below a median."""
    return median / StudentT(freedom).half_width(0.5)


def _descend(loss: Callable[[StudentT], float], starts: list[StudentT]) -> StudentT:
    """Go downhill in log s and log(ν − 2) from the best of some laws of one family."""
    start = min(starts, key=loss)
    point, bounds = [math.log(start.scale)], [_LOG_SCALES]
    if start.freedom is not None:
        point, bounds = [*point, math.log(start.freedom - 2)], [*bounds, _LOG_EXCESSES]

    def law(at: Sequence[float]) -> StudentT:
        scale, *excess = map(math.exp, at)
        return StudentT(2 + excess[0] if excess else None, scale)

    found = minimize(lambda at: loss(law(at)), point, method="L-BFGS-B", bounds=bounds)
    return min((start, law(found.x)), key=loss)
