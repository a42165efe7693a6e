"""What the Gaussian-process baselines share: a gpytorch regression with inducing points.

[Titsias09]'s bound (`InducingPointKernel`) if there are more rows than inducing points, the exact
process otherwise; for one table (n, p), or for a batch of clients (K, n, p) with a kernel and a
likelihood of their own each.
"""

from collections.abc import Callable
from typing import Any

import gpytorch
import torch
from torch import Tensor

from benchmarks.fedbnr.scoring import Belief


class Regression(gpytorch.models.ExactGP):
    """y ~ GP(0, k) + noise on inputs (…, n, p) and targets (…, n)."""

    def __init__(self, x: Tensor, y: Tensor, kernel: Any, *, inducing: Tensor | None) -> None:
        shape = x.shape[:-2]
        likelihood = gpytorch.likelihoods.GaussianLikelihood(
            batch_shape=shape, noise_constraint=gpytorch.constraints.GreaterThan(1e-6)
        )
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ZeroMean(batch_shape=shape)
        self.base_kernel = kernel
        self.covariance = kernel
        if inducing is not None:
            self.covariance = gpytorch.kernels.InducingPointKernel(kernel, inducing, likelihood)
        self.double()
        self.likelihood.noise = 0.1

    def forward(self, x: Tensor) -> Any:
        """Return the prior at x."""
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))

    def loss(self) -> Tensor:
        """Return the negative log evidence (or its bound) per row, summed over a batch."""
        self.train()
        evidence = gpytorch.mlls.ExactMarginalLogLikelihood(self.likelihood, self)
        (inputs,) = self.train_inputs
        value: Tensor = -evidence(self(inputs), self.train_targets).sum()
        return value

    def descend(self, optimiser: torch.optim.Optimizer) -> None:
        """Take one step on the loss."""
        optimiser.zero_grad()
        torch.autograd.backward(self.loss())
        optimiser.step()

    def believe(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance, noise included, (…, rows), at x (rows, p) or (…, rows, p)."""
        self.eval()
        with torch.no_grad(), gpytorch.settings.skip_posterior_variances(state=False):
            predicted = self.likelihood(self(x))
            return predicted.mean, predicted.variance

    def believer(self) -> Callable[[Tensor], Belief]:
        """Return what a single process predicts."""

        def predict(x: Tensor) -> Belief:
            mean, variance = self.believe(x)
            return Belief(mean.unsqueeze(1), variance.unsqueeze(1))

        return predict


def scaled(kernel: Any, batch: torch.Size | None = None) -> Any:
    """Return a kernel times a learnt variance."""
    return gpytorch.kernels.ScaleKernel(kernel, batch_shape=batch or torch.Size())
