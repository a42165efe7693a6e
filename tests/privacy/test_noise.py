"""A member's share is an exact discrete Gaussian, drawn once for one upload.

Draws come from the operating system's entropy, so these tests are not seeded; a correct sampler
fails one of them once in ten million runs.
"""

import copy
import math
import pickle

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from privacy.encoding import Encoding
from privacy.errors import NoiseError
from privacy.layout import Block, Layout
from privacy.noise import Source, approximate, draw, exact
from privacy.scales import TAILS

LAYOUT = Layout(
    (
        Block("scatter", (3, 3), 1e4, 1.0, sensitivity=1.0, symmetric=True),
        Block("square", (), 1e5, 1.0, sensitivity=9.0),
    )
)
ENCODING = Encoding.noisy(LAYOUT, multiplier=3.0, honest=4, max_clients=6)
VALUES = {"scatter": np.eye(3), "square": 4.0}
CHANCE = 1e-7


def discrete_gaussian(variance: float, reach: int) -> NDArray[np.float64]:
    """Return the probabilities of -reach … reach."""
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * variance))
    return weights / weights.sum()


def fit(drawn: NDArray[np.int64], probabilities: NDArray[np.float64]) -> float:
    """Return the probability of a fit this bad or worse; values beyond ±reach are one bin."""
    reach = len(probabilities) // 2
    inside = drawn[np.abs(drawn) <= reach]
    counts = np.bincount(inside + reach, minlength=len(probabilities))
    expected = probabilities * len(drawn)
    enough = expected >= 10
    seen = np.append(counts[enough], len(drawn) - counts[enough].sum())
    due = np.append(expected[enough], len(drawn) - expected[enough].sum())
    return float(stats.chi2.sf(((seen - due) ** 2 / due).sum(), len(seen) - 1))


@pytest.mark.parametrize("deviation", [1, 3, 12])
def test_small_noise_has_exactly_the_probabilities_of_the_discrete_gaussian(deviation: int) -> None:
    expected = discrete_gaussian(deviation**2, 40 * deviation)
    assert fit(exact(deviation, 20_000), expected) > CHANCE


def test_a_rounded_normal_number_is_told_from_a_discrete_gaussian() -> None:
    """The test above can fail: rounding adds 1/12 to the variance."""
    rounded = approximate(np.random.default_rng(5))(1, 20_000)
    assert fit(rounded, discrete_gaussian(1.0, 40)) < CHANCE**2


@pytest.mark.parametrize("deviation", [2**30, 2**45 + 1])
def test_noise_at_working_scale_is_gaussian_down_to_its_last_bits(deviation: int) -> None:
    drawn = exact(deviation, 16_000)
    bins = np.floor(stats.norm.cdf(drawn / deviation) * 64).astype(np.int64)
    assert stats.chisquare(np.bincount(bins, minlength=64)).pvalue > CHANCE
    low_bits = (drawn & 63).astype(np.int64)
    assert stats.chisquare(np.bincount(low_bits, minlength=64)).pvalue > CHANCE


def test_shares_add_up_to_the_noise_that_is_accounted_for() -> None:
    """Compare seven small shares with one discrete Gaussian of seven times the variance."""
    honest, deviation = 7, 2
    shares = exact(deviation, honest * 8000).reshape(honest, -1)
    expected = discrete_gaussian(honest * deviation**2, 400)
    assert fit(shares.sum(0), expected) > CHANCE
    assert fit(shares[:5].sum(0), expected) < CHANCE


