"""Shares of a key: a threshold of them gives it, fewer reveal nothing, wrong ones are detected."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.errors import SharingError
from privacy.shamir import PRIME, SHARE_BYTES, combine, split, weights_at_zero


@given(st.binary(min_size=32, max_size=32), st.integers(1, 12), st.data())
def test_any_threshold_of_shares_gives_the_key(secret, threshold, data):
    points = data.draw(st.lists(st.integers(1, 200), min_size=threshold, max_size=20, unique=True))
    shares = dict(
        zip(
            points,
            split(secret, threshold=threshold, points=points, random=random.Random(0).randbytes),
            strict=True,
        )
    )
    chosen = data.draw(st.permutations(points))[:threshold]
    assert combine({x: shares[x] for x in chosen}) == secret


def test_one_share_less_than_the_threshold_fits_every_key_equally():
    """Lagrange: with one share missing, each key has exactly one polynomial through the others."""
    secret, other = b"a" * 32, b"b" * 32
    shares = split(secret, threshold=3, points=[1, 2, 3], random=random.Random(1).randbytes)
    weights = weights_at_zero([1, 2, 3])
    known = sum(weights[x] * int.from_bytes(shares[x - 1], "big") for x in (1, 2))
    missing = (int.from_bytes(other, "big") - known) * pow(weights[3], -1, PRIME) % PRIME
    forged = {1: shares[0], 2: shares[1], 3: missing.to_bytes(SHARE_BYTES, "big")}
    assert combine(forged) == other


def test_weights_serve_many_keys_shared_at_the_same_points():
    weights = weights_at_zero([2, 5])
    for seed in range(3):
        secret = random.Random(seed).randbytes(32)
        shares = split(secret, threshold=2, points=[2, 5], random=random.Random(9).randbytes)
        assert combine(dict(zip([2, 5], shares, strict=True)), weights) == secret
    with pytest.raises(SharingError, match="same points"):
        combine({2: shares[0]}, weights)


def test_a_share_never_repeats_when_the_same_key_is_shared_again():
    rng = random.Random(3)
    one = split(b"k" * 32, threshold=2, points=[1, 2, 3], random=rng.randbytes)
    two = split(b"k" * 32, threshold=2, points=[1, 2, 3], random=rng.randbytes)
    assert not set(one) & set(two)


@pytest.mark.parametrize(
    ("threshold", "points"), [(0, [1]), (3, [1, 2]), (1, [0]), (1, [1, 1]), (1, [-1]), (1, [])]
)
def test_impossible_sharings_are_refused(threshold, points):
    with pytest.raises(SharingError):
        split(b"k" * 32, threshold=threshold, points=points, random=random.Random(0).randbytes)


@pytest.mark.parametrize("share", [b"", b"x", PRIME.to_bytes(66, "big"), b"\xff" * 66, bytes(67)])
def test_malformed_shares_are_refused(share):
    with pytest.raises(SharingError):
        combine({1: share, 2: bytes(66)})


def test_shares_that_do_not_belong_together_are_noticed():
    a = split(b"a" * 32, threshold=2, points=[1, 2], random=random.Random(0).randbytes)
    b = split(b"b" * 32, threshold=2, points=[1, 2], random=random.Random(1).randbytes)
    with pytest.raises(SharingError):
        combine({1: a[0], 2: b[1]})


def test_a_secret_of_another_length_is_refused():
    with pytest.raises(SharingError):
        split(b"short", threshold=1, points=[1], random=random.Random(0).randbytes)
