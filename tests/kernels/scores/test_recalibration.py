"""Recalibration from a histogram of |z|, compared with the residuals themselves."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kernels.errors import StatisticsError
from kernels.scores.recalibration import (
    BINS,
    BINS_PER_DOUBLING,
    EDGES,
    FOLDS,
    Recalibration,
    fit,
    histogram,
)
from kernels.scores.student_t import StudentT

RATIO = 2 ** (1 / BINS_PER_DOUBLING)


def recalibration(z: torch.Tensor, min_rows: int = 1) -> Recalibration:
    """Count all residuals in the first fold."""
    counts = torch.zeros(FOLDS, BINS, dtype=torch.float64)
    counts[0] = histogram(z)
    return Recalibration.of(counts, min_rows=min_rows)


def drawn(freedom: float, rows: int, *, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(stats.t(freedom).rvs(rows, random_state=seed))


@settings(max_examples=60)
@given(
    st.lists(st.floats(2.0**-6, 250), min_size=1, max_size=60),
    st.integers(1, 999),
)
def test_the_quantile_is_the_dense_one_up_to_a_bin_and_never_below(
    sizes: list[float], per_mille: int
) -> None:
    unfitted = recalibration(torch.tensor(sizes, dtype=torch.float64), min_rows=10**6)
    rank = -(-(len(sizes) + 1) * per_mille // 1000)  # exact, rounded up
    found = unfitted.conformal(per_mille / 1000)
    if rank > len(sizes):
        assert found == math.inf
    else:
        dense = sorted(sizes)[rank - 1]
        assert dense <= found <= dense * RATIO * (1 + 1e-12)


def test_a_whole_rank_is_not_rounded_up_to_the_next() -> None:
    assert 50 * 0.14 > 7  # in floating point
    sizes = torch.arange(1.0, 50.0, dtype=torch.float64)
    assert 7 <= recalibration(sizes, min_rows=10**6).conformal(0.14) <= 7 * RATIO


def test_edges_belong_to_the_bin_that_they_end() -> None:
    assert histogram(EDGES[:3])[:4].tolist() == [1, 1, 1, 0]
    assert histogram(torch.tensor([0.0, 1e9], dtype=torch.float64))[[0, -1]].tolist() == [1, 1]


def test_no_finite_interval_is_promised_beyond_the_last_bin_or_by_no_rows() -> None:
    assert recalibration(torch.full((50,), 1e6, dtype=torch.float64)).conformal(0.5) == math.inf
    nothing = recalibration(torch.zeros(0, dtype=torch.float64))
    assert nothing.conformal(0.05) == math.inf
    assert nothing.law == StudentT()


@pytest.mark.parametrize("freedom", [2.6, 3.0, 5.0])
def test_the_law_of_the_counts_is_the_law_of_the_residuals(freedom: float) -> None:
    z = 0.7 * drawn(freedom, 20_000)
    law = fit(histogram(z))
    nu, _, scale = stats.t.fit(z.numpy(), floc=0)
    assert law.freedom == pytest.approx(nu, rel=0.01)
    assert law.scale == pytest.approx(scale, rel=0.003)


def test_gaussian_residuals_stay_gaussian_with_their_deviation() -> None:
    z = 1.3 * torch.randn(3000, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    law = fit(histogram(z))
    assert law.freedom is None
    assert law.variance == pytest.approx(float(z.square().mean()), rel=0.005)


def test_few_rows_change_the_models_own_law_only_if_they_speak_against_it() -> None:
    samples = torch.randn(50, 20, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    chance = samples.square().mean(1).sqrt().log().abs().mean()
    drawn_to_one = np.mean([abs(math.log(fit(histogram(z)).variance)) / 2 for z in samples])
    assert drawn_to_one < 0.6 * chance
    # A scale that is far from 1 stays where it is.
    far = [math.sqrt(fit(histogram(3 * z)).variance) for z in samples]
    assert np.mean(far) == pytest.approx(3, rel=0.1)


def test_the_more_rows_there_are_the_less_their_law_is_drawn_towards_the_models_own() -> None:
    z = 1.15 * torch.randn(5000, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    scales = [fit(histogram(z).div(5000).mul(rows)).scale for rows in (3, 30, 300, 3000)]
    assert 1 <= scales[0] < scales[1] < scales[2] < scales[3] < 1.2


def test_one_outlier_does_not_widen_every_interval() -> None:
    z = torch.randn(1000, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    before = fit(histogram(z)).half_width(0.5)
    z[0] = 200.0  # the mean of z² is 41: every interval would be six times as wide
    assert fit(histogram(z)).half_width(0.5) == pytest.approx(before, rel=0.1)


def test_few_rows_are_said_to_be_few_and_change_nothing() -> None:
    few = recalibration(5 * drawn(3, 99), min_rows=100)
    assert few.fitted is None
    assert few.law == StudentT()
    assert few.rows == 99
    assert recalibration(5 * drawn(3, 100), min_rows=100).fitted is not None


def test_a_fold_is_judged_by_the_other_fold_alone() -> None:
    wide, narrow = histogram(4 * drawn(3, 400)), histogram(drawn(3, 400, seed=1))
    both = Recalibration.of(torch.stack([wide, narrow]), min_rows=1)
    assert both.without(0).law == fit(narrow)
    assert both.without(1).law == fit(wide)
    assert both.without(0).rows == 400
    assert both.without(1).conformal(0.9) > 2 * both.without(0).conformal(0.9)


@pytest.mark.parametrize(
    "counts",
    [
        torch.zeros(FOLDS, BINS - 1, dtype=torch.float64),
        torch.zeros(FOLDS, BINS),
        torch.full((FOLDS, BINS), -1.0, dtype=torch.float64),
        torch.full((FOLDS, BINS), np.nan, dtype=torch.float64),
    ],
)
def test_counts_that_are_none_are_refused(counts: torch.Tensor) -> None:
    with pytest.raises(StatisticsError):
        Recalibration(counts, None)
