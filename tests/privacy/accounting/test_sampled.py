"""Sums over Poisson samples: Opacus's accountants against dp-accounting's, in both directions."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from privacy.accounting import gaussian, sampled
from privacy.accounting.sampled import Sums, _Adding

CASES: list[dict[tuple[float, float], int]] = [
    {(1.0, 0.01): 1000},
    {(5.0, 0.1): 200},
    {(4.0, 1.0): 1, (1.5, 0.02): 300},
    {(0.8, 0.5): 3},
    {(0.6, 0.001): 1},
    {(3.0, 0.9): 5},
]


def composed(accountant: dp_accounting.PrivacyAccountant, sums: Sums) -> float:
    for (z, q), count in sums.items():
        event: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(z)
        if q < 1:
            event = dp_accounting.PoissonSampledDpEvent(q, event)
        accountant.compose(event, count)
    return float(accountant.get_epsilon(1e-5))


@pytest.mark.parametrize("sums", CASES)
def test_the_numerical_accountant_agrees_with_dp_accounting_and_rounds_up(sums: Sums) -> None:
    ours = sampled.numerical_epsilon(sums, 1e-5)
    theirs = composed(PLDAccountant(value_discretization_interval=1e-3), sums)
    assert theirs - 2e-3 <= ours <= theirs * 1.006 + 0.01


@pytest.mark.parametrize("sums", CASES)
def test_the_renyi_accountant_agrees_with_dp_accounting(sums: Sums) -> None:
    ours = sampled.renyi_epsilon(sums, 1e-5)
    theirs = composed(RdpAccountant(orders=sampled._ORDERS), sums)
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert ours >= sampled.numerical_epsilon(sums, 1e-5) * 0.999


def test_without_a_sample_they_are_the_gaussian() -> None:
    exact = gaussian.epsilon(0.5, 1e-5)
    numerical = sampled.numerical_epsilon({(4.0, 1.0): 4}, 1e-5)
    assert exact <= numerical <= exact * 1.005 + 2e-3


@pytest.mark.parametrize(("z", "q"), [(0.7, 0.1), (2.0, 0.5), (1.0, 0.999)])
def test_adding_a_unit_loses_what_its_distribution_says(z: float, q: float) -> None:
    """Compare the loss log Q/P at draws from Q with `_Adding`, the class that Opacus lacks."""
    x = np.random.default_rng(4).normal(0.0, z, 200_000)
    losses = -np.log(1 - q + q * np.exp((2 * x - 1) / (2 * z**2)))
    for t in np.quantile(losses, [0.01, 0.2, 0.5, 0.9, 0.999]):
        assert float(_Adding(q, z).cdf(t)) == pytest.approx(np.mean(losses <= t), abs=0.006)
    assert float(_Adding(q, z).cdf(-math.log(1 - q) + 1e-9)) == 1.0


def test_what_is_beyond_the_numerical_accountant_is_left_to_others() -> None:
    assert sampled.numerical_epsilon({(1e-3, 0.5): 1000}, 1e-5) == math.inf
    assert math.isfinite(sampled.renyi_epsilon({(1e-3, 0.5): 1000}, 1e-5))


def test_small_samples_cost_less() -> None:
    for accountant in (sampled.renyi_epsilon, sampled.numerical_epsilon):
        costs = [accountant({(1.2, q): 100}, 1e-5) for q in (0.01, 0.05, 0.3, 1.0)]
        assert costs == sorted(costs)
