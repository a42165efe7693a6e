"""A10: the values that floating-point numbers cannot take reveal what the noise was added to.

The attack ([Mironov12], [Jin22]): as floats, 1 + noise and noise alone each take values that the
other cannot take. It is carried out on noise that is added to floats, and on sums as hospitals make
them: clipped and rounded, then with integer noise, then masked, with the sensitivity measured on
the integers.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from privacy.accounting.cost import cost
from privacy.accounting.events import Release
from privacy.audit import audit, sum_game
from privacy.encoding import Encoding
from privacy.errors import NoiseError
from privacy.layout import Block, Layout
from privacy.noise import approximate, draw
from privacy.scales import share_deviation
from privacy.securesum.errors import WrongEncoding
from privacy.securesum.simulator import Simulation
from privacy.securesum.terms import default_terms

from .coordinator import LENGTH, Attacker

DELTA = 1e-5
STEP = 2.0**-53
MULTIPLIER = 4.0
ENCODING = Encoding.noisy(
    Layout((Block("rows", (), 1e4, 1.0, sensitivity=1.0),)),
    multiplier=MULTIPLIER,
    honest=2,
    max_clients=5,
)


def claim(encoding: Encoding) -> float:
    release = Release.of(encoding, honest=2, statistic="rows", part="training")
    return cost([release], delta=DELTA).epsilon


def finer_than_the_sum(outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 for outputs near zero with bits that 1 + noise would round away: noise alone."""
    near = np.abs(outputs) < 0.25
    return np.where(near & (outputs % STEP != 0), 1.0, 0.0)


def test_the_attack_works_on_noise_that_is_added_to_floats() -> None:
    rng = np.random.default_rng(1)
    verdict = audit(
        lambda games: finer_than_the_sum(1.0 + rng.normal(0.0, MULTIPLIER, games)),
        lambda games: finer_than_the_sum(0.0 + rng.normal(0.0, MULTIPLIER, games)),
        games=20_000,
        delta=DELTA,
    )
    assert verdict.false_alarms == 0
    assert verdict.epsilon > 1.5 * claim(ENCODING)


def decoded(rows: float, games: int, seed: int) -> NDArray[np.float64]:
    """Return the coordinator's view of sums of two hospitals, of which one has `rows` rows."""
    source = approximate(np.random.default_rng(seed))
    found = []
    for _ in range(games):
        total = ENCODING.encode({"rows": rows}, noise=draw(ENCODING, source=source).once())
        total += ENCODING.encode({"rows": 0.0}, noise=draw(ENCODING, source=source).once())
        found.append(float(ENCODING.decode(total, contributors=2)["rows"]))
    return np.array(found)


def test_totals_are_multiples_of_the_same_step_whatever_was_summed() -> None:
    (bits,) = ENCODING.fractional_bits
    step = 2.0**-bits
    without, with_unit = decoded(0.0, 800, seed=2), decoded(1.0, 800, seed=3)
    for outputs in (without, with_unit):
        assert not np.any(outputs % step)
        assert not np.any(finer_than_the_sum(outputs))
        # And all multiples occur: odd and even ones, about equally often.
        assert abs(np.mean(outputs / step % 2) - 0.5) < 0.1


