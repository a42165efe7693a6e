"""With noise: what one unit can change is bounded on the integers, and nothing overflows."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privacy.encoding import Encoding
from privacy.errors import (
    EncodingError,
    LayoutError,
    NoHeadRoom,
    NoSensitivity,
    PrivacyError,
    ResolutionTooFine,
    TotalOutOfBound,
)
from privacy.layout import Block, Layout
from privacy.noise import approximate, draw
from privacy.scales import (
    LEAST_SHARE_DEVIATION,
    SHARE_DEVIATION,
    TAILS,
    integer_sensitivity,
    largest_integer,
)

Values = dict[str, NDArray[np.float64]]
ROWS = 2000
CLIP = 3.0


def statistics_layout(features: int, unit_rows: int, targets: int = 1) -> Layout:
    """Return the layout of (S, b, yᵀy, n): ‖φ‖ ≤ 1, |y| ≤ CLIP, at most `unit_rows` per unit."""
    k = float(unit_rows)
    wide = math.sqrt(targets) * CLIP
    return Layout(
        (
            Block("scatter", (features, features), ROWS, 1.0, k, symmetric=True, weight=8.0),
            Block("cross", (features, targets), ROWS * CLIP, 1.0, k * wide, weight=2.0),
            Block("squares", (targets,), ROWS * CLIP**2, 1.0, k * wide * CLIP),
            Block("rows", (), ROWS, 1.0, k, weight=0.01),
        )
    )


def statistics(features: NDArray[np.float64], targets: NDArray[np.float64], chunk: int) -> Values:
    """Return the sums, computed in chunks in float64, as a client does."""
    m, t = features.shape[1], targets.shape[1]
    scatter, cross, squares = np.zeros((m, m)), np.zeros((m, t)), np.zeros(t)
    for first in range(0, len(features), chunk):
        x, y = features[first : first + chunk], targets[first : first + chunk]
        scatter += x.T @ x
        cross += x.T @ y
        squares += (y * y).sum(0)
    return {
        "scatter": (scatter + scatter.T) / 2,
        "cross": cross,
        "squares": squares,
        "rows": np.array(float(len(features))),
    }


def integers(encoding: Encoding, values: Values) -> NDArray[np.int64]:
    """Return a site's vector before noise is added."""
    return encoding.encode(values, noise=np.zeros(encoding.layout.length, "<i8")).view("<i8")


def moved(encoding: Encoding, one: Values, other: Values) -> list[float]:
    """Return the distance of two contributions in each block, in integers."""
    change = (integers(encoding, one) - integers(encoding, other)).astype(np.float64)
    norms, start = [], 0
    for block in encoding.layout.blocks:
        norms.append(float(np.linalg.norm(change[start : start + block.length])))
        start += block.length
    return norms


def sensitivities(encoding: Encoding) -> list[float]:
    return [
        integer_sensitivity(block, bits)
        for block, bits in zip(encoding.layout.blocks, encoding.fractional_bits, strict=True)
    ]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(0, 300),
    unit_rows=st.integers(1, 5),
    targets=st.integers(1, 2),
    multiplier=st.sampled_from([0.3, 4.0, 50.0]),
    worst=st.booleans(),
    chunk=st.sampled_from([1, 7, 64, 1000]),
)
def test_a_unit_moves_no_more_than_the_integer_sensitivity(
    seed: int, rows: int, unit_rows: int, targets: int, multiplier: float, worst: bool, chunk: int
) -> None:
    """Random rows with one unit among them; each of the two tables is summed in its own chunks."""
    rng = np.random.default_rng(seed)
    layout = statistics_layout(6, unit_rows, targets)
    encoding = Encoding.noisy(layout, multiplier=multiplier, honest=3, max_clients=10)
    angles = rng.normal(size=(rows + unit_rows, 3)) * 4
    features = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / math.sqrt(3)
    features = features.astype(np.float32).astype(np.float64)
    y = np.clip(rng.normal(size=(rows + unit_rows, targets)) * 2, -CLIP, CLIP)
    unit = rng.choice(rows + unit_rows, unit_rows, replace=False)
    if worst:
        features[unit] = features[unit[0]]
        y[unit] = CLIP
    kept = np.delete(np.arange(rows + unit_rows), unit)
    found = moved(
        encoding,
        statistics(features, y, chunk),
        statistics(features[kept], y[kept], 64),
    )
    for norm, bound in zip(found, sensitivities(encoding), strict=True):
        assert norm <= bound


def test_a_unit_that_does_its_worst_comes_close_to_the_sensitivity() -> None:
    """So the bound is tight, not only valid."""
    encoding = Encoding.noisy(statistics_layout(6, 4), multiplier=4.0, honest=3, max_clients=10)
    row = np.array([[1.0, 0, 0, 0, 0, 0]])
    unit = statistics(np.repeat(row, 4, 0), np.full((4, 1), CLIP), 1000)
    nothing = statistics(row[:0], np.zeros((0, 1)), 1000)
    for norm, bound in zip(moved(encoding, unit, nothing), sensitivities(encoding), strict=True):
        assert 0.9999 * bound < norm <= bound


