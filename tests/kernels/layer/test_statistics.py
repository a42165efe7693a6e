"""Sufficient statistics: those of any split are the pooled ones, and invalid ones are refused."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.errors import NotFinite, NotSymmetric, StatisticsError, WrongShape
from kernels.features.urk import URK
from kernels.layer.posterior import Spectrum
from kernels.layer.statistics import Statistics
from tests.kernels.features.specs import EVERY_SPEC


def table(rows: int, *, targets: int = 1, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, generator=generator, dtype=torch.float64)
    return x, torch.randn(rows, targets, generator=generator, dtype=torch.float64)


def assert_same(left: Statistics, right: Statistics, *, tolerance: float = 1e-12) -> None:
    for name in ("scatter", "cross", "target_squares"):
        torch.testing.assert_close(
            getattr(left, name), getattr(right, name), rtol=tolerance, atol=tolerance
        )
    assert left.count == right.count


@given(
    cuts=st.lists(st.integers(0, 60), max_size=5),
    chunk_rows=st.integers(1, 70),
    targets=st.integers(1, 3),
)
@settings(deadline=None)
def test_statistics_of_any_split_and_any_chunks_are_the_pooled_ones(
    cuts: list[int], chunk_rows: int, targets: int
) -> None:
    kernel = URK(EVERY_SPEC["shifted"])
    x, y = table(60, targets=targets)
    phi = kernel.features(x).detach()
    pooled = Statistics(phi.mT @ phi, phi.mT @ y, (y * y).sum(0), 60)
    total = Statistics.zero(features=20, targets=targets)
    edges = [0, *sorted(cuts), 60]
    for first, last in itertools.pairwise(edges):
        part = slice(first, last)
        total = total + Statistics.of_table(kernel, x[part], y[part], chunk_rows=chunk_rows)
    assert_same(total, pooled)


def test_the_scatter_matrix_is_exactly_symmetric() -> None:
    statistics = Statistics.of_features(torch.randn(50, 20).double(), torch.randn(50))
    assert torch.equal(statistics.scatter, statistics.scatter.mT)


def test_rows_can_be_taken_out_again() -> None:
    kernel = URK(EVERY_SPEC["rbf"])
    x, y = table(60)
    whole, part = Statistics.of_table(kernel, x, y), Statistics.of_table(kernel, x[:20], y[:20])
    assert_same(whole - part, Statistics.of_table(kernel, x[20:], y[20:]))
    with pytest.raises(StatisticsError):
        part - whole


@given(cut=st.integers(1, 59))
@settings(deadline=None, max_examples=20)
def test_rows_can_be_taken_out_down_to_none(cut: int) -> None:
    kernel = URK(EVERY_SPEC["rbf"])
    x, y = table(60)
    whole = Statistics.of_table(kernel, x, y)
    first = Statistics.of_table(kernel, x[:cut], y[:cut])
    rest = Statistics.of_table(kernel, x[cut:], y[cut:])
    nothing = whole - first - rest
    assert nothing.count == 0
    assert (Spectrum.of(nothing).eigenvalues <= nothing.rounding).all()


def test_roundings_add_up_whatever_is_done() -> None:
    def rounded() -> Statistics:
        zero = torch.zeros(2, dtype=torch.float64)
        return Statistics(torch.zeros(2, 2, dtype=torch.float64), zero[:, None], zero[:1], 0, 0.5)

    assert (rounded() + rounded() - rounded()).rounding == 1.5


def test_a_table_without_rows_and_a_stream_without_chunks_are_zero() -> None:
    x, y = table(0, targets=2)
    empty = Statistics.of_table(URK(EVERY_SPEC["rbf"]), x, y)
    assert_same(empty, Statistics.zero(features=20, targets=2))
    assert_same(Statistics.of_chunks([], features=20, targets=2), empty)


def test_inputs_are_not_changed_and_need_not_be_contiguous() -> None:
    features = torch.randn(20, 50).double().mT
    copy = features.clone()
    statistics = Statistics.of_features(features, torch.ones(50))
    assert torch.equal(features, copy)
    torch.testing.assert_close(statistics.scatter, features.mT @ features)


def test_bad_input_is_named() -> None:
    phi, y = torch.randn(9, 4).double(), torch.randn(9).double()
    good = Statistics.of_features(phi, y)
    with pytest.raises(WrongShape):
        Statistics.of_features(phi, y[1:])
    with pytest.raises(WrongShape):
        Statistics.of_features(phi[0], y)
    with pytest.raises(WrongShape, match="all chunks of a table"):
        Statistics.of_chunks([(phi, y), (phi[:, 1:], y)], features=4)
    with pytest.raises(WrongShape, match="same kernel"):
        good + Statistics.zero(features=4, targets=2)
    with pytest.raises(WrongShape, match="same number of rows"):
        Statistics.of_table(URK(EVERY_SPEC["rbf"]), torch.randn(3, 3), torch.randn(4))
    for bad in (math.nan, math.inf, 1e200):
        broken = phi.clone()
        broken[3, 2] = bad
        with pytest.raises(NotFinite, match="scatter"):
            Statistics.of_features(broken, y)
        spoilt = y.clone()
        spoilt[1] = bad
        with pytest.raises(NotFinite):
            Statistics.of_features(phi, spoilt)
    crooked = good.scatter.clone()
    crooked[0, 1] += 1
    with pytest.raises(NotSymmetric, match="transpose"):
        Statistics(crooked, good.cross, good.target_squares, good.count)
    with pytest.raises(StatisticsError, match="float64"):
        Statistics(good.scatter.float(), good.cross, good.target_squares, good.count)
    with pytest.raises(WrongShape):
        Statistics(good.scatter[:3], good.cross, good.target_squares, good.count)
    with pytest.raises(WrongShape):
        Statistics(good.scatter, good.cross, good.target_squares[:0], good.count)
    with pytest.raises(WrongShape):
        Statistics(good.scatter[0, 0], good.cross[0], good.target_squares, good.count)
    for rounding in (math.nan, math.inf, -1.0):
        with pytest.raises(StatisticsError, match="rounding"):
            Statistics(good.scatter, good.cross, good.target_squares, 9, rounding)
    with pytest.raises(StatisticsError, match="count must be an integer"):
        Statistics(good.scatter, good.cross, good.target_squares, 1.5)
    for chunk_rows in (0, -1):
        with pytest.raises(WrongShape, match="chunk_rows"):
            Statistics.of_table(
                URK(EVERY_SPEC["rbf"]), torch.ones(3, 3), torch.ones(3), chunk_rows=chunk_rows
            )
