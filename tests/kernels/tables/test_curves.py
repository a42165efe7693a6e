"""A column with heavy tails gets a curve that keeps order; all others stay as they are."""

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.errors import StandardiserError
from kernels.tables.curves import (
    DOUBLINGS,
    INTERVALS,
    LEAST_ROWS,
    LEAST_SPREAD,
    MOST_KNOTS,
    SPACING,
    STEP,
    Curve,
    count_in_intervals,
    curve_of,
    edges,
    spread,
)
from kernels.tables.standardiser import CLIP

Column = NDArray[np.float64]


def histogram(x: Column) -> tuple[tuple[float, ...], list[int], torch.Tensor]:
    """Return the edges and counts of a column, and its z."""
    mean, scale = float(x.mean()), float(x.std())
    own, z = edges(mean, scale), torch.tensor((x - mean) / scale)
    return own, [round(each) for each in count_in_intervals(z, own).tolist()], z


def fitted(x: Column) -> Curve | None:
    own, counts, _ = histogram(x)
    return curve_of("x", own, counts)


def curved(x: Column) -> torch.Tensor:
    """Return a column after its curve; it must have one."""
    curve, (_, _, z) = fitted(x), histogram(x)
    assert curve is not None
    return curve.apply(z)


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


HEAVY = {
    "lognormal": np.exp(2 * random().normal(size=3000)),
    "negative": -np.exp(1.5 * random(1).normal(size=3000)),
    "Student's t": random(2).standard_t(1.5, 3000) + 37,
    "an outlier": np.append(random(3).normal(size=3000), 12.5),
    "a code for missing": np.append(random(4).uniform(20, 90, 3000), [999_999.0]),
    "mostly zero": np.where(random(5).random(3000) < 0.9, 0.0, random(6).lognormal(size=3000)),
    "far from zero": 2010 + random(7).standard_t(2, 3000),
}
PLAIN = {
    "normal": random().normal(size=20_000),
    "uniform": random().uniform(0, 1e6, 3000),
    "bimodal": np.where(random().random(3000) < 0.3, 5.0, 0.0) + random(1).normal(size=3000),
    "one level": np.zeros(100),
    "yes or no": (random().random(3000) < 0.002).astype(float),
    "a few levels": random().binomial(4, 0.02, 3000).astype(float),
    "few rows": np.exp(3 * random().normal(size=15)),
}

columns = st.builds(
    lambda rows, seed, df, shift, outlier: np.append(
        np.random.default_rng(seed).standard_t(df, rows) + shift, outlier
    ),
    st.integers(40, 400),
    st.integers(0, 2**32),
    st.floats(0.7, 5),
    st.floats(-1e3, 1e3),
    st.floats(-1e9, 1e9),
)
knots = st.lists(st.tuples(st.floats(2**-20, 1e3), st.floats(2**-20, 3)), min_size=2, max_size=30)


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    """Any increasing curve."""
    steps = np.cumsum([(-50.0, -4.0), *draw(knots)], axis=0)
    return Curve("x", tuple(steps[1:, 0].tolist()), tuple(steps[1:, 1].tolist()))


@pytest.mark.parametrize("name", HEAVY)
def test_a_column_with_heavy_tails_gets_a_curve(name: str) -> None:
    assert fitted(HEAVY[name]) is not None


@pytest.mark.parametrize("name", PLAIN)
def test_normal_and_few_level_columns_stay_linear(name: str) -> None:
    x = PLAIN[name]
    scale = float(x.std()) or 1.0
    own = edges(float(x.mean()), scale)
    counts = count_in_intervals(torch.tensor((x - x.mean()) / scale), own).tolist()
    assert curve_of("x", own, [round(each) for each in counts]) is None


@pytest.mark.parametrize("name", sorted(HEAVY.keys() - {"a code for missing"}))
def test_ranks_become_normal_scores(name: str) -> None:
    x, values = HEAVY[name], curved(HEAVY[name]).numpy()
    own = spread(*histogram(x)[:2])
    for share in (0.25, 0.5, 0.75, 0.95, 0.99):
        below = (x < np.quantile(x, share)).mean()
        if abs(below - share) < 0.01:  # not where many rows have one value
            score = own * NormalDist().inv_cdf(share)
            assert np.quantile(values, share) == pytest.approx(score, abs=0.5 * own)


def test_an_outlier_twelve_deviations_out_is_within_four() -> None:
    for deviations in (12.5, -12.5):
        x = np.append(random(3).normal(size=3000), deviations)
        assert 2.5 < abs(float(curved(x)[-1])) < 4
        # Also if no row in training was that far out: the curve goes on.
        curve = fitted(np.append(random(3).normal(size=3000), math.copysign(7, deviations)))
        assert curve is not None
        assert 2.5 < abs(curve.of(deviations)) < 4.5


def test_one_outlier_does_not_squeeze_the_other_rows() -> None:
    values = curved(HEAVY["a code for missing"])[:-1]
    assert float(values.std()) > 0.35
    _, _, z = histogram(HEAVY["a code for missing"])
    assert float(z[:-1].std()) < 0.01, "as it would be without a curve"


def test_most_rows_keep_their_distances_where_there_are_a_few_outliers() -> None:
    x = np.append(random(3).normal(size=3000), [12.5] * 5)
    _, _, z = histogram(x)
    assert float(curved(x)[:-5].std()) == pytest.approx(float(z[:-5].std()), rel=0.15)


