"""Recalibration: interval widths from one histogram of held-out |z| that hospitals can add.

z = (y − μ)/√v is a held-out row's residual in the model's deviations. Recalibration needs only its
histogram, and gives two things for each target.

**A law of z**, Student's t with a scale (`kernels.scores.student_t`), by maximum likelihood of the
counts: Σ_b n_b·log P(|z| in bin b). This is the exact likelihood of the binned residuals, so sites
need not clip anything, and ν and s need no grid. The Gaussian with a scale is preferred unless the
t improves the log-likelihood by more than 1, for its one additional parameter (Akaike). The log
scale has a prior around that of the model's own N(0, 1), log p = −log(1 + (log s/SPREAD)²): with
few rows a fitted scale is mostly chance, and is drawn towards 1, the more the fewer they are; but a
scale that the rows show to be far from 1, as that of a network trained on few rows, stays where it
is. The mean of z² is not used: one outlier would widen every interval.

**Conformal intervals** μ ± q√v: with n rows and k = ⌈(n + 1)p⌉, q is the upper edge of the bin of
the k-th smallest |z|. A new row that is exchangeable with the n rows is inside with a probability
of at least p, for any law of z. The bin's width adds at most 1.1 % to a q above 2^-6, on average
half of it, and about 0.2 points to the coverage of a 90 % interval. If k > n, or the k-th is in the
last bin, q is infinite: with so few rows, or so wrong a model, no finite interval can be
guaranteed. The guarantee is on average over all sites' rows, not within each site, and for rows,
not for patients with several rows.

Rows are counted in two folds, so that each fold can be scored with the recalibration of the other
(`Recalibration.without`): intervals look too good on the rows that they were made from.

Conformal prediction was introduced by [Vovk05]; the split conformal intervals are those of [Lei18].
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from kernels.errors import StatisticsError
from kernels.newton import polished
from kernels.reproducible import number_to_bits
from kernels.scores.student_t import StudentT, checked_level

FOLDS = 2

BINS_PER_DOUBLING = 64
_SMALLEST, _LARGEST = -6, 8
EDGES = 2.0 ** (
    torch.arange(_SMALLEST * BINS_PER_DOUBLING, _LARGEST * BINS_PER_DOUBLING + 1).double()
    / BINS_PER_DOUBLING
)
"""Bins end at 2^(k/64) from 2^-6 to 2^8, inclusive; the first begins at 0, the last has no end."""
BINS = len(EDGES) + 1

FREEDOM_BOUNDS = 2.5, 100.0
"""The bounds of ν. At the lower one the variance is five times s²: below it, the likelihood hardly
changes and the variance grows without bound. Above the upper one the Gaussian is used."""
_LOG_SCALES = (_SMALLEST - 1) * math.log(2), (_LARGEST + 1) * math.log(2)
_LOG_EXCESSES = math.log(FREEDOM_BOUNDS[0] - 2), math.log(FREEDOM_BOUNDS[1] - 2)
_STARTS = 2.6, 4.0, 10.0, 50.0
_AKAIKE = 1.0
SPREAD = 0.15
"""How far the log scale of an honest model's z is from 0, as the prior has it."""
LAW_BITS = 16
"""Significant bits of ν and of the scale."""
_DIFFERENCE = 1e-3
# The Gaussian's mass in a far bin underflows to 0, and its logarithm must stay finite.
_LEAST_MASS = 1e-300


@dataclass(frozen=True, eq=False)
class Recalibration:
    """The recalibration of one target from its held-out residuals.

    counts: (FOLDS, BINS) float64, number of rows by fold and bin of |z|.
    fitted: the law of z; None if there were too few rows to fit one.
    """

    STORED_AS: ClassVar[str] = "recalibrated"

    counts: Tensor
    fitted: StudentT | None

    def __post_init__(self) -> None:
        if self.counts.shape != (FOLDS, BINS) or self.counts.dtype != torch.float64:
            raise StatisticsError(
                f"recalibration.counts must have shape ({FOLDS}, {BINS}) and dtype float64, not "
                f"{tuple(self.counts.shape)} and {self.counts.dtype}"
            )
        if not bool(((self.counts >= 0) & (self.counts < math.inf)).all()):
            raise StatisticsError(
                "recalibration.counts must not contain negative, NaN or infinite values"
            )
        if not (self.fitted is None or isinstance(self.fitted, StudentT)):
            raise StatisticsError(
                f"recalibration.fitted must be a StudentT or None, not {type(self.fitted).__name__}"
            )

    @classmethod
    def of(cls, counts: Tensor, *, min_rows: int) -> "Recalibration":
        """Return the recalibration of counts (FOLDS, BINS); no law is fitted below `min_rows`."""
        unfitted = cls(counts, None)
        return unfitted if unfitted.rows < min_rows else cls(counts, fit(counts.sum(0)))

    @property
    def rows(self) -> int:
        """The number of rows counted."""
        return round(float(self.counts.sum()))

    @property
    def law(self) -> StudentT:
        """The law of z; N(0, 1), the model's own, if none was fitted."""
        return self.fitted or StudentT()

    def conformal(self, level: float) -> float:
        """Return q of the conformal interval μ ± q√v; infinite if no finite one guarantees p."""
        # For a p like 0.9, rounding can move (n + 1)p above the integer that it should be.
        rank = math.ceil((self.rows + 1) * checked_level(level) * (1 - 1e-12))
        position = int((self.counts.sum(0).cumsum(0) < rank - 0.5).sum())
        return float(EDGES[position]) if position < len(EDGES) else math.inf

    def without(self, fold: int) -> "Recalibration":
        """Return the recalibration of the other fold; its law is fitted if this one's is."""
        counts = self.counts.clone()
        counts[fold] = 0.0
        return Recalibration(counts, None if self.fitted is None else fit(counts.sum(0)))


