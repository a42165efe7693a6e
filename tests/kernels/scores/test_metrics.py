"""Scores are sums over rows, and the metrics computed from them match their definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm
from torch import Tensor

from kernels.errors import EmptyTable, KernelsError, NotFinite, PredictionError, WrongShape
from kernels.scores.metrics import LEVELS, TEN_LEVELS, Scores, count_intervals

SUMS = [
    "rows",
    "squared_errors",
    "log_losses",
    "ranked_losses",
    "inside",
    "widths",
    "interval_losses",
]


def predictions(n: int, targets: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(3, n, targets, dtype=torch.float64, generator=generator)
    return draw[0], draw[1].exp(), 3 + 2 * draw[2]


def test_levels_are_those_of_the_protocol() -> None:
    np.testing.assert_allclose(LEVELS, np.arange(0.05, 0.96, 0.05))
    np.testing.assert_allclose(TEN_LEVELS, np.arange(0.05, 0.96, 0.1))


def test_scores_equal_their_dense_definitions() -> None:
    mean, variance, y = predictions(200, 3)
    scores = Scores.of(mean, variance, y)
    m, s, t = mean.numpy(), variance.sqrt().numpy(), y.numpy()

    np.testing.assert_allclose(scores.rmse(), np.sqrt(((t - m) ** 2).mean(0)), rtol=1e-12)
    np.testing.assert_allclose(scores.nll(), -norm(m, s).logpdf(t).mean(0), rtol=1e-12)

    curve = np.empty((3, len(LEVELS)))
    for k, p in enumerate(LEVELS):
        lower, upper = norm(m, s).interval(p)
        curve[:, k] = ((lower <= t) & (t <= upper)).mean(0)
        loss = upper - lower
        loss = loss + 2 / (1 - p) * (lower - t) * (t < lower)
        loss = loss + 2 / (1 - p) * (t - upper) * (t > upper)
        np.testing.assert_allclose(scores.width()[:, k], (upper - lower).mean(0), rtol=1e-10)
        np.testing.assert_allclose(scores.interval_score()[:, k], loss.mean(0), rtol=1e-10)
    np.testing.assert_allclose(scores.calibration_curve(), curve, rtol=1e-12)


def test_calibration_errors_equal_their_definitions_row_by_row() -> None:
    mean, variance, y = predictions(150, 1)
    scores = Scores.of(mean, variance, y)
    p = np.array(TEN_LEVELS)
    half_width = norm.ppf((1 + p) / 2) * variance.sqrt().numpy()
    inside = np.abs((y - mean).numpy()) <= half_width
    gaps = np.abs(p - inside.mean(0))
    assert scores.ece().item() == pytest.approx(gaps.mean())
    assert scores.mce().item() == pytest.approx(gaps.max())
    assert scores.brier().item() == pytest.approx(((p - inside) ** 2).mean())


@pytest.mark.parametrize("y", [-4.0, 0.3, 1.0, 9.0])
def test_crps_is_the_integral_over_the_distribution_function(y: float) -> None:
    mean, sd = 1.0, 1.7
    below = quad(lambda x: norm.cdf(x, mean, sd) ** 2, mean - 40, y, limit=200)[0]
    above = quad(lambda x: norm.sf(x, mean, sd) ** 2, y, mean + 40, limit=200)[0]
    scores = Scores.of(torch.tensor([mean]), torch.tensor([sd**2]).double(), torch.tensor([y]))
    assert scores.crps().item() == pytest.approx(below + above, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    site=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    targets=st.integers(1, 3),
    seed=st.integers(0, 2**16),
)
def test_scores_of_any_split_add_up_to_the_pooled_scores(
    site: list[int], targets: int, seed: int
) -> None:
    mean, variance, y = predictions(len(site), targets, seed)
    total = Scores.zero(targets)
    for one in range(4):
        rows = torch.tensor([s == one for s in site])
        total = total + Scores.of(mean[rows], variance[rows], y[rows])
    pooled = Scores.of(mean, variance, y)
    for name in SUMS:
        torch.testing.assert_close(getattr(total, name), getattr(pooled, name), rtol=1e-12, atol=0)


def test_every_sum_is_float64_with_one_row_per_target() -> None:
    for scores in (Scores.of(*(x.float() for x in predictions(5, 2))), Scores.zero(2)):
        for name in SUMS:
            value = getattr(scores, name)
            assert value.dtype == torch.float64
            assert value.shape == ((2,) if name in SUMS[:4] else (2, 19))


def test_one_target_may_be_a_vector_and_targets_may_share_a_variance() -> None:
    mean, variance, y = predictions(9, 1)
    flat = Scores.of(mean[:, 0], variance[:, 0], y[:, 0])
    torch.testing.assert_close(flat.crps(), Scores.of(mean, variance, y).crps())
    shared = Scores.of(mean.expand(-1, 2), variance[:, 0], y.expand(-1, 2))
    torch.testing.assert_close(shared.crps(), flat.crps().expand(2))


def test_exact_standard_normal_quantiles_are_calibrated() -> None:
    n = 10_000
    y = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)
    scores = Scores.of(torch.zeros(n), torch.ones(n), y)
    np.testing.assert_allclose(scores.calibration_curve()[0], LEVELS, atol=1e-12)
    assert scores.ece().item() == pytest.approx(0, abs=1e-12)
    assert scores.brier().item() == pytest.approx(0.1675)
    assert scores.nll().item() == pytest.approx(0.5 * math.log(2 * math.pi) + 0.5, abs=1e-3)
    assert scores.crps().item() == pytest.approx(1 / math.sqrt(math.pi), abs=1e-3)


def test_drawn_standard_normal_data_is_calibrated_within_its_sampling_error() -> None:
    y = torch.randn(40_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    scores = Scores.of(torch.zeros_like(y), torch.ones_like(y), y)
    assert scores.mce().item() < 5 * 0.5 / math.sqrt(len(y))


def test_an_overconfident_model_reaches_the_ceilings_of_the_protocol() -> None:
    scores = Scores.of(torch.zeros(8), torch.full((8,), 1e-12).double(), torch.ones(8))
    assert scores.ece().item() == pytest.approx(0.50)
    assert scores.mce().item() == pytest.approx(0.95)
    assert scores.brier().item() == pytest.approx(0.3325)


def test_intervals_of_any_distribution_are_counted_with_their_ends_inside() -> None:
    y = torch.tensor([0.0, 1.0, 2.0, 5.0])
    inside, widths, losses = count_intervals(lambda p: (torch.zeros(4), torch.full((4,), 1 + p)), y)
    assert inside.shape == widths.shape == losses.shape == (1, 19)
    assert inside[0].tolist() == [2.0] * 19
    np.testing.assert_allclose(widths[0], [4 * (1 + p) for p in LEVELS], rtol=1e-6)
    expected = [4 * (1 + p) + 2 / (1 - p) * ((1 - p) + (4 - p)) for p in LEVELS]
    np.testing.assert_allclose(losses[0], expected, rtol=1e-5)


def test_holding_out_no_rows_is_neutral() -> None:
    nothing = torch.zeros(0, 2)
    scores = Scores.of(nothing, nothing, nothing)
    for name in SUMS:
        torch.testing.assert_close(getattr(scores, name), getattr(Scores.zero(2), name))


@pytest.mark.parametrize(
    "metric", ["rmse", "nll", "crps", "calibration_curve", "width", "ece", "mce", "brier"]
)
def test_a_mean_over_no_rows_is_a_named_error(metric: str) -> None:
    with pytest.raises(EmptyTable, match="held-out"):
        getattr(Scores.zero(1), metric)()


ONE, NAN, SECRET = torch.ones(3), torch.tensor([1.0, math.nan, 1.0]), torch.tensor([1.0, 1.0, 8.5])


@pytest.mark.parametrize(
    ("mean", "variance", "targets", "error"),
    [
        (ONE, torch.tensor([1.0, 0.0, 1.0]), SECRET, PredictionError),
        (ONE, torch.tensor([1.0, -1.0, 1.0]), SECRET, PredictionError),
        (ONE, NAN, SECRET, NotFinite),
        (NAN, ONE, SECRET, NotFinite),
        (SECRET, ONE, NAN, NotFinite),
        (ONE, ONE, SECRET / 0, NotFinite),
        (1e200 * ONE.double(), ONE, SECRET, NotFinite),
        (ONE[:2], ONE, SECRET, WrongShape),
        (ONE, ONE[:1], SECRET, WrongShape),
        (ONE[:, None].expand(3, 2), ONE, SECRET, WrongShape),
        (ONE[None, None], ONE, SECRET, WrongShape),
    ],
)
def test_impossible_predictions_are_refused_by_name(
    mean: Tensor, variance: Tensor, targets: Tensor, error: type[KernelsError]
) -> None:
    with pytest.raises(error) as raised:
        Scores.of(mean, variance, targets)
    assert "8.5" not in str(raised.value)


def test_impossible_intervals_are_refused_by_name() -> None:
    with pytest.raises(PredictionError, match="lower exceeds upper in 3"):
        count_intervals(lambda p: (ONE, 0 * ONE), ONE)
    with pytest.raises(WrongShape):
        count_intervals(lambda p: (ONE[:2], ONE[:2]), ONE)
    with pytest.raises(NotFinite):
        count_intervals(lambda p: (ONE, ONE / 0), ONE)


def test_scores_of_different_targets_do_not_add() -> None:
    with pytest.raises(WrongShape, match="of 1 and of 2 targets"):
        Scores.zero(1) + Scores.zero(2)
