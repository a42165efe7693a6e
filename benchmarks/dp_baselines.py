"""What others do, on pooled rows: AdaSSP, a ridge that ignores the noise, and Opacus's DP-SGD.

All of them may spend the whole (ε, δ) on the training rows, and are given for free what our routes
pay for: the columns' noisy means and deviations, and the variance of their errors.

    adassp      Wang (2018), "Revisiting differentially private linear regression", algorithm 2, on
                standardised inputs and a constant, rows scaled to a norm of at most √(p + 1)
    ridge       the same noisy S, b and yᵀy as the public kernel's: eigenvalues below zero set to
                zero, σ and λ by the evidence as if there were no noise. It explodes where a
                floor under the eigenvalues would not let it (findings.md: 5.03 on CCPP, ε = 1):
                what ignoring the noise does, not the best that a ridge can do
    opacus      PrivacyEngine with Poisson sampling and its accountant: a network of one hidden
                layer on the inputs, and a linear model on the public kernel's features
"""

import math
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.dp_data import Private
from benchmarks.dp_routes import DELTA, TARGET_CLIP, program, public_kernel, scales_alone
from benchmarks.dp_scores import Score, of_gaussian
from client_sdk.simulation import simulate
from kernels.linear import Posterior, Spectrum
from kernels.realisable import symmetric_normals
from kernels.records import Records
from kernels.refit import refit
from kernels.rounds.model import known
from kernels.rounds.site import Part
from kernels.statistics import Statistics
from kernels.urk import URK
from privacy.accounting.planning import Stage, multipliers
from privacy.noise import approximate