def test_rounding_alone_moves_every_element_and_is_covered() -> None:
    """A tiny change moves each of d integers by one: 2^f·Δ alone does not bound it."""
    size = 900
    block = Block("x", (size,), 1.0, 1.0, sensitivity=1e-9)
    encoding = replace(
        Encoding.noisy(Layout((block,)), multiplier=4.0, honest=3, max_clients=5),
        fractional_bits=(20,),
    )
    step = 2.0**-20
    below, above = np.full(size, 0.4999999 * step), np.full(size, 0.5000001 * step)
    assert np.linalg.norm(above - below) < block.sensitivity
    (norm,) = moved(encoding, {"x": above}, {"x": below})
    assert norm == math.sqrt(size)
    assert norm > 2.0**20 * block.sensitivity
    assert norm <= integer_sensitivity(block, 20)


@settings(max_examples=100, deadline=None)
@given(
    multiplier=st.floats(0.05, 200.0),
    honest=st.integers(1, 60),
    weights=st.lists(st.floats(1e-3, 1e3), min_size=4, max_size=4),
)
def test_a_sum_has_the_multiplier_it_was_asked_for_divided_by_weight(
    multiplier: float, honest: int, weights: list[float]
) -> None:
    blocks = statistics_layout(10, 2).blocks
    layout = Layout(tuple(replace(b, weight=w) for b, w in zip(blocks, weights, strict=True)))
    encoding = Encoding.noisy(layout, multiplier=multiplier, honest=honest, max_clients=60)
    assert multiplier <= encoding.multiplier(honest=honest) <= multiplier * 1.001
    spent = [
        (bound / share) ** 2 / honest
        for bound, share in zip(sensitivities(encoding), encoding.share_deviations, strict=True)
    ]
    for part, weight in zip(spent, weights, strict=True):
        assert part / sum(spent) == pytest.approx(weight / sum(weights), rel=1e-4)


def test_rounding_and_summing_cost_next_to_no_noise() -> None:
    """At the default of 100,000 rows, integers need 0.01 % more noise than real numbers."""
    block = Block("scatter", (100, 100), 1e5, 1.0, 1.0, symmetric=True)
    encoding = Encoding.noisy(Layout((block,)), multiplier=3.73, honest=7, max_clients=10)
    (bits,) = encoding.fractional_bits
    assert integer_sensitivity(block, bits) < 1.0001 * 2.0**bits


@settings(max_examples=150, deadline=None)
@given(
    bound=st.floats(1e-3, 1e9),
    sensitivity=st.floats(1e-3, 1e3),
    multiplier=st.floats(1e-2, 1e4),
    clients=st.integers(2, 200),
    symmetric=st.booleans(),
)
def test_extreme_contributions_with_extreme_noise_never_overflow(
    bound: float, sensitivity: float, multiplier: float, clients: int, symmetric: bool
) -> None:
    block = Block("b", (2, 2), bound, 1.0, sensitivity, symmetric=symmetric)
    try:
        encoding = Encoding.noisy(
            Layout((block,)), multiplier=multiplier, honest=2, max_clients=clients
        )
    except NoHeadRoom:
        return
    (share,), (bits,) = encoding.share_deviations, encoding.fractional_bits
    assert share >= LEAST_SHARE_DEVIATION
    noise = np.full(encoding.layout.length, TAILS * share, dtype="<i8")
    largest = encoding.encode({"b": np.full((2, 2), bound)}, noise=noise).view("<i8")
    assert max(largest.tolist()) * clients < 2**62
    assert max(largest.tolist()) <= largest_integer(block, bits) + TAILS * share


def test_what_does_not_fit_into_64_bits_is_refused_by_name() -> None:
    crowded = Block("crowded", (), 1e15, 1.0, sensitivity=1e-3)
    with pytest.raises(NoHeadRoom, match=r"crowded.*fewer rows"):
        Encoding.noisy(Layout((crowded,)), multiplier=1.0, honest=2, max_clients=100)
    encoding = Encoding.noisy(statistics_layout(4, 1), multiplier=4, honest=3, max_clients=10)
    for changed in (
        {"fractional_bits": tuple(bits + 30 for bits in encoding.fractional_bits)},
        {"share_deviations": tuple(share << 30 for share in encoding.share_deviations)},
        {"max_clients": 1 << 20, "share_deviations": (1 << 53,) * 4},
    ):
        with pytest.raises(NoHeadRoom, match="overflow"):
            replace(encoding, **changed)


def test_where_room_is_short_the_noise_is_as_fine_as_fits() -> None:
    block = Block("b", (), 2.5e8, 1.0, sensitivity=1.0)
    encoding = Encoding.noisy(Layout((block,)), multiplier=1.0, honest=67, max_clients=100)
    assert LEAST_SHARE_DEVIATION <= encoding.share_deviations[0] < SHARE_DEVIATION
    assert 1.0 <= encoding.multiplier(honest=67) < 1.2


