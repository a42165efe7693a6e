"""Recalibration from a noisy histogram: few bins, and a fit that takes the noise into account.

Noise of deviation s in every bin is noise of s√b in a sum of b bins, which cancels the advantage of
the 898 bins of `kernels.scores.recalibration`. Here EDGES are half a doubling apart: enough to
determine ν and the scale.

A bin with c expected rows has c, plus the variation of a count, of variance about c, plus noise.
The law of z is fitted by the Gaussian likelihood of noisy counts, N(n·P(bin), n·P(bin) + s²). Empty
bins then contribute information too, and false counts in a tail that is empty under the Gaussian
are not mistaken for heavy tails. Conformal quantiles are those of the nearest valid histogram
(`kernels.noisy.counts`), spread evenly within each bin. The noise of the counts below them changes
their coverage by about s√b/n.
"""

import numpy as np
import torch
from torch import Tensor

from kernels.noisy.counts import repaired
from kernels.reproducible import on_grid
from kernels.scores import recalibration
from kernels.scores.recalibration import BINS_PER_DOUBLING, FOLDS, Recalibration, likeliest
from kernels.scores.student_t import StudentT

_STEP = BINS_PER_DOUBLING // 2
_FIRST, _LAST = 2 * BINS_PER_DOUBLING, len(recalibration.EDGES) - 4 * BINS_PER_DOUBLING
EDGES = recalibration.EDGES[_FIRST:_LAST:_STEP].clone()
"""Bins end at 2^(k/2) from 2^-4 to 2^4; the first begins at 0, the last has no upper end."""
BINS = len(EDGES) + 1
COUNT_STEP = 2.0**-20
"""The grid of repaired counts."""


def histogram(z: Tensor) -> Tensor:
    """Count |z|, (n,), by bin, (BINS,) float64; adding or removing one row changes it by 1."""
    return torch.bincount(torch.bucketize(z.abs().contiguous(), EDGES), minlength=BINS).double()


def from_noisy(counts: Tensor, *, noise: float, min_rows: int) -> Recalibration:
    """Return the recalibration of noisy counts (BINS,); no law is fitted below `min_rows` rows."""
    rows = float(counts.sum())
    whole = repaired(counts)
    spread = (_spread(whole) / FOLDS).expand(FOLDS, -1).contiguous()
    spread = on_grid(spread, COUNT_STEP)
    return Recalibration(spread, None if rows < min_rows else _fit(counts, whole, noise))


def _fit(counts: Tensor, whole: Tensor, noise: float) -> StudentT:
    rows = float(whole.sum())
    ends = np.concatenate([[0.0], EDGES.numpy(), [np.inf]])
    seen, lower, upper = counts.numpy(), ends[:-1], ends[1:]

    def loss(law: StudentT) -> float:
        expected = rows * (law.beyond(lower) - law.beyond(upper))
        variance = expected + noise**2
        return float(((seen - expected) ** 2 / variance + np.log(variance)).sum()) / (2 * rows)

    middle = int((whole.cumsum(0) < rows / 2).sum())
    return likeliest(loss, median=float(ends[1:-1][min(middle, len(EDGES) - 1)]), rows=rows)


def _spread(counts: Tensor) -> Tensor:
    """Return counts (BINS,) distributed over the bins of `kernels.scores.recalibration`.

    Below the first edge in proportion to width, as |z| has a density there; between edges evenly;
    beyond the last edge all in the last bin, whose quantiles are infinite.
    """
    fine = torch.zeros(recalibration.BINS, dtype=torch.float64)
    ends = torch.cat([torch.zeros(1, dtype=torch.float64), recalibration.EDGES[: _FIRST + 1]])
    fine[: _FIRST + 1] = counts[0] * ends.diff() / ends[-1]
    fine[_FIRST + 1 : _LAST] = (counts[1:-1] / _STEP).repeat_interleave(_STEP)
    fine[-1] = counts[-1]
    return fine
