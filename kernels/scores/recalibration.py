"""Recalibration: interval widths from one histogram of held-out |z| that hospitals can add.

z = (y − μ)/√v is a row's residual in the deviations of a layer that has not seen the row.
Recalibration needs only histograms of it, and gives two things for each target.

**A law of z**, Student's t with a scale (`kernels.scores.student_t`), by maximum likelihood of the
counts: Σ_b n_b·log P(|z| in bin b). This is the exact likelihood of the binned residuals, so sites
need not clip anything, and ν and s need no grid. The Gaussian with a scale is preferred unless the
t improves the log-likelihood by more than 1, for its one additional parameter (Akaike). The log
scale has a prior around that of the model's own N(0, 1), log p = −log(1 + (log s/SPREAD)²): with
few rows a fitted scale is mostly chance, and is drawn towards 1, the more the fewer they are; but a
scale that the rows show to be far from 1, as that of a network trained on few rows, stays where it
is. The mean of z² is not used: one outlier would widen every interval.

There are three kinds of such rows: those for calibration; those for stopping, which have chosen the
kernel's weights; and training rows, each predicted without itself
(`kernels.layer.leave_one_out`), of which there are most. Of the last the layer has seen nothing,
but the kernel's weights have: those of a network fit them too well. So the law's shape is that of
all rows together, and then its scale is moved to that of the held-out rows, as far as these are
worth it: with the same prior around no move. With 200 to 1,000 rows in all, the NLL of new rows is
within .004 of that of the law fitted to themselves, where it was .03 to .1 above it with the rows
for calibration alone.

**Conformal intervals** μ ± q√v, from the rows for calibration alone: with n rows and
k = ⌈(n + 1)p⌉, q is the upper edge of the bin of the k-th smallest |z|. A new row that is
exchangeable with the n rows is inside with a probability of at least p, for any law of z. The bin's
width adds at most 1.1 % to a q above 2^-6, on average half of it, and about 0.2 points to the
coverage of a 90 % interval. If k > n, or the k-th is in the last bin, q is infinite: with so few
rows, or so wrong a model, no finite interval can be guaranteed. The guarantee is on average over
all sites' rows, not within each site, and for rows, not for patients with several rows.
Given the rows, coverage has a deviation of √(p(1 − p)/n): 5 points for 35 rows, 1.3 for ENOUGH.

Rows for calibration are counted in two folds, so that each fold can be scored with the
recalibration of the other (`Recalibration.without`): intervals look too good on the rows that they
were made from.

Conformal prediction was introduced by [Vovk05]; the split conformal intervals are those of [Lei18].
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
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
ENOUGH = 500
"""Rows for calibration from which conformal intervals are the better ones. With fewer, those of the
law are, if it was fitted to training rows as well."""
LAW_BITS = 16
"""Significant bits of ν and of the scale."""
_DIFFERENCE = 1e-3
# The Gaussian's mass in a far bin underflows to 0, and its logarithm must stay finite.
_LEAST_MASS = 1e-300


def _nothing() -> Tensor:
    return torch.zeros(BINS, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Recalibration:
    """The recalibration of one target from residuals of rows that its layer has not seen.

    counts: (FOLDS, BINS) float64, number of rows for calibration by fold and bin of |z|.
    fitted: the law of z; None if there were too few rows to fit one.
    stopping, training: (BINS,), of the other held-out rows, and of training rows, each predicted
    without itself.
    """

    STORED_AS: ClassVar[str] = "recalibrated"

    counts: Tensor
    fitted: StudentT | None
    stopping: Tensor = field(default_factory=_nothing)
    training: Tensor = field(default_factory=_nothing)

    def __post_init__(self) -> None:
        shapes = {"counts": (FOLDS, BINS), "stopping": (BINS,), "training": (BINS,)}
        for name, shape in shapes.items():
            own = getattr(self, name)
            if own.shape != shape or own.dtype != torch.float64:
                raise StatisticsError(
                    f"recalibration.{name} must have shape {shape} and dtype float64, not "
                    f"{tuple(own.shape)} and {own.dtype}"
                )
            if not bool(((own >= 0) & (own < math.inf)).all()):
                raise StatisticsError(
                    f"recalibration.{name} must not contain negative, NaN or infinite values"
                )
        if not (self.fitted is None or isinstance(self.fitted, StudentT)):
            raise StatisticsError(
                f"recalibration.fitted must be a StudentT or None, not {type(self.fitted).__name__}"
            )

    @classmethod
    def of(
        cls,
        counts: Tensor,
        *,
        stopping: Tensor | None = None,
        training: Tensor | None = None,
        min_rows: int,
    ) -> "Recalibration":
        """Return the recalibration of counts; no law is fitted below `min_rows` held-out rows."""
        beside = {"stopping": stopping, "training": training}
        unfitted = cls(counts, None, **{k: own for k, own in beside.items() if own is not None})
        return unfitted if unfitted.held_out < min_rows else unfitted._fitted()

    def _fitted(self) -> "Recalibration":
        return replace(self, fitted=fit(self.counts.sum(0) + self.stopping, self.training))

    @property
    def rows(self) -> int:
        """The number of rows for calibration."""
        return round(float(self.counts.sum()))

    @property
    def held_out(self) -> int:
        """The number of all held-out rows."""
        return self.rows + round(float(self.stopping.sum()))

    @property
    def law(self) -> StudentT:
        """The law of z; N(0, 1), the model's own, if none was fitted."""
        return self.fitted or StudentT()

    @property
    def law_is_better(self) -> bool:
        """Whether the law's intervals are to be preferred to conformal ones."""
        return self.fitted is not None and self.rows < ENOUGH and bool(self.training.any())

    def conformal(self, level: float) -> float:
        """Return q of the conformal interval μ ± q√v; infinite if no finite one guarantees p."""
        # For a p like 0.9, rounding can move (n + 1)p above the integer that it should be.
        rank = math.ceil((self.rows + 1) * checked_level(level) * (1 - 1e-12))
        position = int((self.counts.sum(0).cumsum(0) < rank - 0.5).sum())
        return float(EDGES[position]) if position < len(EDGES) else math.inf

    def without(self, fold: int) -> "Recalibration":
        """Return the recalibration without a fold; its law is fitted if this one's is."""
        counts = self.counts.clone()
        counts[fold] = 0.0
        others = replace(self, counts=counts, fitted=None)
        return others if self.fitted is None else others._fitted()