def test_a_block_of_unknown_sensitivity_cannot_be_private() -> None:
    layout = Layout((Block("known", (), 1.0, 1.0, 1.0), Block("unknown", (), 1.0, 1.0)))
    with pytest.raises(NoSensitivity, match="unknown"):
        Encoding.noisy(layout, multiplier=4.0, honest=3, max_clients=5)
    with pytest.raises(NoSensitivity, match="unknown"):
        Encoding(layout, 5, (20, 20), (2**30, 2**30))


def test_noise_is_finer_than_any_resolution_that_it_hides() -> None:
    """A resolution of 2^-50 matters only for sums without noise."""
    block = Block("b", (), 1e4, 2.0**-50, sensitivity=1.0)
    Encoding.noisy(Layout((block,)), multiplier=4.0, honest=3, max_clients=5)
    with pytest.raises(ResolutionTooFine):
        Encoding.finest(Layout((block,)), max_clients=5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"multiplier": 0.0},
        {"multiplier": math.nan},
        {"multiplier": math.inf},
        {"multiplier": -1.0},
        {"multiplier": True},
        {"honest": 0},
        {"honest": 11},
        {"honest": 2.0},
        {"max_clients": 0},
        {"max_clients": 1 << 21},
    ],
)
def test_impossible_noise_is_refused(wrong: dict[str, float]) -> None:
    arguments = {"multiplier": 4.0, "honest": 3, "max_clients": 10} | wrong
    with pytest.raises(EncodingError):
        Encoding.noisy(statistics_layout(4, 1), **arguments)


def test_a_noisy_encoding_survives_its_canonical_form_and_nothing_else_is_read() -> None:
    layout = statistics_layout(2, 1)
    encoding = Encoding.noisy(layout, multiplier=4.0, honest=3, max_clients=5)
    data = encoding.to_bytes()
    assert Encoding.from_bytes(data) == encoding
    silent = Encoding(layout, 5, encoding.fractional_bits)
    assert silent.digest() != encoding.digest()
    for cut in range(len(data)):
        with pytest.raises((EncodingError, LayoutError)):
            Encoding.from_bytes(data[:cut])
    for place in range(len(data)):
        for flip in (1, 0x80):
            bad = bytearray(data)
            bad[place] ^= flip
            try:
                other = Encoding.from_bytes(bytes(bad))
            except PrivacyError:
                continue
            assert other != encoding
            assert other.to_bytes() == bytes(bad)


@pytest.mark.parametrize("shares", [(1,), (2**30,) * 5, (0,) * 4, (2.0**30,) * 4, [2**30] * 4])
def test_share_deviations_of_another_form_are_refused(shares: object) -> None:
    encoding = Encoding.noisy(statistics_layout(2, 1), multiplier=4.0, honest=3, max_clients=5)
    with pytest.raises(EncodingError, match="share_deviations"):
        replace(encoding, share_deviations=shares)


def test_a_total_may_be_beyond_its_bound_by_its_noise_and_no_more() -> None:
    encoding = Encoding.noisy(
        Layout((Block("b", (), 1.0, 1.0, sensitivity=1.0),)),
        multiplier=4.0,
        honest=3,
        max_clients=5,
    )
    (bits,), (share,) = encoding.fractional_bits, encoding.share_deviations
    most = 4 * (2**bits + 1) + TAILS * 2 * share
    total = encoding.decode(np.array([most], dtype="<u8"), contributors=4)
    assert float(total["b"]) > 4 * 1.0
    for beyond in (most + 2, -most - 2):
        with pytest.raises(TotalOutOfBound, match="b"):
            encoding.decode(np.array([beyond % 2**64], dtype="<u8"), contributors=4)


def test_sums_with_noise_are_exact_in_the_noise() -> None:
    """The decoded value is the sum of the integers and of the draws: nothing else is added."""
    encoding = Encoding.noisy(statistics_layout(3, 1), multiplier=4.0, honest=3, max_clients=4)
    rng = np.random.default_rng(3)
    drawn = [draw(encoding, source=approximate(rng)).once() for _ in range(4)]
    values = [statistics(rng.normal(size=(5, 3)) / 4, rng.normal(size=(5, 1)) / 4, 5)] * 4
    encoded = [encoding.encode(v, noise=n) for v, n in zip(values, drawn, strict=True)]
    expected = sum((integers(encoding, v) for v in values), np.zeros(encoding.layout.length, int))
    assert np.array_equal(np.add.reduce(encoded).view("<i8"), expected + np.add.reduce(drawn))


def test_a_sum_has_one_encoding_exact_or_with_noise() -> None:
    layout = Layout((Block("rows", (), bound=1e6, resolution=1.0, sensitivity=1.0),))
    exact = Encoding.of_sum(layout, multiplier=None, honest=3, members=5)
    assert exact == Encoding.finest(layout, max_clients=5)
    noisy = Encoding.of_sum(layout, multiplier=4.0, honest=3, members=5)
    assert noisy == Encoding.noisy(layout, multiplier=4.0, honest=3, max_clients=5)