@settings(max_examples=50, deadline=None)
@given(columns)
def test_a_curve_of_any_column_keeps_the_order_and_ends_at_the_clip(x: Column) -> None:
    curve, (_, _, z) = fitted(x), histogram(x)
    if curve is None:
        assert float(z.abs().max()) < 6 or len(x) < 2 * LEAST_ROWS or _occupied(x) < 9
        return
    values = curve.apply(z)[z.argsort()]
    assert bool((values.diff() >= 0).all())
    assert len(curve.at) <= MOST_KNOTS
    ends = curve.to[DOUBLINGS], curve.to[-DOUBLINGS - 1]
    most = NormalDist().inv_cdf(1 - LEAST_ROWS / 2 / len(x))
    assert all(abs(end) <= most + 2**-8 for end in ends), "no knot is one row's"
    assert 0 < curve.to[-1] - ends[1] <= DOUBLINGS * STEP + 2**-8


def _occupied(x: Column) -> int:
    return sum(map(bool, histogram(x)[1]))


@settings(max_examples=50, deadline=None)
@given(columns, st.randoms(use_true_random=False))
def test_neither_the_order_of_rows_nor_their_division_changes_a_bit(
    x: Column, chance: st.DataObject
) -> None:
    own, counts, z = histogram(x)
    order = list(range(len(x)))
    chance.shuffle(order)  # type: ignore[attr-defined]
    parts = torch.tensor_split(z[order], [3, 17, 18])
    summed = torch.stack([count_in_intervals(part, own) for part in parts]).sum(0)
    assert curve_of("x", own, [round(each) for each in summed.tolist()]) == curve_of(
        "x", own, counts
    )


@settings(max_examples=50, deadline=None)
@given(curves(), st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50))
def test_a_curve_never_decreases_and_many_values_are_each_to_the_last_bit(
    curve: Curve, values: list[float]
) -> None:
    near = [math.nextafter(knot, way) for knot in curve.at for way in (-math.inf, math.inf)]
    z = torch.tensor(sorted([*values, *curve.at, *near]), dtype=torch.float64)
    found = curve.apply(z)
    assert bool((found.diff() >= 0).all())
    assert found.tolist() == [curve.of(each) for each in z.tolist()]
    assert [curve.of(knot) for knot in curve.at[:-1]] == list(curve.to[:-1])


def test_what_is_beyond_all_numbers_is_clipped_and_never_nan() -> None:
    curve = fitted(HEAVY["lognormal"])
    assert curve is not None
    ends = curve.apply(torch.tensor([-1.7e308, 1.7e308], dtype=torch.float64)).clamp(-CLIP, CLIP)
    assert ends.tolist() == [-CLIP, CLIP]


@settings(max_examples=50)
@given(st.floats(-1e12, 1e12), st.floats(1e-12, 1e12))
def test_edges_are_of_a_fixed_number_and_in_order(mean: float, scale: float) -> None:
    own = edges(mean, scale)
    assert len(own) == INTERVALS - 1
    assert list(own) == sorted(own)
    assert own[-1] >= -own[0] >= 372 or own[0] < -372
    mirrored = edges(-mean, scale)
    if mean:
        assert mirrored == tuple(-each for each in reversed(own))


def test_counts_are_of_every_row_once() -> None:
    own = edges(1.0, 2.0)
    z = torch.tensor([own[0] - 1, own[0], own[-1], own[-1] + 1, own[40]], dtype=torch.float64)
    counts = count_in_intervals(z, own)
    assert counts.sum() == len(z)
    assert counts[[0, 1, -1, 41]].tolist() == [1, 1, 2, 1]
    assert count_in_intervals(z[:0], own).tolist() == [0.0] * INTERVALS


def test_edges_are_the_same_numbers_on_every_machine() -> None:
    # Rounded so coarsely that no library's sinh can change one.
    exact = [256 * math.sinh(step / 4) for step in range(33)]
    assert all(abs(each % 1 - 0.5) > 1e-3 for each in exact)
    assert edges(0.0, 1.0)[-1] == 372.6201171875


@pytest.mark.parametrize(
    ("at", "to", "mentions"),
    [
        ((0.0,), (0.0,), "2 to"),
        ((0.0, 1.0), (0.0,), "each with a value"),
        (tuple(range(100)), tuple(range(100)), "2 to"),
        ((0.0, 0.0), (0.0, 1.0), "increase"),
        ((0.0, 2.0**-40), (0.0, 1.0), "increase"),
        ((0.0, 1.0), (1.0, 1.0), "increase"),
        ((0.0, math.nan), (0.0, 1.0), "finite"),
        ((0.0, True), (0.0, 1.0), "finite"),
        ([0.0, 1.0], (0.0, 1.0), "finite"),
    ],
)
def test_what_is_no_curve_is_refused(
    at: tuple[float, ...], to: tuple[float, ...], mentions: str
) -> None:
    with pytest.raises(StandardiserError, match=mentions):
        Curve("x", at, to)


def test_knots_are_a_spacing_apart() -> None:
    for x in HEAVY.values():
        curve = fitted(x)
        assert curve is not None
        inner = curve.to[DOUBLINGS:-DOUBLINGS]
        assert min(np.diff(inner)) >= LEAST_SPREAD * SPACING - 2**-7