Matrix = NDArray[np.float64]
Parts = tuple[Matrix, NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Pooled:
    """All rows in one place, standardised."""

    training: Parts
    validation: Parts
    test: Parts
    scale: float

    @classmethod
    def of(cls, data: Private, epsilon: float, seed: int) -> "Pooled":
        """Standardise by the noisy moments of the routes."""
        source = approximate(np.random.default_rng([seed, 3]))
        asked = scales_alone(program(data, "public_kernel", epsilon))
        model = simulate(asked, data.sites, seed, secure=False, source=source).model
        standardiser = known(model.standardiser, "moments")

        def standardised(records: Records) -> Parts:
            rows = standardiser.apply(records)
            return rows.features.numpy(), known(rows.targets, "moments")[:, 0].numpy()

        return cls(
            standardised(data.pooled(Part.TRAINING)),
            standardised(data.pooled(Part.CALIBRATION)),
            standardised(data.dataset.records(data.test)),
            standardiser.targets[0].scale,
        )

    def score(self, mean: Matrix, variance: Matrix) -> Score:
        """Score standardised predictions of the test rows in the target's unit."""
        return of_gaussian((self.test[1] - mean) * self.scale, variance * self.scale**2)


def adassp(pooled: Pooled, epsilon: float, seed: int) -> Score:
    """AdaSSP as published: a third of ε each for the least eigenvalue, XᵀX and Xᵀy."""
    random = np.random.default_rng([seed, 1])
    bound = math.sqrt(pooled.training[0].shape[1] + 1)

    def rows(x: Matrix) -> Matrix:
        x = np.column_stack([x, np.ones(len(x))])
        shorter: Matrix = x * np.minimum(1, bound / np.linalg.norm(x, axis=1, keepdims=True))
        return shorter

    x, y = rows(pooled.training[0]), pooled.training[1].clip(-TARGET_CLIP, TARGET_CLIP)
    size, failure = x.shape[1], 0.05
    third, log_delta = epsilon / 3, math.log(6 / DELTA)
    unit = math.sqrt(log_delta) * bound**2 / third
    least = np.linalg.eigvalsh(x.T @ x)[0]
    least = max(least + unit * random.normal() - log_delta / third * bound**2, 0)
    ridge = max(
        0, math.sqrt(size * log_delta * math.log(2 * size**2 / failure)) * bound**2 / third - least
    )
    upper = np.triu(random.normal(size=(size, size)))
    scatter = x.T @ x + unit * (upper + np.triu(upper, 1).T)
    cross = x.T @ y + unit / bound * TARGET_CLIP * random.normal(size=size)
    weights = np.linalg.solve(scatter + ridge * np.eye(size), cross)
    return _with_own_variance(
        pooled, rows(pooled.validation[0]) @ weights, rows(pooled.test[0]) @ weights
    )


def ridge(pooled: Pooled, epsilon: float, seed: int) -> Score:
    """Take noisy statistics for exact ones."""
    random = np.random.default_rng([seed, 2])
    x, y = pooled.training
    kernel = URK(public_kernel(x.shape[1])[0])
    own = Statistics.of_table(
        kernel, torch.from_numpy(x), torch.from_numpy(y.clip(-TARGET_CLIP, TARGET_CLIP))
    )
    (z,) = multipliers([Stage(part="training")], epsilon=float(epsilon), delta=DELTA)
    third = z * math.sqrt(3)
    scatter = own.scatter + third * symmetric_normals(seed, "ridge", own.features)
    cross = own.cross + third * TARGET_CLIP * torch.from_numpy(
        random.normal(size=(own.features, 1))
    )
    squares = own.target_squares + third * TARGET_CLIP**2 * random.normal()
    values, basis = torch.linalg.eigh(scatter)
    spectrum = Spectrum(
        values.clamp_min(0.0), basis, basis.mT @ cross, squares.clamp_min(1.0), own.count, 1e-9
    )
    predicted = Posterior.of(spectrum, refit(spectrum)).predict(
        kernel.features(torch.from_numpy(pooled.test[0])).detach()
    )
    return pooled.score(predicted.mean[:, 0].numpy(), predicted.variance[:, 0].numpy())


@dataclass(frozen=True)
class Tuned:
    """How DP-SGD is run. Hardly tuned so far.

    Of the network, learning rates .02 and .05 were compared on validation rows of one seed, at
    ε = 1 and 4; nothing else of it was varied, and nothing of the linear model. Our own route
    had about a dozen settings tried on such rows: a comparison that is to count needs as many here.
    """

    epochs: int = 30
    batch: int = 512
    rate: float = 0.05
    clip: float = 1.0
    hidden: int = 32


def opacus_network(pooled: Pooled, epsilon: float, seed: int, tuned: Tuned | None = None) -> Score:
    """DP-SGD on a network of one hidden layer."""
    tuned = tuned or Tuned()
    torch.manual_seed(seed)
    inputs = pooled.training[0].shape[1]
    model = nn.Sequential(nn.Linear(inputs, tuned.hidden), nn.Tanh(), nn.Linear(tuned.hidden, 1))
    parts = [
        torch.from_numpy(part[0]).float()
        for part in (pooled.training, pooled.validation, pooled.test)
    ]
    return _opacus(pooled, model, parts, epsilon, seed, tuned)


def opacus_linear(pooled: Pooled, epsilon: float, seed: int, tuned: Tuned | None = None) -> Score:
    """DP-SGD on a linear model of the public kernel's features, scaled to a mean square of one."""
    tuned = tuned or Tuned(rate=0.1)
    torch.manual_seed(seed)
    kernel = URK(public_kernel(pooled.training[0].shape[1])[0])
    features = [
        (
            kernel.features(torch.from_numpy(part[0])).detach() * math.sqrt(kernel.spec.samples)
        ).float()
        for part in (pooled.training, pooled.validation, pooled.test)
    ]
    model = nn.Linear(kernel.spec.features, 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return _opacus(pooled, model, features, epsilon, seed, tuned)


def _opacus(
    pooled: Pooled,
    model: nn.Module,
    parts: list[torch.Tensor],
    epsilon: float,
    seed: int,
    tuned: Tuned,
) -> Score:
    from opacus import PrivacyEngine

    training, validation, test = parts
    targets = torch.from_numpy(pooled.training[1]).float().clamp(-TARGET_CLIP, TARGET_CLIP)
    generator = torch.Generator().manual_seed(seed)
    loader = DataLoader(
        TensorDataset(training, targets), batch_size=tuned.batch, generator=generator
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=tuned.rate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus warns of its own hooks and of its generator
        private, stepper, batches = PrivacyEngine(accountant="prv").make_private_with_epsilon(
            module=model,
            optimizer=optimizer,
            data_loader=loader,
            target_epsilon=epsilon,
            target_delta=DELTA,
            epochs=tuned.epochs,
            max_grad_norm=tuned.clip,
            noise_generator=generator,
        )
        steps = tuned.epochs * len(loader)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * min(step / steps, 1)))
        )
        for _ in range(tuned.epochs):
            for x, y in batches:
                stepper.zero_grad()
                if len(x):
                    torch.autograd.backward(nn.functional.mse_loss(private(x)[:, 0], y))
                    stepper.step()
                schedule.step()
    with torch.no_grad():
        held_out, tested = (model(x)[:, 0].double().numpy() for x in (validation, test))
    return _with_own_variance(pooled, held_out, tested)


def _with_own_variance(pooled: Pooled, held_out: Matrix, tested: Matrix) -> Score:
    """Take the variance of validation errors for the predictions': free, and not private."""
    variance = float(np.mean((pooled.validation[1] - held_out) ** 2))
    return pooled.score(tested, np.full(len(tested), variance))