@pytest.mark.parametrize("source", [exact, approximate(np.random.default_rng(8))])
def test_the_total_says_how_much_noise_is_in_it(source: Source) -> None:
    members, sums = 6, 60
    errors: dict[str, list[float]] = {"scatter": [], "square": []}
    for _ in range(sums):
        total = np.zeros(LAYOUT.length, dtype="<u8")
        for _ in range(members):
            total += ENCODING.encode(VALUES, noise=draw(ENCODING, source=source).once())
        decoded = ENCODING.decode(total, contributors=members)
        errors["square"].append(float(decoded["square"] - 24.0) / decoded.noise("square"))
        off = np.where(np.eye(3) == 1, 1.0, math.sqrt(0.5)) * decoded.noise("scatter")
        errors["scatter"] += list(
            ((decoded["scatter"] - 6 * np.eye(3)) / off)[np.triu_indices(3)].tolist()
        )
    for block in ("scatter", "square"):
        squares = float(np.square(errors[block]).sum())
        freedom = len(errors[block])
        assert stats.chi2.sf(squares, freedom) > CHANCE
        assert stats.chi2.cdf(squares, freedom) > CHANCE


def test_noise_is_what_was_asked_for_if_all_members_are_honest_and_there() -> None:
    encoding = Encoding.noisy(LAYOUT, multiplier=3.0, honest=6, max_clients=6)
    total = encoding.decode(np.zeros(LAYOUT.length, dtype="<u8"), contributors=6)
    root = math.sqrt(2)  # two blocks of equal weight
    assert total.noise("scatter") == pytest.approx(3.0 * root * 1.0, rel=2e-5)
    assert total.noise("square") == pytest.approx(3.0 * root * 9.0, rel=2e-5)
    fewer = ENCODING.decode(np.zeros(LAYOUT.length, dtype="<u8"), contributors=4)
    assert fewer.noise("square") == pytest.approx(3.0 * root * 9.0, rel=2e-5)


def test_a_draw_covers_one_upload() -> None:
    noise = draw(ENCODING)
    ENCODING.encode(VALUES, noise=noise.once())
    with pytest.raises(NoiseError, match="draw new noise"):
        noise.once()
    assert draw(ENCODING).name != draw(ENCODING).name
    assert not np.array_equal(draw(ENCODING).once(), draw(ENCODING).once())


def test_a_draw_shows_its_name_and_nothing_else() -> None:
    noise = draw(ENCODING)
    assert repr(noise) == f"<Draw {noise.name.hex()}>"
    for copying in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(NoiseError):
            copying(noise)


def test_an_encoding_with_noise_gives_no_integers_without_it() -> None:
    with pytest.raises(NoiseError, match="draw it with"):
        ENCODING.encode(VALUES)
    silent = Encoding.finest(LAYOUT, max_clients=6)
    with pytest.raises(NoiseError):
        silent.encode(VALUES, noise=draw(ENCODING).once())
    with pytest.raises(NoiseError):
        draw(silent)
    with pytest.raises(NoiseError):
        silent.multiplier(honest=4)


def test_noise_of_another_form_is_refused() -> None:
    good = draw(ENCODING).once()
    for bad in (good[:-1], good.astype(np.float64), good.view("<u8"), good.reshape(1, -1)):
        with pytest.raises(NoiseError):
            ENCODING.encode(VALUES, noise=bad)


def test_a_broken_source_is_noticed_before_it_can_overflow_a_sum() -> None:
    noise = np.zeros(LAYOUT.length, dtype="<i8")
    for place, share in ((0, ENCODING.share_deviations[0]), (6, ENCODING.share_deviations[1])):
        for sign in (-1, 1):
            noise[:] = 0
            noise[place] = sign * TAILS * share
            ENCODING.encode(VALUES, noise=noise)
            noise[place] += sign
            with pytest.raises(NoiseError, match="broken"):
                ENCODING.encode(VALUES, noise=noise)


def test_an_empty_block_has_no_noise() -> None:
    layout = Layout((*LAYOUT.blocks, Block("none", (0, 3), 1.0, 1.0, sensitivity=1.0)))
    encoding = Encoding.noisy(layout, multiplier=1.0, honest=2, max_clients=3)
    assert draw(encoding).once().shape == (layout.length,)
