"""Weighted sums: those of any division are the pooled ones, bit for bit on a grid."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.errors import NotFinite, NotSymmetric, StatisticsError, WrongShape
from kernels.outcomes import binary, count, logistic
from kernels.outcomes.variational import Layer
from kernels.outcomes.weighted import Grid, Rows, Weighted
from tests.kernels.outcomes import tables

PHI = tables.features(80)
OUTCOMES = {
    "binary": binary.trials(tables.yes_no(PHI), offset=-0.7),
    "count": count.trials((tables.chances(80) * 9).floor(), dispersion=2.0, offset=0.3),
}
LAYER = tables.by_polya_gamma(PHI, OUTCOMES["binary"], sums=3)

divisions = st.lists(st.integers(0, 80), max_size=5)
kinds = pytest.mark.parametrize("kind", OUTCOMES)
rules = pytest.mark.parametrize("rule", [logistic.polya_gamma, logistic.newton])


def summed(kind: str, rule: logistic.Rule, cuts: list[int], grid: Grid | None = None) -> Weighted:
    total = Weighted.zero(LAYER.features)
    for first, last in itertools.pairwise([0, *sorted(cuts), 80]):
        part = slice(first, last)
        chunk = PHI[part], OUTCOMES[kind][part]
        total = total + logistic.local([chunk], LAYER, rule=rule, grid=grid)
    return total


@kinds
@rules
@given(cuts=divisions)
@settings(max_examples=15, deadline=None)
def test_sums_of_any_division_are_the_pooled_ones(
    kind: str, rule: logistic.Rule, cuts: list[int]
) -> None:
    total = summed(kind, rule, cuts)
    rows = rule(OUTCOMES[kind], *LAYER.latent(PHI))
    tables.assert_close(total.scatter, PHI.mT @ (rows.weights[:, None] * PHI))
    tables.assert_close(total.cross, PHI.mT @ rows.pulls)
    assert total.terms == pytest.approx(float(rows.terms.sum()))
    assert total.count == 80


@kinds
@rules
@given(cuts=divisions)
@settings(max_examples=15, deadline=None)
def test_on_a_grid_they_are_the_same_to_the_last_bit(
    kind: str, rule: logistic.Rule, cuts: list[int]
) -> None:
    grid = Grid(features=2.0**-15)
    total, pooled = summed(kind, rule, cuts, grid), summed(kind, rule, [], grid)
    assert torch.equal(total.scatter, pooled.scatter)
    assert torch.equal(total.cross, pooled.cross)
    assert (total.terms, total.count) == (pooled.terms, pooled.count)


@rules
def test_a_grid_changes_little(rule: logistic.Rule) -> None:
    exact, rounded = summed("binary", rule, []), summed("binary", rule, [], Grid(features=2.0**-15))
    tables.assert_close(exact.scatter, rounded.scatter, rtol=0, atol=1e-3)
    tables.assert_close(exact.cross, rounded.cross, rtol=0, atol=1e-2)
    assert exact.terms == pytest.approx(rounded.terms, abs=1e-2)


def test_an_empty_table_adds_nothing() -> None:
    nothing = logistic.local([(PHI[:0], OUTCOMES["binary"][:0])], LAYER)
    none = logistic.local([], LAYER)
    for empty in (nothing, none):
        assert not empty.scatter.any()
        assert not empty.cross.any()
        assert (empty.terms, empty.count) == (0.0, 0)


def test_a_step_of_a_share_is_between_its_ends() -> None:
    one, other = summed("binary", logistic.polya_gamma, []), summed("binary", logistic.newton, [])
    assert one.towards(other, 1.0) is other
    half = one.towards(other, 0.5)
    tables.assert_close(half.scatter, (one.scatter + other.scatter) / 2)


def test_impossible_sums_are_refused() -> None:
    zero = torch.zeros(2, dtype=torch.float64)
    square = torch.zeros(2, 2, dtype=torch.float64)
    crooked = torch.tensor([[1.0, 0.5], [0.0, 1.0]], dtype=torch.float64)
    with pytest.raises(WrongShape):
        Weighted(square, torch.zeros(3, dtype=torch.float64), 0.0, 1)
    with pytest.raises(NotSymmetric):
        Weighted(crooked, zero, 0.0, 1)
    with pytest.raises(NotFinite):
        Weighted(square + torch.inf, zero, 0.0, 1)
    with pytest.raises(NotFinite):
        Weighted(square, zero, float("nan"), 1)
    with pytest.raises(StatisticsError):
        Weighted(square, zero, 0.0, -1)
    with pytest.raises(StatisticsError):
        Weighted(square.float(), zero, 0.0, 1)
    with pytest.raises(WrongShape, match="same kernel"):
        Weighted.zero(2) + Weighted.zero(3)
    rows = Rows(zero, zero, zero)
    with pytest.raises(WrongShape):
        Weighted.of_chunks([(square[:1], rows)], features=2)
    with pytest.raises(WrongShape):
        Layer.prior(3).latent(square)