def histogram(z: Tensor) -> Tensor:
    """Count |z|, (n,), by bin, (BINS,) float64; adding or removing one row changes it by 1."""
    return torch.bincount(torch.bucketize(z.abs(), EDGES), minlength=BINS).double()


def histograms(z: Tensor) -> Tensor:
    """Count |z| of each target, (n, T), by bin, (T, BINS)."""
    return torch.stack([histogram(own) for own in z.mT])


def inflation(recalibrations: Sequence[Recalibration] | None, targets: int) -> Tensor:
    """Return the variance of each target's law of z, (T,); 1 without recalibration."""
    laws = [StudentT()] * targets if recalibrations is None else [r.law for r in recalibrations]
    return torch.tensor([law.variance for law in laws], dtype=torch.float64)


def fit(held_out: Tensor, training: Tensor | None = None) -> StudentT:
    """Return the law of z for counts (BINS,) of held-out rows, and of training rows if given.

    The likeliest law of all together, moved to the scale of the held-out rows; N(0, 1) if there are
    none at all.
    """
    together = held_out if training is None else held_out + training
    if float(together.sum()) < 0.5:
        return StudentT()
    counted = _Counted.of(together)
    law = likeliest(counted.loss, median=counted.median, rows=counted.rows)
    if training is None or not bool(training.any()) or float(held_out.sum()) < 0.5:
        return law
    return _moved(law, _Counted.of(held_out))


@dataclass(frozen=True)
class _Counted:
    """Rows by bin of |z|: the share of each bin that has any, and its ends."""

    rows: float
    shares: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]

    @classmethod
    def of(cls, counts: Tensor) -> "_Counted":
        ends = np.concatenate([[0.0], EDGES.numpy(), [np.inf]])
        own, rows = counts.numpy() > 0, float(counts.sum())
        return cls(rows, counts.numpy()[own] / rows, ends[:-1][own], ends[1:][own])

    @property
    def median(self) -> float:
        return float(self.lower[np.searchsorted(self.shares.cumsum(), 0.5)])

    def loss(self, law: StudentT, *, around: float = 1.0) -> float:
        """Return −log of likelihood and prior per row; around: the scale that the prior prefers."""
        mass = law.beyond(self.lower) - law.beyond(self.upper)
        prior = math.log1p((math.log(law.scale / around) / SPREAD) ** 2)
        return prior / self.rows - float(self.shares @ np.log(np.maximum(mass, _LEAST_MASS)))


def _moved(law: StudentT, held_out: _Counted) -> StudentT:
    """Return the law with the scale that held-out rows give it."""

    def loss(at: Iterable[float]) -> float:
        (scale,) = map(math.exp, at)
        return held_out.loss(StudentT(law.freedom, scale), around=law.scale)

    starts = law.scale, _scale(law.freedom, _within(held_out.median))
    start = min(([math.log(scale)] for scale in starts), key=loss)
    (found,) = _lowest(loss, start, [_LOG_SCALES])
    return _rounded(StudentT(law.freedom, math.exp(float(found))))


def likeliest(loss: Callable[[StudentT], float], *, median: float, rows: float) -> StudentT:
    """Return the law of smallest loss per row: the t, or the Gaussian if the t gains too little.

    The t must be better than the Gaussian by more than 1 in total. median: of |z|, where the search
    starts.
    """
    median = _within(median)
    gaussian = _descend(loss, [StudentT(), StudentT(None, _scale(None, median))])
    student = _descend(loss, [StudentT(nu, _scale(nu, median)) for nu in _STARTS])
    return student if rows * (loss(gaussian) - loss(student)) > _AKAIKE else gaussian


def _within(median: float) -> float:
    """Return a median within the bins that have two ends."""
    return min(max(median, 2.0**_SMALLEST), 2.0**_LARGEST)


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

    found = law(_lowest(lambda at: loss(law(at)), point, bounds))
    return _rounded(min((start, found), key=loss))


def _lowest(
    loss: Callable[[Iterable[float]], float],
    start: list[float],
    bounds: list[tuple[float, float]],
) -> NDArray[np.float64]:
    """Return where a function of one or two numbers is lowest, the same on every machine."""
    found = minimize(loss, start, method="L-BFGS-B", bounds=bounds).x

    def slope(at: NDArray[np.float64]) -> NDArray[np.float64]:
        shifts = _DIFFERENCE * np.eye(len(at))
        slopes = [(loss(at + h) - loss(at - h)) / (2 * _DIFFERENCE) for h in shifts]
        return np.array(slopes)

    return polished(slope, found, np.array(bounds))


def _rounded(law: StudentT) -> StudentT:
    """Return the law with LAW_BITS bits: the same from every machine's search."""
    freedom = None if law.freedom is None else number_to_bits(law.freedom, LAW_BITS)
    return StudentT(freedom, number_to_bits(law.scale, LAW_BITS))