def test_the_last_bits_of_a_sum_tell_nothing() -> None:
    without, with_unit = sum_game(
        ENCODING,
        without={"rows": 0.0},
        with_unit={"rows": 1.0},
        honest=2,
        source=approximate(np.random.default_rng(4)),
    )
    (share,) = ENCODING.share_deviations

    def last_bits(scores: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.rint(scores * share) % 64

    verdict = audit(
        lambda games: last_bits(without(games)),
        lambda games: last_bits(with_unit(games)),
        games=20_000,
        delta=DELTA,
    )
    assert verdict.epsilon < 0.1


def test_values_are_rounded_before_noise_is_added() -> None:
    """Integers plus integers are sent: the noise does not depend on what rounding removed."""
    noise = draw(ENCODING).once()
    (bits,) = ENCODING.fractional_bits
    for rows in (3.0, 3.0 + 0.4 * 2.0**-bits, 3.0 - 0.4 * 2.0**-bits):
        sent = ENCODING.encode({"rows": rows}, noise=noise)
        assert sent.dtype == np.dtype("<u8")
        assert int(sent.view("<i8")[0]) == 3 * 2**bits + int(noise[0])


def test_noise_that_is_a_float_never_meets_the_data() -> None:
    for dtype in (np.float64, np.float32, np.longdouble):
        with pytest.raises(NoiseError):
            ENCODING.encode({"rows": 3.0}, noise=np.zeros(1, dtype=dtype))


def test_a_sensitivity_that_forgets_rounding_is_found_out_and_ours_is_not() -> None:
    """One patient moves every element across a tie: far in integers, hardly in real numbers."""
    block = Block("x", (400,), 1.0, 1.0, sensitivity=2e-7)
    bits = 16
    step = 2.0**-bits
    pair = {
        "without": {"x": np.full(400, 0.5 * step - 4e-9)},
        "with_unit": {"x": np.full(400, 0.5 * step + 4e-9)},
    }
    moved = np.linalg.norm(pair["with_unit"]["x"] - pair["without"]["x"])
    assert moved <= block.sensitivity
    ours = Encoding.noisy(Layout((block,)), multiplier=MULTIPLIER, honest=2, max_clients=5)
    noise = MULTIPLIER / math.sqrt(2)
    covered = replace(
        ours, fractional_bits=(bits,), share_deviations=(share_deviation(block, bits, noise),)
    )
    forgetful = replace(covered, share_deviations=(math.ceil(noise * 2**bits * block.sensitivity),))
    found = {
        name: audit(
            *sum_game(encoding, **pair, honest=2, source=approximate(np.random.default_rng(5))),
            games=4000,
            delta=DELTA,
        ).epsilon
        for name, encoding in (("ours", ours), ("covered", covered), ("forgetful", forgetful))
    }
    assert found["ours"] <= claim(ours)
    assert found["covered"] <= claim(ours)
    assert found["forgetful"] > 3 * claim(ours)


def test_float_sums_over_many_rows_stay_within_what_the_sensitivity_allows_them() -> None:
    """One more row can change how a sum is divided into blocks, and so its last bits everywhere."""
    rows = 100_000
    values = np.random.default_rng(6).uniform(-1, 1, rows)
    exact = math.fsum(values)
    sums = [
        float(np.add.accumulate(values)[-1]),
        float(np.sum(values)),
        sum(float(np.sum(values[first : first + 257])) for first in range(0, rows, 257)),
    ]
    assert len(set(sums)) > 1
    assert max(abs(found - exact) for found in sums) < 2.0**-40 * rows


def test_a_session_with_differential_privacy_takes_no_task_without_noise() -> None:
    layout = Layout((Block("rows", (LENGTH,), 1e4, 1.0, sensitivity=1.0),))
    silent = Encoding.finest(layout, max_clients=5)
    noisy = Encoding.noisy(layout, multiplier=4.0, honest=2, max_clients=5)
    for private, good, bad in ((True, noisy, silent), (False, silent, noisy)):
        lair = Attacker(private=private).open()
        with pytest.raises(WrongEncoding, match="noise"):
            lair.upload(lair.task(encoding=bad.digest()), 0, encoding=bad)
        lair.upload(lair.task(encoding=good.digest()), 0, encoding=good)


def test_noisy_sums_run_through_the_whole_protocol() -> None:
    simulation = Simulation(5, terms=default_terms(bytes(16), 5, differential_privacy=True))
    simulation.open_epoch()
    total = simulation.total(ENCODING, [{"rows": 100.0}] * 5)
    assert total.noise("rows") == pytest.approx(MULTIPLIER * math.sqrt(5 / 2), rel=1e-3)
    assert abs(float(total["rows"]) - 500.0) < 10 * total.noise("rows")
    assert float(total["rows"]) != 500.0
