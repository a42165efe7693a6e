"""Tags are linear, exact for all signed integers, and independent of how they are computed."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.encoding import Encoding
from privacy.layout import Block, Layout
from privacy.masks import keystream
from privacy.securesum.simulator import Fault, Point, Simulation
from privacy.securesum.terms import Terms
from privacy.tags import (
    DATA_PRIMES,
    FAILED_PRIMES,
    PRIMES,
    RESIDUE_PRIMES,
    ROWS,
    data_tags,
    failed_tags,
    reduced,
    residue_masks,
)

KEY = bytes(range(32))
int64s = st.integers(-(2**63), 2**63 - 1)


def plainly(key: bytes, values: list[int], primes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the tags of `values` by the definition, in Python integers."""
    words = np.frombuffer(keystream(key).update(bytes(4 * ROWS * len(values))), "<u4")
    rows = [[int(word) % 2**31 for word in words[k::ROWS]] for k in range(ROWS)]
    return tuple(
        sum(r * x for r, x in zip(row, values, strict=True)) % p
        for row, p in zip(rows, primes, strict=True)
    )


def test_the_moduli_are_prime_and_together_exceed_every_difference_of_totals():
    for prime in PRIMES:
        assert all(pow(base, prime - 1, prime) == 1 for base in (2, 3, 5, 7, 11))
    assert PRIMES[0] * PRIMES[1] > 2**61


@given(st.lists(int64s, max_size=40), st.integers(0, 200))
def test_they_are_what_their_definition_says(values, constant):
    tags = data_tags(KEY, np.array(values, dtype="<i8"), constant)
    assert tags == plainly(KEY, [*values, constant], DATA_PRIMES)


@pytest.mark.parametrize("length", [4095, 4096, 4097, 9000])
@pytest.mark.parametrize("value", [-(2**63), 2**63 - 1, -1])
def test_long_vectors_of_extreme_integers_are_exact(length, value):
    tags = data_tags(KEY, np.full(length, value, dtype="<i8"), 1)
    assert tags == plainly(KEY, [value] * length + [1], DATA_PRIMES)


@given(st.integers(0, 2**32 - 1), st.integers(0, 200))
def test_failed_has_tags_of_its_own(failed, constant):
    assert failed_tags(KEY, failed, constant) == plainly(KEY, [failed, constant], FAILED_PRIMES)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_128_bits_are_reduced_modulo_each_prime(lower, upper):
    count = len(RESIDUE_PRIMES)
    found = reduced(np.full(count, lower, "<u8"), np.full(count, upper, "<u8"))
    assert list(found) == [((upper << 64) + lower) % prime for prime in RESIDUE_PRIMES]
    assert len(residue_masks(KEY)) == count


@given(st.integers(0, 2**32), st.sampled_from([-16, 16]), st.integers(0, 2))
@settings(max_examples=8)
def test_totals_at_both_tails_of_the_noise_verify_with_dropouts(seed, tail, dropped):
    """The simulator verifies every total at every site, and raises if one does not.

    The noise of all contributors adds up to sixteen deviations of the *total*, the most that a
    member accepts.
    """
    rng = np.random.default_rng(seed)
    block = Block("x", (3, 3), 1e4, 1.0, sensitivity=1.0, symmetric=True)
    encoding = Encoding.noisy(Layout((block,)), multiplier=2.0, honest=3, max_clients=7)
    terms = Terms(bytes(16), 1, 4, differential_privacy=True)
    simulation = Simulation(7, terms=terms)
    simulation.open_epoch()
    for site in range(dropped):
        simulation.faults[site, Point.UPLOAD] = Fault.GONE
    left = 7 - dropped
    matrices = [np.full((3, 3), rng.choice([-1e4, 1e4])) for _ in range(7)]
    total = simulation.total(
        encoding,
        [{"x": matrix} for matrix in matrices],
        source=lambda deviation, count: np.full(count, int(tail * deviation / math.sqrt(left))),
    )
    assert total.contributors == left
