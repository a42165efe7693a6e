"""Bayesian linear regression: a posterior known in closed form, to test samplers against."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.samplers.sampler import Batch

NOISE, PRIOR = 0.25, 4.0


@dataclass(frozen=True, eq=False)
class Regression:
    """y = Xw + ε; w ~ N(0, PRIOR·I) given rows has the mean m and the precision A."""

    x: Tensor
    y: Tensor

    @classmethod
    def of(cls, rows: int, *, scales: tuple[float, ...] = (1.0, 1.0, 1.0)) -> "Regression":
        generator = torch.Generator().manual_seed(7)
        mixing = torch.eye(len(scales)).double() + 0.3
        x = torch.randn(rows, len(scales), generator=generator, dtype=torch.float64)
        x = x @ mixing * torch.tensor(scales, dtype=torch.float64)
        noise = torch.randn(rows, generator=generator, dtype=torch.float64)
        truth = torch.linspace(-1, 1, len(scales)).double() / torch.tensor(scales).double()
        return cls(x, x @ truth + NOISE**0.5 * noise)

    @property
    def rows(self) -> int:
        return len(self.x)

    @property
    def precision(self) -> Tensor:
        return self.x.mT @ self.x / NOISE + torch.eye(self.x.shape[1]).double() / PRIOR

    @property
    def mean(self) -> Tensor:
        return torch.linalg.solve(self.precision, self.x.mT @ self.y / NOISE)

    @property
    def covariance(self) -> Tensor:
        return self.precision.inverse()

    @property
    def table(self) -> Batch:
        return self.x, self.y

    def log_posterior(self, parameters: Tensor, batch: Batch) -> Tensor:
        """Return the mean over rows; temperature 1/N samples the posterior."""
        x, y = batch
        squares = (parameters @ x.mT - y).square().mean(-1) / NOISE
        return -squares / 2 - parameters.square().sum(-1) / (2 * PRIOR * self.rows)

    def start(self, chains: int) -> Tensor:
        """Return starting points of chains that are far too widely spread."""
        generator = torch.Generator().manual_seed(3)
        away = torch.randn(chains, self.x.shape[1], generator=generator, dtype=torch.float64)
        return self.mean + 3 * away * self.covariance.diagonal().sqrt()


def deviations(samples: Tensor, mean: Tensor, covariance: Tensor) -> float:
    """Return how far draws (C, P) are from these moments, in Monte Carlo standard errors.

    The largest over all means, variances and covariances.
    """
    count, variance = len(samples), covariance.diagonal()
    means = (samples.mean(0) - mean).abs() / (variance / count).sqrt()
    spread = ((variance[:, None] * variance + covariance.square()) / count).sqrt()
    covariances = (samples.mT.cov() - covariance).abs() / spread
    return float(torch.maximum(means.max(), covariances.max()))
