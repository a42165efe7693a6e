"""The gap between integer shares and one Gaussian, computed exactly, is within the stated bound."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from privacy.accounting import gaussian
from privacy.accounting.distributed import Gap
from privacy.accounting.events import Release

REACH = 400


def release(share_deviation: int, honest: int, dimension: int = 1, sums: int = 1) -> Release:
    return Release(
        statistic="scatter",
        part="training",
        multiplier=1.0,
        dimension=dimension,
        share_deviation=share_deviation,
        honest=honest,
        sums=sums,
    )


def discrete(variance: float) -> NDArray[np.float64]:
    weights = np.exp(-(np.arange(-REACH, REACH + 1) ** 2) / (2 * variance))
    return weights / weights.sum()


def summed(share_deviation: int, honest: int) -> NDArray[np.float64]:
    """Return the probabilities of the sum of shares, by convolution."""
    total = discrete(share_deviation**2)
    for _ in range(honest - 1):
        total = np.convolve(total, discrete(share_deviation**2), mode="same")
    return total


def rounded(deviation: float) -> NDArray[np.float64]:
    edges = np.arange(-REACH, REACH + 2) - 0.5
    return np.diff(stats.norm.cdf(edges, scale=deviation))


@pytest.mark.parametrize("honest", [2, 3, 7])
def test_shares_are_as_near_to_one_discrete_gaussian_as_is_said(honest: int) -> None:
    """At a deviation of one the ratio is large enough to measure; for two shares near its bound."""
    one, many = discrete(honest), summed(1, honest)
    reliable = one > 1e-12
    found = float(np.abs(np.log(many[reliable] / one[reliable])).max())
    bound = Gap.of(release(1, honest)).shares
    assert found <= bound
    if honest == 2:
        assert found > bound / 3


@pytest.mark.parametrize("share", [1, 2, 5, 12])
@pytest.mark.parametrize("honest", [1, 2, 7])
def test_shares_are_as_near_to_a_rounded_gaussian_as_is_said(share: int, honest: int) -> None:
    deviation = math.sqrt(honest) * share
    k = np.arange(-REACH, REACH + 1)
    # Only where a float64 can represent the probability; the bound itself holds to 16 deviations.
    reliable = np.abs(k) <= 6 * deviation
    distance = np.abs(np.log(summed(share, honest)[reliable] / rounded(deviation)[reliable]))
    gap = Gap.of(release(share, honest))
    assert distance.max() <= gap.rounded
    at_six = 6**2 / (8 * deviation**2)
    assert distance.max() > at_six / 4  # of the same order as what is proved for these


def test_the_tails_are_as_thin_as_is_said() -> None:
    gap = Gap.of(release(2**30, 7))
    assert gap.tails == pytest.approx(2 * math.exp(-128))
    for deviation in (1.0, 3.7, 9.0):
        beyond = np.abs(np.arange(-REACH, REACH + 1)) > 5 * deviation
        for law in (discrete(deviation**2), rounded(deviation)):
            assert law[beyond].sum() < 2 * math.exp(-(5**2) / 2)


def test_the_gap_adds_up_over_elements_and_sums_and_vanishes_at_working_scale() -> None:
    one, many = Gap.of(release(2, 3)), Gap.of(release(2, 3, dimension=10, sums=4))
    assert many.rounded == pytest.approx(40 * one.rounded)
    assert Gap.together([one] * 40).rounded == pytest.approx(many.rounded)
    assert Gap.greatest([one, many]) == many
    working = Gap.of(release(2**30, 7, dimension=5150, sums=20_000))
    assert working.rounded < 1e-9
    assert working.slack(50.0) < 1e-20
    assert Gap.of(release(2**30, 200)).shares == 0.0
    assert Gap.of(release(1, 5000)).shares >= Gap.of(release(1, 1000)).shares


@pytest.mark.parametrize(("share", "honest", "shift"), [(2, 3, 2), (5, 2, 7), (12, 1, 12)])
def test_shares_are_as_private_as_is_said(share: int, honest: int, shift: int) -> None:
    """Compare the hockey-stick divergence of the shares, computed exactly, with the claim."""
    many = summed(share, honest)
    one, other = many[shift:], many[:-shift]
    mu = shift / (share * math.sqrt(honest))
    gap = Gap.of(release(share, honest))
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        true = float(np.maximum(one - math.exp(epsilon + 2 * gap.rounded) * other, 0).sum())
        claimed = math.exp(gap.rounded) * gaussian.delta(mu, epsilon) + gap.slack(epsilon)
        assert true <= claimed


def test_concentrated_privacy_of_shares_grows_by_three_times_their_ratio() -> None:
    share, honest, shift = 1, 2, 1
    many = summed(share, honest)
    one, other = many[shift:], many[:-shift]
    inside = np.minimum(one, other) > 1e-200
    rho = shift**2 / (2 * honest * share**2)
    for order in (2.0, 3.0, 5.0):
        logs = order * np.log(one[inside]) + (1 - order) * np.log(other[inside])
        divergence = float(np.log(np.exp(logs).sum()) / (order - 1))
        assert divergence <= rho * order + 3 * Gap.of(release(share, honest)).shares
