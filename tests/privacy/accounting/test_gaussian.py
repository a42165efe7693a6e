"""Closed forms against each other, against integrals, and against dp-accounting."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from dp_accounting.mechanism_calibration import calibrate_dp_mechanism
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from privacy.accounting import gaussian

MUS = [0.05, 0.3, 1.0, 3.0]


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 4.0])
def test_the_profile_is_the_integral_that_defines_it(mu: float, epsilon: float) -> None:
    """δ(ε) = ∫ max(p − e^ε·q, 0), p and q the densities of N(μ, 1) and N(0, 1)."""
    first = epsilon / mu + mu / 2  # where p = e^ε·q

    def excess(x: float) -> float:
        return float(stats.norm.pdf(x - mu) - math.exp(epsilon) * stats.norm.pdf(x))

    whole, _ = integrate.quad(excess, first, first + 40, epsabs=1e-16, limit=200)
    assert gaussian.delta(mu, epsilon) == pytest.approx(whole, rel=1e-7, abs=1e-15)


@settings(max_examples=200, deadline=None)
@given(mu=st.floats(1e-3, 20.0), exponent=st.floats(-12.0, -1.0))
def test_epsilon_is_rounded_up_and_the_inverse_of_delta(mu: float, exponent: float) -> None:
    delta = 10.0**exponent
    epsilon = gaussian.epsilon(mu, delta)
    assert gaussian.delta(mu, epsilon) <= delta
    if epsilon > 1e-3:
        assert gaussian.delta(mu, epsilon * (1 - 1e-6)) > delta
        most = gaussian.most_mu(epsilon, delta)
        assert most == pytest.approx(mu, rel=1e-6)
        assert gaussian.epsilon(most, delta) <= epsilon * (1 + 1e-9)


def test_composition_is_that_of_independent_observations() -> None:
    assert gaussian.composed([(4.0, 16)]) == 1.0
    assert gaussian.composed([(3.0, 1), (4.0, 1)]) == pytest.approx(math.hypot(1 / 3, 1 / 4))
    assert gaussian.composed([]) == 0.0
    assert gaussian.delta(0.0, 0.0) == 0.0


@pytest.mark.parametrize("mu", MUS)
def test_dp_accounting_agrees_on_the_gaussian_mechanism(mu: float) -> None:
    ours = gaussian.epsilon(mu, 1e-5)
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp_accounting.GaussianDpEvent(1 / mu))
    assert ours <= accountant.get_epsilon(1e-5) <= ours + 5e-3
    halves = PLDAccountant(value_discretization_interval=1e-3)
    halves.compose(dp_accounting.GaussianDpEvent(2 / mu), 4)
    assert ours <= halves.get_epsilon(1e-5) <= ours + 5e-3


def test_dp_accounting_agrees_on_the_noise_that_a_budget_needs() -> None:
    ours = 1 / gaussian.most_mu(1.0, 1e-5)
    theirs = calibrate_dp_mechanism(
        lambda: PLDAccountant(value_discretization_interval=1e-3),
        dp_accounting.GaussianDpEvent,
        target_epsilon=1.0,
        target_delta=1e-5,
    )
    assert ours == pytest.approx(theirs, rel=1e-3)
    assert ours == pytest.approx(3.730632, abs=2e-6)  # the calibration of [BalleWang18]


@pytest.mark.parametrize("rho", [1e-3, 0.05, 0.5, 4.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_concentrated_privacy_converts_as_dp_accounting_does(rho: float, delta: float) -> None:
    ours = gaussian.from_renyi(gaussian.ORDERS, rho * gaussian.ORDERS, delta)
    theirs, _ = rdp.compute_epsilon(gaussian.ORDERS, rho * gaussian.ORDERS, delta)
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12)
    fine = 1 + np.geomspace(1e-2, 1e5, 100_000)
    least = gaussian.from_renyi(fine, rho * fine, delta)
    assert least <= ours * (1 + 1e-6)
    if rho <= 0.5 and delta <= 1e-5:
        assert ours <= least * 1.001
    # What it proves is valid: never less than the exact ε.
    assert ours >= gaussian.epsilon(math.sqrt(2 * rho), delta)


def test_extreme_numbers_neither_overflow_nor_lie() -> None:
    assert gaussian.epsilon(1e6, 1e-5) == pytest.approx(1e12 / 2, rel=1e-4)
    assert gaussian.epsilon(1e-9, 1e-5) == 0.0
    assert gaussian.delta(1.0, 800.0) == 0.0
    assert gaussian.delta(50.0, 0.0) == 1.0
    assert 0.0 < gaussian.delta(40.0, 800.0) <= 1.0
