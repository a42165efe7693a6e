"""Histograms of log odds in public bins of equal width, [−reach, reach), and one bin on each side.

Scores of probabilities need no more than how many rows of each outcome have which log odds. The
ends of bins are multiples of a power of two, 0 among them: a threshold of ½ is exact, and turning
the sign maps bins onto bins.

A probability is read as that of its bin's centre. Within a bin of width w it differs from it by at
most w/8, the share ¼ of half the width: .004 for FINE; and where rows are spread over a bin, their
mean differs by w²/12 times how steep their density is, .0001. A further sum of the probabilities in
each bin would be exact, and would double what a site tells.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from kernels.noisy.counts import repaired
from kernels.noisy.recalibration import COUNT_STEP
from kernels.reproducible import on_grid

_TAIL = 1.0
"""Rows beyond the ends of coarse bins are taken to be within one unit of them."""


@dataclass(frozen=True)
class LogitBins:
    """Bins [k·width, (k + 1)·width) between −reach and reach, and one without an end on each side.

    >>> LogitBins(2.0, 1.0).histogram(torch.tensor([-9.0, 0.0, 0.5, 1.0])).tolist()
    [1.0, 0.0, 0.0, 2.0, 1.0, 0.0]
    """

    reach: float
    width: float

    @property
    def count(self) -> int:
        """The number of bins."""
        return round(2 * self.reach / self.width) + 2

    @cached_property
    def edges(self) -> Tensor:
        """The ends of bins, (count − 1,)."""
        half = round(self.reach / self.width)
        return torch.arange(-half, half + 1, dtype=torch.float64) * self.width

    @cached_property
    def centres(self) -> Tensor:
        """The centres of bins, (count,); those without an end are taken to be as wide as others."""
        lower = torch.cat([self.edges[:1] - self.width, self.edges])
        return lower + self.width / 2

    def positions(self, logits: Tensor) -> Tensor:
        """Return the bin of each logit."""
        return torch.bucketize(logits.contiguous(), self.edges, right=True)

    def histogram(self, logits: Tensor) -> Tensor:
        """Count logits (n,) by bin, (count,) float64; one row changes it by 1."""
        return torch.bincount(self.positions(logits), minlength=self.count).double()

    def by_group(self, logits: Tensor, group: Tensor, groups: int) -> Tensor:
        """Count logits (n,) by group (n,) and bin, (groups, count); one row changes it by 1."""
        cells = group.long() * self.count + self.positions(logits)
        counted = torch.bincount(cells, minlength=groups * self.count)
        return counted.double().view(groups, self.count)

    def finer(self, counts: Tensor, other: "LogitBins") -> Tensor:
        """Return counts (…, count) spread evenly over the finer bins of another, (…, its count).

        Rows beyond the ends are spread over the unit next to them.
        """
        inside = other.centres.abs() < self.reach + _TAIL
        own = self.positions(other.centres)[inside]
        pieces = torch.bincount(own, minlength=self.count)
        found = torch.zeros(*counts.shape[:-1], other.count, dtype=torch.float64)
        found[..., inside] = (counts / pieces)[..., own]
        return found


FINE = LogitBins(12.0, 1 / 32)
"""AUC counts pairs within a bin as ties: with log odds of deviation 1 one in a hundred pairs, an
error below 1e-3 with some hundred rows. With a deviation of .05 it is a fifth of AUC's own standard
error."""
MEDIUM = LogitBins(8.0, 1 / 8)
"""For many histograms at once; the error of AUC is below 1e-3 with log odds of deviation 1."""
COARSE = LogitBins(6.0, 1 / 2)
"""For sums with noise: noise of s in every bin is noise of s√b in a sum of b bins."""


def from_coarse(noisy: Tensor, bins: LogitBins) -> Tensor:
    """Return valid counts in `bins` from noisy counts of COARSE, (…, its count).

    The nearest valid histogram over all dimensions together (`kernels.noisy.counts`), spread and
    rounded, so that all members have the same.
    """
    whole = repaired(noisy.flatten()).view(noisy.shape)
    return on_grid(COARSE.finer(whole, bins), COUNT_STEP)
