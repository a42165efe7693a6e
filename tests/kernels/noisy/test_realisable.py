"""A repaired S is realisable and nearer to the true one, with a stated remaining error."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kernels.features.spec import Architecture, KernelSpec
from kernels.features.urk import URK
from kernels.layer.posterior import Hyperparameters
from kernels.layer.statistics import Noise, Statistics
from kernels.noisy import noise_aware
from kernels.noisy.realisable import repaired, scatter_step, symmetric_normals

ROWS = 2000
KERNEL = URK(
    KernelSpec(architecture=Architecture.RBF, inputs=3, samples=10, seed=3, lengthscale=2.0)
)


def statistics(kernel: URK = KERNEL) -> Statistics:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, kernel.spec.inputs, generator=generator, dtype=torch.float64)
    x[:, 1] += x[:, 0].square() - 1  # not normal, unlike the starting points of the search
    return Statistics.of_table(kernel, x, x[:, :1].sin())


def released(exact: Statistics, s: float, seed: int = 0) -> Statistics:
    noise = Noise(scatter=s, cross=s, target_squares=s, count=s)
    return Statistics(
        exact.scatter + s * symmetric_normals(seed, "test", exact.features),
        exact.cross,
        exact.target_squares,
        exact.count,
        noise=noise,
    )


def distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm())


def left(noisy: Statistics) -> float:
    assert noisy.noise is not None
    return noisy.noise.scatter


def test_much_less_noise_is_left_and_as_much_as_is_said() -> None:
    exact = statistics()
    for s in (2.0, 20.0):
        errors, claims = [], []
        for seed in range(2):
            noisy = released(exact, s, seed)
            ours = repaired(noisy, KERNEL)
            before = distance(noisy.scatter, exact.scatter)
            errors.append(distance(ours.scatter, exact.scatter) / before)
            claims.append(left(ours) / s)
        error, claim = sum(errors) / 2, sum(claims) / 2
        assert error < 0.7
        assert error / 1.5 < claim < 1.5 * error


def test_it_is_positive_and_nothing_else_is_touched() -> None:
    exact = statistics()
    noisy = released(exact, 50.0)
    assert torch.linalg.eigvalsh(noisy.scatter)[0] < -50
    ours = repaired(noisy, KERNEL)
    features = ours.features
    assert torch.linalg.eigvalsh(ours.scatter)[0] > -features * scatter_step(ROWS, features, 50.0)
    assert torch.equal(ours.scatter, ours.scatter.mT)
    assert ours.cross is noisy.cross
    assert ours.count == noisy.count
    assert ours.noise == replace(noisy.noise, scatter=left(ours))


def test_almost_no_noise_leaves_s_as_it_is() -> None:
    noisy = released(statistics(), 1e-6)
    assert distance(repaired(noisy, KERNEL).scatter, noisy.scatter) < 1e-3


def test_statistics_without_noise_come_back_as_they_are() -> None:
    exact = statistics()
    assert repaired(exact, KERNEL) is exact


def test_noise_alone_becomes_something_that_a_table_could_have() -> None:
    noisy = released(statistics(), 1e5)
    ours = repaired(noisy, KERNEL)
    features = ours.features
    assert torch.linalg.eigvalsh(ours.scatter)[0] > -features * scatter_step(ROWS, features, 1e5)
    assert ours.scatter.trace() < 1.01 * ROWS
    scales = Hyperparameters.of(noise_variance=0.5, prior_variance=1.0)
    posterior = noise_aware.posterior(ours, scales)
    assert posterior.weights.abs().max() < 1e-3
    assert posterior.variances.min() > 0.99


def test_deep_kernels_are_repaired_too() -> None:
    kernel = URK(KernelSpec(inputs=3, samples=10, hidden=(8,), latent=3))
    exact = statistics(kernel)
    noisy = released(exact, 10.0)
    ours = repaired(noisy, kernel)
    before = distance(noisy.scatter, exact.scatter)
    assert distance(ours.scatter, exact.scatter) < 0.5 * before


@pytest.mark.parametrize("architecture", ["rbf", "linear"])
def test_kernels_with_a_linear_part_are_repaired_too(architecture: str) -> None:
    main = {"samples": 10, "lengthscale": 2.0, "linear_part": True}
    own = main if architecture == "rbf" else {}
    kernel = URK(KernelSpec(architecture=architecture, inputs=3, **own))
    exact = statistics(kernel)
    noisy = released(exact, 20.0)
    ours = repaired(noisy, kernel)
    before = distance(noisy.scatter, exact.scatter)
    # A matrix of second moments has no other condition than to be one.
    assert distance(ours.scatter, exact.scatter) < (0.8 if own else 1.01) * before
    assert torch.linalg.eigvalsh(ours.scatter)[0] > -1e-3
    nothing = repaired(released(exact, 1e-6), kernel)
    assert distance(nothing.scatter, exact.scatter) < 1e-3


def test_the_same_release_is_repaired_alike() -> None:
    noisy = released(statistics(), 5.0)
    assert torch.equal(repaired(noisy, KERNEL).scatter, repaired(noisy, KERNEL).scatter)