def histogram(z: Tensor) -> Tensor:
    """Count |z|, (n,), by bin, (BINS,) float64; adding or removing one row changes it by 1."""
    return torch.bincount(torch.bucketize(z.abs(), EDGES), minlength=BINS).double()


def inflation(recalibrations: Sequence[Recalibration] | None, targets: int) -> Tensor:
    """Return the variance of each target's law of z, (T,); 1 without recalibration."""
    laws = [StudentT()] * targets if recalibrations is None else [r.law for r in recalibrations]
    return torch.tensor([law.variance for law in laws], dtype=torch.float64)


def fit(counts: Tensor) -> StudentT:
    """Return the likeliest law of z for counts (BINS,); N(0, 1) if they are all 0."""
    rows = float(counts.sum())
    if rows < 0.5:
        return StudentT()
    ends = np.concatenate([[0.0], EDGES.numpy(), [np.inf]])
    own = counts.numpy() > 0
    shares, lower, upper = counts.numpy()[own] / rows, ends[:-1][own], ends[1:][own]

    def loss(law: StudentT) -> float:
        mass = law.beyond(lower) - law.beyond(upper)
        prior = math.log1p((math.log(law.scale) / SPREAD) ** 2)
        return prior / rows - float(shares @ np.log(np.maximum(mass, _LEAST_MASS)))

    median = float(lower[np.searchsorted(shares.cumsum(), 0.5)])
    return likeliest(loss, median=median, rows=rows)


def likeliest(loss: Callable[[StudentT], float], *, median: float, rows: float) -> StudentT:
    """Return the law of smallest loss per row: the t, or the Gaussian if the t gains too little.

    The t must be better than the Gaussian by more than 1 in total. median: of |z|, where the search
    starts.
    """
    median = min(max(median, 2.0**_SMALLEST), 2.0**_LARGEST)
    gaussian = _descend(loss, [StudentT(), StudentT(None, _scale(None, median))])
    student = _descend(loss, [StudentT(nu, _scale(nu, median)) for nu in _STARTS])
    return student if rows * (loss(gaussian) - loss(student)) > _AKAIKE else gaussian


def _scale(freedom: float | None, median: float) -> float:
    """Return the scale for which the median of |z| is `median`."""
    return median / StudentT(freedom).half_width(0.5)


def _descend(loss: Callable[[StudentT], float], starts: list[StudentT]) -> StudentT:
    """Minimise over log s and log(ν − 2), from the best of several laws of one family."""
    start = min(starts, key=loss)
    point, bounds = [math.log(start.scale)], [_LOG_SCALES]
    if start.freedom is not None:
        point, bounds = [*point, math.log(start.freedom - 2)], [*bounds, _LOG_EXCESSES]

    def law(at: Iterable[float]) -> StudentT:
        scale, *excess = map(math.exp, at)
        return StudentT(2 + excess[0] if excess else None, scale)

    found = minimize(lambda at: loss(law(at)), point, method="L-BFGS-B", bounds=bounds).x

    def slope(at: NDArray[np.float64]) -> NDArray[np.float64]:
        shifts = _DIFFERENCE * np.eye(len(at))
        slopes = [(loss(law(at + h)) - loss(law(at - h))) / (2 * _DIFFERENCE) for h in shifts]
        return np.array(slopes)

    found = polished(slope, found, np.array(bounds))
    return _rounded(min((start, law(found)), key=loss))


def _rounded(law: StudentT) -> StudentT:
    """Return the law with LAW_BITS bits: the same from every machine's search."""
    freedom = None if law.freedom is None else number_to_bits(law.freedom, LAW_BITS)
    return StudentT(freedom, number_to_bits(law.scale, LAW_BITS))
