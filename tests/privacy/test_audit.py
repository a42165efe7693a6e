"""The audit confirms correct mechanisms, and detects broken ones.

Noise is drawn by the source for simulations. According to privacy.accounting.distributed, its
probabilities are within 2^-55 of the exact ones at this scale: the number of games here cannot tell
them apart. One test uses the exact source.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from privacy.accounting import gaussian
from privacy.accounting.cost import cost
from privacy.accounting.events import Release
from privacy.accounting.planning import Stage, multipliers
from privacy.audit import Play, audit, lower_bound, sum_game
from privacy.encoding import Encoding
from privacy.errors import PrivacyError
from privacy.layout import Block, Layout
from privacy.noise import Source, approximate, exact

DELTA = 1e-5
UNIT_ROWS = 4
CLIP = 3.0
HONEST = 2
GAMES = 60_000
Values = Mapping[str, NDArray[np.float64]]


def layout(unit_rows: int) -> Layout:
    k = float(unit_rows)
    return Layout(
        (
            Block("scatter", (3, 3), 1e4, 1.0, k, symmetric=True, weight=4.0),
            Block("cross", (3,), 1e4 * CLIP, 1.0, k * CLIP, weight=2.0),
            Block("square", (), 1e4 * CLIP**2, 1.0, k * CLIP**2),
        )
    )


def unit() -> Values:
    """Return the worst patient for every block at once: all rows are equal, at the bounds."""
    return {
        "scatter": UNIT_ROWS * np.outer([0.6, 0.8, 0.0], [0.6, 0.8, 0.0]),
        "cross": UNIT_ROWS * CLIP * np.array([0.6, 0.8, 0.0]),
        "square": np.array(UNIT_ROWS * CLIP**2),
    }


def table() -> Values:
    """Return the other patients."""
    return {"scatter": 40 * np.eye(3), "cross": np.full(3, -25.0), "square": np.array(130.0)}


def found(
    encoding: Encoding, *, games: int = GAMES, seed: int = 1, source: Source | None = None
) -> float:
    grown = {name: value + unit()[name] for name, value in table().items()}
    game = sum_game(
        encoding,
        without=table(),
        with_unit=grown,
        honest=HONEST,
        source=source or approximate(np.random.default_rng(seed)),
    )
    return audit(*game, games=games, delta=DELTA).epsilon


def planned(epsilon: float) -> float:
    (z,) = multipliers([Stage(part="training")], epsilon=epsilon, delta=DELTA)
    return z


def claimed(encoding: Encoding) -> float:
    release = Release.of(encoding, honest=HONEST, statistic="linear", part="training")
    return cost([release], delta=DELTA).epsilon


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
def test_the_mechanism_is_as_private_as_it_claims(epsilon: float) -> None:
    encoding = Encoding.noisy(
        layout(UNIT_ROWS), multiplier=planned(epsilon), honest=HONEST, max_clients=5
    )
    assert claimed(encoding) <= epsilon
    bound = found(encoding)
    assert bound <= epsilon
    # The guesser is a good one: as close to the claim as this number of games allows.
    assert bound > epsilon / 3


def test_so_it_is_with_the_sampler_that_hospitals_use() -> None:
    encoding = Encoding.noisy(
        layout(UNIT_ROWS), multiplier=planned(8.0), honest=HONEST, max_clients=5
    )
    assert 0.2 < found(encoding, games=1000, source=exact) <= 8.0


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(
            Encoding.noisy(layout(UNIT_ROWS), multiplier=3.797, honest=30, max_clients=30),
            id="each share is for thirty honest members, and two are",
        ),
        pytest.param(
            Encoding.noisy(layout(1), multiplier=3.797, honest=HONEST, max_clients=5),
            id="a patient's sensitivity is that of one row",
        ),
        pytest.param(
            replace(
                Encoding.noisy(layout(UNIT_ROWS), multiplier=3.797, honest=HONEST, max_clients=5),
                share_deviations=tuple(
                    share // 3
                    for share in Encoding.noisy(
                        layout(UNIT_ROWS), multiplier=3.797, honest=HONEST, max_clients=5
                    ).share_deviations
                ),
            ),
            id="a third of the noise",
        ),
    ],
)
def test_a_broken_mechanism_that_claims_one_is_found_out(broken: Encoding) -> None:
    assert planned(1.0) == 3.797
    assert found(broken) > 1.0


def test_noise_that_is_used_twice_is_found_out() -> None:
    """A patient comes, or does not, between two sums; the guesser uses their difference."""
    encoding = Encoding.noisy(layout(UNIT_ROWS), multiplier=6.0, honest=1, max_clients=5)
    release = Release.of(encoding, honest=1, statistic="linear", part="training", sums=2)
    claim = cost([release], delta=DELTA).epsilon
    assert claim < 1.0
    grown = {name: value + unit()[name] for name, value in table().items()}

    def differences(second_seed: int) -> tuple[Play, Play]:
        first, second = (approximate(np.random.default_rng(seed)) for seed in (9, second_seed))
        without, _ = sum_game(encoding, without=table(), with_unit=grown, honest=1, source=first)
        again, later = sum_game(encoding, without=table(), with_unit=grown, honest=1, source=second)
        return lambda n: again(n) - without(n), lambda n: later(n) - without(n)

    fresh, reused = (audit(*differences(seed), games=2000, delta=DELTA).epsilon for seed in (10, 9))
    assert fresh <= claim < reused


def test_the_bound_is_right_for_a_mechanism_whose_epsilon_is_known() -> None:
    """Fifty audits of two normal distributions: none exceeds the true ε."""
    mu = 1.0
    truth = gaussian.epsilon(mu, DELTA)
    rng = np.random.default_rng(2)
    bounds = [
        audit(
            lambda games: rng.normal(0.0, 1.0, games),
            lambda games: rng.normal(mu, 1.0, games),
            games=200,
            delta=DELTA,
            confidence=0.9,
        ).epsilon
        for _ in range(50)
    ]
    assert max(bounds) < truth
    assert np.median(bounds) > 0.5


def test_the_limits_are_those_of_clopper_and_pearson() -> None:
    """No false alarm in 1000 games gives α ≤ 1 − 0.0005^(1/1000); half of the units are missed."""
    alpha = 1 - 0.0005 ** (1 / 1000)
    beta = stats.beta.ppf(0.9995, 501, 500)
    bound = lower_bound(0, 500, 1000, delta=DELTA, confidence=0.999)
    assert float(bound) == pytest.approx(math.log((1 - DELTA - beta) / alpha))
    assert float(lower_bound(1000, 0, 1000, delta=DELTA, confidence=0.999)) == 0.0
    assert float(lower_bound(500, 500, 1000, delta=DELTA, confidence=0.999)) == 0.0


def test_an_audit_takes_games() -> None:
    with pytest.raises(PrivacyError):
        audit(np.zeros, np.ones, games=1, delta=DELTA)
