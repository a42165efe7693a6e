"""The law that a model predicts for a count, and how far in its tails a count is.

Given f a count is negative binomial with the mean exp(l), l = f + o + log E, and the dispersion r,
and l ~ N(m, v) under q (`kernels.outcomes.count`). Its distribution function is a mean over l of

    F(y | l) = I_{r/(r + μ)}(r, y + 1),   μ = eˡ

with the regularised incomplete beta function I. F(y − 1) = F(y) − p(y).
"""

import math
from dataclasses import dataclass

import torch
from scipy.special import betainc
from torch import Tensor

from kernels.outcomes import count
from kernels.outcomes.quadrature import nodes
from kernels.tables.chunks import chunks
from kernels.tables.targets import LARGEST_COUNT

_NODES = 34
_MOST_FINER = 32
_ROWS_AT_A_TIME = 1024
_MOST_LOG = 300.0


@dataclass(frozen=True, eq=False)
class Predicted:
    """The law of each row's count: l ~ N(logs, variance), each (n,), and the dispersion r."""

    logs: Tensor
    variance: Tensor
    dispersion: float

    @classmethod
    def of(
        cls,
        mean: Tensor,
        variance: Tensor,
        *,
        offset: float,
        exposure: Tensor,
        dispersion: float,
    ) -> "Predicted":
        """Return the law from the latent f ~ N(mean, variance) and exposures, each (n,)."""
        return cls(mean + offset + exposure.double().log(), variance, dispersion)

    def means(self) -> Tensor:
        """Return the expected counts, (n,)."""
        return (self.logs + self.variance / 2).clamp_max(_MOST_LOG).exp()

    def log_density(self, counts: Tensor) -> Tensor:
        """Return log p(y) of each row, (n,)."""
        return count.log_density(counts, self.logs, self.variance, dispersion=self.dispersion)

    def below(self, counts: Tensor) -> Tensor:
        """Return F(y), the probability of a count of at most y, (n,)."""
        found = [self.logs.new_zeros(0)]
        r = self.dispersion
        for part in chunks(len(counts), _ROWS_AT_A_TIME):
            y, deviation = counts[part].double(), self.variance[part].clamp_min(0.0).sqrt()
            # Around log y the function falls from 1 to 0 within about √(1/y + 1/r).
            sharpest = float((deviation * (y * r / (y + r)).sqrt()).max())
            finer = min(_MOST_FINER, max(1, math.ceil(sharpest / 2)))
            z, weights = nodes(_NODES * finer + 1)
            logs = self.logs[part, None] + deviation[:, None] * z
            share = torch.sigmoid(math.log(r) - logs)
            values = betainc(r, y[:, None].numpy() + 1, share.numpy())
            found.append((torch.from_numpy(values) @ weights).clamp(0.0, 1.0))
        return torch.cat(found)

    def around(self, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Return F(y − 1) and F(y), each (n,)."""
        upper = self.below(counts)
        lower = upper - self.log_density(counts).exp()
        return torch.where(counts > 0, lower.clamp(0.0, 1.0), 0.0), upper

    def quantile(self, level: float) -> Tensor:
        """Return the least y with F(y) ≥ level, (n,), by bisection; at most LARGEST_COUNT."""
        low = torch.full_like(self.logs, -1.0)
        high = torch.full_like(self.logs, float(LARGEST_COUNT))
        while bool((high - low > 1).any()):
            middle = ((low + high) / 2).floor()
            enough = self.below(middle.clamp_min(0.0)) >= level
            high = torch.where(enough & (middle > low), middle, high)
            low = torch.where(enough, low, middle)
        return high

    def __getitem__(self, rows: Tensor) -> "Predicted":
        return Predicted(self.logs[rows], self.variance[rows], self.dispersion)


def oddness(around: tuple[Tensor, Tensor]) -> Tensor:
    """Return −log₂ of the two-sided tail 2·min(F(y), 1 − F(y − 1)), at least 0, (n,).

    A count is at most q odd if and only if it is in the central interval that leaves 2⁻q outside.
    """
    lower, upper = around
    tail = 2 * torch.minimum(upper, 1 - lower)
    return -tail.clamp(torch.finfo(torch.float64).tiny, 1.0).log2() + 0.0
