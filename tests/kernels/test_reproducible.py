"""Arithmetic that is the same everywhere is also right."""

import math

import numpy as np
import pytest
import torch

from kernels import reproducible
from kernels.descent import minimised

GENERATOR = torch.Generator().manual_seed(1)


@pytest.mark.parametrize("shape", [(1, 3), (2, 1), (7, 2), (64, 5), (0, 2)])
def test_a_total_is_the_sum(shape: tuple[int, int]) -> None:
    values = torch.randn(shape, generator=GENERATOR, dtype=torch.float64)
    assert torch.allclose(reproducible.total(values), values.sum(0), atol=1e-13)
    assert torch.allclose(reproducible.total(values, dim=1), values.sum(1), atol=1e-13)
    assert reproducible.norm(values) == pytest.approx(float(values.norm()), rel=1e-14)


def test_a_product_is_that_of_matrices() -> None:
    left, right = (
        torch.randn(shape, generator=GENERATOR, dtype=torch.float64) for shape in ((5, 7), (7, 2))
    )
    assert torch.allclose(reproducible.product(left, right), left @ right, atol=1e-13)


def test_exp_is_exp() -> None:
    x = torch.linspace(-600, 600, 10_001, dtype=torch.float64)
    assert torch.allclose(reproducible.exp(x), x.exp(), rtol=4e-16, atol=0)
    assert float(reproducible.exp(torch.tensor(0.0))) == 1.0


def test_a_power_is_a_power() -> None:
    assert reproducible.power(0.999, 0) == 1.0
    assert reproducible.power(0.999, 1234) == pytest.approx(0.999**1234, rel=1e-12)


def test_rounding_never_leaves_a_negative_zero() -> None:
    small = torch.tensor([-1e-9], dtype=torch.float64)
    for rounded in (
        reproducible.on_grid(small, 0.5),
        reproducible.to_bits(-0.0 * small, 8),
        torch.tensor([reproducible.near(-1e-9, 0.5), reproducible.number_to_bits(-0.0, 8)]),
    ):
        assert not bool(torch.signbit(rounded).any())


def test_descent_finds_the_minimum_of_a_curved_valley() -> None:
    def rosenbrock(x: np.ndarray) -> tuple[float, np.ndarray]:
        value = 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2
        slope = [-400 * x[0] * (x[1] - x[0] ** 2) - 2 * (1 - x[0]), 200 * (x[1] - x[0] ** 2)]
        return float(value), np.array(slope)

    found = minimised(rosenbrock, np.array([-1.2, 1.0]), iterations=200)
    assert found == pytest.approx([1.0, 1.0], abs=1e-3)


def test_descent_takes_the_same_steps_if_the_last_bits_of_a_gradient_differ() -> None:
    random = np.random.default_rng(2)
    root = random.normal(size=(30, 30))

    def function(x: np.ndarray, noise: float) -> tuple[float, np.ndarray]:
        value, slope = 0.5 * x @ root @ root.T @ x + np.cos(x).sum(), root @ root.T @ x - np.sin(x)
        return float(value), slope * (1 + noise * np.sign(np.sin(1e6 * x)))

    start = random.normal(size=30)
    one, other = (
        minimised(lambda x, n=noise: function(x, n), start, iterations=60)
        for noise in (0.0, 4 * math.ulp(1.0))
    )
    assert np.array_equal(one, other)
