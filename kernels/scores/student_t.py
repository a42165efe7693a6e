"""The law of a standardised residual: Student's t with a scale, or its limit, the Gaussian.

If the linear layer predicts N(μ, v), the calibrated prediction is y = μ + s√v·ε, ε ~ t_ν, with
ν > 2 so that it has a variance. The law of z = (y − μ)/√v then has

    density     t_ν(z/s)/s
    variance    s²·ν/(ν − 2), or s² for the Gaussian
    CRPS        s·[x(2F(x) − 1) + 2f(x)(ν + x²)/(ν − 1) − 2√ν·B(½, ν − ½)/((ν − 1)·B(½, ν/2)²)]

at x = z/s. The scale s is not the deviation: the variance of a calibrated prediction is v times
the law's variance, which heavy tails can make much larger than s².

The CRPS is from [Jordan19].
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betaln, gammaln, ndtr, ndtri, stdtr, stdtrit
from torch import Tensor

from kernels.errors import PredictionError

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class StudentT:
    """The law of z; `freedom` is ν > 2, None for the Gaussian; `scale` is s. By default N(0, 1).

    >>> StudentT(freedom=4.0, scale=0.5).variance
    0.5
    """

    STORED_AS: ClassVar[str] = "student-t"

    freedom: float | None = None
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.freedom is not None and not 2 < self.freedom < math.inf:
            raise PredictionError(
                f"freedom must be above 2, so that there is a variance, and finite, not "
                f"{self.freedom}; use None for the Gaussian"
            )
        if not 0 < self.scale < math.inf:
            raise PredictionError(f"scale must be positive and finite, not {self.scale}")

    @property
    def variance(self) -> float:
        """The variance of z."""
        tails = 1.0 if self.freedom is None else self.freedom / (self.freedom - 2)
        return self.scale**2 * tails

    def beyond(self, size: Numbers) -> Numbers:
        """Return P(|z| > size) for sizes ≥ 0, accurate far into the tail."""
        x = -size / self.scale
        below: Numbers = ndtr(x) if self.freedom is None else stdtr(self.freedom, x)
        return 2 * below

    def half_width(self, level: float) -> float:
        """Return q with P(|z| ≤ q) = level: half the width of the central interval."""
        upper = (1 + checked_level(level)) / 2
        quantile = ndtri(upper) if self.freedom is None else stdtrit(self.freedom, upper)
        return self.scale * float(quantile)

    def log_density(self, z: Tensor) -> Tensor:
        """Return the log density of each z."""
        x = z / self.scale
        if self.freedom is None:
            return -x.square() / 2 - math.log(math.sqrt(2 * math.pi) * self.scale)
        nu = self.freedom
        constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - math.log(math.pi * nu) / 2
        return float(constant) - math.log(self.scale) - (nu + 1) / 2 * torch.log1p(x.square() / nu)

    def ranked_loss(self, z: Tensor) -> Tensor:
        """Return the continuous ranked probability score of each z."""
        x = z / self.scale
        within = 1 - torch.from_numpy(self.beyond(z.abs().numpy()))  # 2F(|x|) − 1
        density = (self.log_density(z) + math.log(self.scale)).exp()
        if self.freedom is None:
            spread, constant = 2 * density, 1 / math.sqrt(math.pi)
        else:
            nu = self.freedom
            spread = 2 * density * (nu + x.square()) / (nu - 1)
            betas = float(np.exp(betaln(0.5, nu - 0.5) - 2 * betaln(0.5, nu / 2)))
            constant = 2 * math.sqrt(nu) / (nu - 1) * betas
        return self.scale * (x.abs() * within + spread - constant)


def checked_level(level: float) -> float:
    """Return the level of an interval; refuse it unless it is between 0 and 1."""
    if not 0 < level < 1:
        raise PredictionError(f"the level of an interval must be between 0 and 1, not {level!r}")
    return level
