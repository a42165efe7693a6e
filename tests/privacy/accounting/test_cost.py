"""Releases cost what closed forms say, units of different parts pay separately, nothing is free."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.accounting import gaussian
from privacy.accounting.cost import Cost, cost
from privacy.accounting.events import Release
from privacy.errors import AccountingError, UnknownRelease

DELTA = 1e-5


def release(
    multiplier: float = 4.0,
    *,
    part: str = "training",
    dealing: bytes = b"",
    sums: int = 1,
    sampling_rate: float = 1.0,
    share_deviation: int = 2**30,
    dimension: int = 5150,
) -> Release:
    return Release(
        statistic="linear",
        part=part,
        multiplier=multiplier,
        dimension=dimension,
        share_deviation=share_deviation,
        honest=3,
        sums=sums,
        sampling_rate=sampling_rate,
        dealing=dealing,
    )


def epsilon(*releases: Release, delta: float = DELTA) -> float:
    return cost(releases, delta=delta).epsilon


def test_sums_over_all_units_cost_what_the_closed_form_says() -> None:
    found = cost([release(4.0, sums=9), release(2.0)], delta=DELTA)
    exact = gaussian.epsilon(math.sqrt(9 / 16 + 1 / 4), DELTA)
    assert found.accountant == "gaussian"
    assert exact <= found.epsilon <= exact * (1 + 1e-6)


def test_many_sums_are_one_release_or_many() -> None:
    assert epsilon(release(20.0, sums=5)) == epsilon(*[release(20.0)] * 5)


def test_nothing_costs_nothing_and_every_release_something() -> None:
    assert cost([], delta=DELTA) == Cost(0.0, DELTA, "nothing")
    assert epsilon(release(2.0)) > 0


def test_different_parts_of_one_dealing_are_paid_for_by_different_units() -> None:
    training = release(3.0, part="training", dealing=b"deal")
    stopping = release(4.0, part="stopping", dealing=b"deal")
    calibration = release(5.0, part="calibration", dealing=b"deal")
    assert epsilon(training, stopping, calibration) == epsilon(training)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((b"deal", "training"), (b"deal", "training")),
        ((b"deal", "training"), (b"other", "training")),
        ((b"deal", "training"), (b"other", "calibration")),
        ((b"", "training"), (b"", "calibration")),
        ((b"deal", "training"), (b"", "calibration")),
    ],
)
def test_anything_else_is_paid_for_twice(one: tuple[bytes, str], other: tuple[bytes, str]) -> None:
    """Another dealing may have put the same unit into another part."""
    both = [release(4.0, dealing=dealing, part=part) for dealing, part in (one, other)]
    assert epsilon(*both) == epsilon(release(4.0, sums=2))


def test_the_dearest_part_of_each_dealing_counts() -> None:
    releases = [
        release(3.0, dealing=b"1", part="training"),
        release(2.0, dealing=b"1", part="calibration"),
        release(2.5, dealing=b"2", part="training"),
        release(6.0, dealing=b"2", part="calibration"),
        release(7.0),
    ]
    dearest = [release(2.0), release(2.5), release(7.0)]
    assert epsilon(*releases) == epsilon(*dearest)


def test_many_dealings_cost_at_least_their_dearest_parts() -> None:
    """With many choices an upper bound of all bills is used; without samples it is exact."""
    releases = [
        release(z, dealing=bytes([deal]), part=part)
        for deal in range(8)
        for z, part in ((9.0, "training"), (11.0, "calibration"))
    ]
    assert epsilon(*releases) == pytest.approx(epsilon(release(9.0, sums=8)), rel=1e-9)


def test_samples_and_whole_parts_are_compared_by_their_cost() -> None:
    sampled = release(1.0, sums=30, sampling_rate=0.01, dealing=b"deal", part="training")
    small = release(9.0, dealing=b"deal", part="calibration")
    large = release(0.5, dealing=b"deal", part="calibration")
    assert epsilon(sampled, small) == epsilon(sampled)
    assert epsilon(sampled, large) == epsilon(large)


def test_many_dealings_with_samples_cost_at_least_each_choice() -> None:
    sampled = release(1.0, sums=30, sampling_rate=0.01, dealing=b"deal", part="training")
    whole = release(9.0, dealing=b"deal", part="calibration")
    crowd = [release(1e3, dealing=bytes([deal]), part=p) for deal in range(9) for p in "ab"]
    assert epsilon(sampled, whole, *crowd) >= epsilon(sampled)


def test_the_tightest_valid_proof_is_taken() -> None:
    sampled = release(1.0, sums=300, sampling_rate=0.01)
    assert cost([sampled], delta=DELTA).accountant == "numerical"
    assert epsilon(sampled) < epsilon(release(1.0, sums=300))


def test_coarse_integers_cost_more() -> None:
    fine, coarse = release(4.0), release(4.0, share_deviation=2**10)
    assert epsilon(fine) < epsilon(coarse)
    # A deviation of only four integer steps makes no difference to concentrated privacy.
    rough = cost([release(4.0, share_deviation=4)], delta=DELTA)
    assert rough.accountant == "concentrated"
    assert rough.epsilon == pytest.approx(epsilon(fine), rel=0.2)
    sampled = cost([release(4.0, share_deviation=4, sampling_rate=0.01)], delta=DELTA)
    assert sampled.accountant == "concentrated"


def test_concentrated_privacy_takes_over_where_epsilon_outgrows_the_tails() -> None:
    assert cost([release(0.3)], delta=DELTA).accountant == "gaussian"
    assert cost([release(0.05)], delta=DELTA).accountant == "concentrated"
    assert math.isfinite(epsilon(release(0.001)))


@settings(max_examples=60, deadline=None)
@given(
    multipliers=st.lists(st.floats(0.3, 100.0), min_size=1, max_size=6),
    parts=st.lists(st.sampled_from(["training", "calibration"]), min_size=6, max_size=6),
    dealings=st.lists(st.sampled_from([b"", b"1", b"2"]), min_size=6, max_size=6),
)
def test_more_releases_never_cost_less(
    multipliers: list[float], parts: list[str], dealings: list[bytes]
) -> None:
    spent = 0.0
    releases = []
    for z, part, dealing in zip(multipliers, parts, dealings, strict=False):
        releases.append(release(z, part=part, dealing=dealing))
        after = epsilon(*releases)
        assert after >= spent
        spent = after
    assert spent <= epsilon(*[release(z) for z in multipliers]) * (1 + 1e-9)


def test_what_no_accountant_knows_is_refused() -> None:
    for unknown in (None, "release", {"multiplier": 4.0}, Cost(1.0, DELTA, "gaussian")):
        with pytest.raises(UnknownRelease):
            cost([unknown], delta=DELTA)
    for delta in (0.0, 1.0, -1e-5, math.nan, 1, "1e-5"):
        with pytest.raises(AccountingError):
            cost([release()], delta=delta)
