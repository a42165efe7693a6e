"""Gaussian process classification of gpytorch: a linear and a Matérn-5/2 kernel, side by side.

Up to 1,000 rows: exact regression on Dirichlet's transformed labels [Milios18]. More rows: 128
inducing points, mini-batches, and the Bernoulli or softmax likelihood. Steps are fixed, not timed,
so that a slower machine has the same figures; the longest fit takes about a minute of one core.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, ScaleKernel
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    DirichletClassificationLikelihood,
    SoftmaxLikelihood,
)
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    IndependentMultitaskVariationalStrategy,
    VariationalStrategy,
)
from linear_operator import to_linear_operator
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from benchmarks.outcomes.dataset import Classes, Dataset, Table, YesNo
from benchmarks.outcomes.peers.design import Design
from benchmarks.outcomes.scores import Prediction

EXACT_ROWS = 1000
EXACT_STEPS, EXACT_RATE = 60, 0.1
INDUCING, BATCH, EPOCHS, RATE = 128, 512, 20, 0.02
SAMPLES = 512


def gaussian_process(dataset: Dataset, training: Table, test: Table) -> Prediction:
    """Return probabilities of the event, or of each class."""
    outcome = dataset.outcome
    if not isinstance(outcome, YesNo | Classes):
        raise TypeError(f"this Gaussian process is of classes; {dataset.name} has {outcome}")
    torch.manual_seed(0)
    design = Design.fit(dataset, training)
    x, tested = (torch.from_numpy(design.of(rows)).float() for rows in (training, test))
    y = torch.from_numpy(training[outcome.name]).long()
    classes = 2 if isinstance(outcome, YesNo) else len(outcome.levels)
    fit = _dirichlet if len(x) <= EXACT_ROWS else _variational
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)  # patients with equal inputs
        p = fit(x, y, tested, classes).double().numpy()
    return np.asarray(p[:, 1] if isinstance(outcome, YesNo) else p)


class _Exact(gpytorch.models.ExactGP):
    """A latent per class."""

    def __init__(self, x: Tensor, likelihood: Any, kernel: Kernel, classes: int) -> None:
        super().__init__(x, likelihood.transformed_targets, likelihood)
        self.mean_module = ConstantMean(batch_shape=torch.Size([classes]))
        self.covar_module = kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Return the prior; dense, so that it is factored once."""
        dense = to_linear_operator(self.covar_module(x).to_dense())
        return MultivariateNormal(self.mean_module(x), dense)


class _Inducing(gpytorch.models.ApproximateGP):
    """One latent for a yes/no outcome, one per class otherwise; they share inducing points."""

    def __init__(self, inducing: Tensor, kernel: Kernel, latents: int) -> None:
        batch = torch.Size([latents]) if latents > 1 else torch.Size([])
        points = inducing.expand(*batch, *inducing.shape).clone()
        distribution = CholeskyVariationalDistribution(len(inducing), batch_shape=batch)
        strategy = VariationalStrategy(self, points, distribution)
        if latents > 1:
            strategy = IndependentMultitaskVariationalStrategy(strategy, num_tasks=latents)
        super().__init__(strategy)
        self.mean_module = ConstantMean(batch_shape=batch)
        self.covar_module = kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Return the prior."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def _kernel(inputs: int, batch: torch.Size) -> Kernel:
    matern = MaternKernel(nu=2.5, ard_num_dims=inputs, batch_shape=batch)
    matern.lengthscale = math.sqrt(inputs)
    linear = ScaleKernel(LinearKernel(batch_shape=batch), batch_shape=batch)
    linear.outputscale = 1 / inputs
    return ScaleKernel(matern, batch_shape=batch) + linear


def _dirichlet(x: Tensor, y: Tensor, tested: Tensor, classes: int) -> Tensor:
    x, tested = x.double(), tested.double()
    likelihood = DirichletClassificationLikelihood(
        y, alpha_epsilon=0.1, learn_additional_noise=True, dtype=torch.float64
    )
    kernel = _kernel(x.shape[1], torch.Size([classes]))
    model = _Exact(x, likelihood, kernel, classes).double()
    evidence = ExactMarginalLogLikelihood(likelihood, model)
    model.train()
    likelihood.train()
    targets = likelihood.transformed_targets
    _ascend(lambda: evidence(model(x), targets).sum(), model, EXACT_STEPS, EXACT_RATE)
    model.eval()
    with torch.no_grad():
        latent = model(tested)
        return _mean_softmax(latent.mean.T, latent.variance.T)


def _variational(x: Tensor, y: Tensor, tested: Tensor, classes: int) -> Tensor:
    latents = 1 if classes == 2 else classes
    likelihood: Any = (
        BernoulliLikelihood()
        if latents == 1
        else SoftmaxLikelihood(num_classes=classes, mixing_weights=False)
    )
    generator = torch.Generator().manual_seed(0)
    inducing = x[torch.randperm(len(x), generator=generator)[:INDUCING]]
    batch = torch.Size([latents]) if latents > 1 else torch.Size([])
    model = _Inducing(inducing, _kernel(x.shape[1], batch), latents)
    bound = VariationalELBO(likelihood, model, num_data=len(x))
    targets = y.float() if latents == 1 else y

    def on_a_batch() -> Tensor:
        rows = torch.randint(len(x), (BATCH,), generator=generator)
        value: Tensor = bound(model(x[rows]), targets[rows])
        return value

    model.train()
    _ascend(on_a_batch, model, EPOCHS * math.ceil(len(x) / BATCH), RATE)
    model.eval()
    with torch.no_grad():
        if latents == 1:
            p: Tensor = likelihood(model(tested)).mean
            return torch.stack([1 - p, p], dim=1)
        latent = model(tested)
        return _mean_softmax(latent.mean, latent.variance)


def _mean_softmax(mean: Tensor, variance: Tensor) -> Tensor:
    """Return E[softmax(f)] of independent f by draws, (rows, classes)."""
    draws = torch.randn(SAMPLES, *mean.shape, generator=torch.Generator().manual_seed(0))
    return torch.stack([torch.softmax(mean + variance.sqrt() * z, dim=1) for z in draws]).mean(0)


def _ascend(value: Callable[[], Tensor], model: Any, steps: int, rate: float) -> None:
    """Maximise by Adam, at a rate that falls to zero along a cosine."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.autograd.backward(-value())
        optimizer.step()
        schedule.step()
