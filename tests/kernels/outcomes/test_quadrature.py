"""Expectations by the trapezoid rule keep their digits where Gauss–Hermite loses them."""

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from kernels.outcomes.quadrature import expected, log_expected, nodes


def test_moments_of_a_gaussian_are_exact() -> None:
    z, weights = nodes()
    moments = [float(weights @ z**power) for power in (0, 1, 2, 4)]
    assert moments == pytest.approx([1, 0, 1, 3], abs=1e-12)


@pytest.mark.parametrize(("mean", "deviation"), [(-9.0, 0.1), (1.0, 1.0), (2.0, 3.0), (-4.0, 8.0)])
def test_the_expected_chance_is_the_integral(mean: float, deviation: float) -> None:
    m, v = (torch.tensor([own], dtype=torch.float64) for own in (mean, deviation**2))

    def integrand(f: float) -> float:
        chance = float(torch.sigmoid(torch.tensor(f, dtype=torch.float64)))
        return chance * float(norm.pdf(f, mean, deviation))

    ends = mean - 12 * deviation, mean + 12 * deviation
    exact = quad(integrand, *ends, epsabs=0, epsrel=1e-11, limit=400, points=(mean,))[0]
    assert float(expected(torch.sigmoid, m, v)) == pytest.approx(exact, rel=1e-7)
    found = log_expected(torch.nn.functional.logsigmoid, m, v)
    assert float(found.exp()) == pytest.approx(exact, rel=1e-7)
