"""Counts: scores are those of the rows, the law's transforms are exact, and intervals cover."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import nbinom
from torch import Tensor

from kernels.errors import EmptyTable, StateError
from kernels.outcomes import count as likelihood
from kernels.outcomes.scored.conformal import Covered
from kernels.outcomes.scored.count import Sums
from kernels.outcomes.scored.count_law import Predicted, oddness
from kernels.outcomes.scored.recalibration.count import Calibration, Held
from kernels.scores.metrics import LEVELS
from kernels.tables.targets import Count
from tests.kernels.outcomes.scored import promises

TARGET = Count("visits", "visits", 100.0)


def rows(
    n: int, *, seed: int = 0, factor: float = 1.0, dispersion: float = 2.0, said: float = 2.0
) -> tuple[Tensor, Predicted]:
    """Counts with `factor` times the predicted mean and a dispersion other than the one `said`."""
    generator = np.random.default_rng(seed)
    logs, variance = generator.normal(1.0, 0.8, n), generator.uniform(0.0, 0.3, n)
    rate = factor * np.exp(logs + np.sqrt(variance) * generator.normal(size=n))
    y = nbinom.rvs(dispersion, dispersion / (dispersion + rate), random_state=generator)
    outcomes = torch.tensor(np.stack([np.minimum(y, 100), np.ones(n)], 1), dtype=torch.float64)
    return outcomes, Predicted(torch.from_numpy(logs), torch.from_numpy(variance), said)


def held(y: Tensor, predicted: Predicted) -> Held:
    return Held.of(TARGET, y, predicted, torch.arange(len(y)) % 2)


def test_the_distribution_function_is_the_sum_of_densities() -> None:
    predicted = rows(5)[1]
    total = torch.zeros(5, dtype=torch.float64)
    for y in range(40):
        counts = torch.full((5,), float(y), dtype=torch.float64)
        lower, upper = predicted.around(counts)
        assert torch.allclose(lower, total, atol=1e-7)
        total = total + predicted.log_density(counts).exp()
        assert torch.allclose(upper, total, atol=1e-7)


def test_without_variance_it_is_scipys_also_where_it_is_sharp() -> None:
    logs = torch.tensor([0.1, 6.0, 9.0], dtype=torch.float64)
    y = torch.tensor([0.0, 380.0, 8000.0], dtype=torch.float64)
    predicted = Predicted(logs, torch.zeros(3, dtype=torch.float64), 50.0)
    p = 50.0 / (50.0 + logs.exp().numpy())
    assert predicted.below(y).numpy() == pytest.approx(nbinom.cdf(y.numpy(), 50.0, p), abs=1e-9)
    wide = Predicted(logs, torch.full((3,), 0.5, dtype=torch.float64), 4096.0)
    nodes = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    weights = (-nodes.square() / 2).exp()
    rates = (logs[:, None] + 0.5**0.5 * nodes).exp().numpy()
    dense = nbinom.cdf(y[:, None].numpy(), 4096.0, 4096.0 / (4096.0 + rates))
    expected = dense @ (weights / weights.sum()).numpy()
    assert wide.below(y).numpy() == pytest.approx(expected, abs=1e-6)


def test_quantiles_are_the_least_counts_that_reach_a_level() -> None:
    predicted = rows(20)[1]
    for level in (0.01, 0.5, 0.99):
        found = predicted.quantile(level)
        assert bool((predicted.below(found) >= level).all())
        before = torch.where(found > 0, predicted.below((found - 1).clamp_min(0)), 0.0)
        assert bool((before < level).all())


def test_scores_are_those_of_the_rows() -> None:
    y, predicted = rows(400)
    found = Sums.of(TARGET, y, predicted).quality(TARGET)
    own, mu = y[:, 0], predicted.means()
    assert (found.rows, found.mean) == (400, pytest.approx(float(own.mean())))
    assert found.expected == pytest.approx(float(mu.mean()))
    assert found.rmse == pytest.approx(float((own - mu).square().mean().sqrt()))
    assert found.deviance == pytest.approx(float(likelihood.deviance(own, mu).mean()))
    assert found.log_loss == pytest.approx(-float(predicted.log_density(own).mean()))
    groups = zip(mu.argsort().chunk(10), found.curve.predicted, strict=True)
    for part, said in groups:
        assert said == pytest.approx(float(mu[part].mean()), rel=0.15)
    lower, upper = predicted.around(own)
    for level, share in zip(LEVELS, found.inside, strict=True):
        below, above = (1 - level) / 2, (1 + level) / 2
        width = upper - lower
        parts = (torch.minimum(upper, torch.tensor(above)) - lower.clamp_min(below)) / width
        assert share == pytest.approx(float(parts.clamp_min(0.0).mean()))


def test_transforms_are_flat_if_the_law_is_right_and_not_otherwise() -> None:
    right = Sums.of(TARGET, *rows(3000)).quality(TARGET)
    assert max(abs(share - 0.025) for share in right.transforms) < 0.01
    assert right.error < 0.4
    narrow = Sums.of(TARGET, *rows(3000, said=100.0)).quality(TARGET)
    assert max(abs(share - 0.025) for share in narrow.transforms) > 0.03
    assert narrow.inside[17] < 0.85


def test_sums_are_additive_bounded_and_stored() -> None:
    y, predicted = rows(14)
    wild = Predicted(predicted.logs * 30, predicted.variance, 2.0)
    promises.assert_sums_of_parts_are_those_of_the_whole(TARGET, y, wild)
    promises.assert_a_row_is_within_its_bounds(TARGET, y, wild)
    own = held(y, predicted)
    calibration = Calibration.of(TARGET, own, dispersion=2.0)
    promises.assert_stored(Sums.of(TARGET, y, predicted), own, calibration)


def test_counts_that_are_alike_and_absurd_predictions_have_finite_scores() -> None:
    logs = torch.tensor([-400.0, 0.0, 400.0], dtype=torch.float64)
    for value in (0.0, 100.0):
        y = torch.tensor([[value, 1.0]] * 3, dtype=torch.float64)
        predicted = Predicted(logs, torch.ones(3, dtype=torch.float64), 3.0)
        found = Sums.of(TARGET, y, predicted).quality(TARGET)
        numbers = (found.deviance, found.log_loss, found.rmse, found.error, *found.transforms)
        assert all(map(math.isfinite, numbers))
        assert sum(found.transforms) == pytest.approx(1.0)
        calibration = Calibration.of(TARGET, held(y, predicted), dispersion=3.0)
        assert bool(calibration.apply(predicted).logs.isfinite().all())


def test_no_rows_have_no_scores_and_change_no_prediction() -> None:
    with pytest.raises(EmptyTable):
        Sums.zero(TARGET).quality(TARGET)
    none = Calibration.of(TARGET, Held.zero(TARGET), dispersion=2.7)
    assert (none.factor, none.dispersion) == (1.0, 2.7)
    assert none.interval(rows(2)[1], 0.5)[1].tolist() == [math.inf, math.inf]


def test_factor_and_dispersion_are_repaired_and_few_rows_leave_them() -> None:
    y, predicted = rows(1200, factor=1.5, dispersion=1.0, said=8.0)
    found = Calibration.of(TARGET, held(y, predicted), dispersion=8.0)
    assert found.factor == pytest.approx(1.5, rel=0.12)
    assert found.dispersion == pytest.approx(1.0, rel=0.3)
    before, after = (
        Sums.of(TARGET, y, own).quality(TARGET) for own in (predicted, found.apply(predicted))
    )
    assert after.log_loss < before.log_loss - 0.1
    few_y, few = rows(4, seed=3)
    little = Calibration.of(TARGET, held(few_y, few), dispersion=2.0)
    assert 0.6 < little.factor < 1.6
    assert 0.8 < little.dispersion < 5.0
    other = Held.of(TARGET, y[1::2], predicted[torch.arange(1, 1200, 2)], torch.ones(600))
    alone = Calibration.of(TARGET, other, dispersion=8.0)
    assert found.without(0).factor == alone.factor
    assert found.without(0).dispersion == alone.dispersion


def test_conformal_intervals_cover_new_rows_of_a_wrong_model() -> None:
    found = Calibration.of(TARGET, held(*rows(1500, said=50.0)), dispersion=50.0)
    y, predicted = rows(1500, seed=8, said=50.0)
    seen = found.covered(TARGET, y, predicted).coverage()
    assert seen.sizes is None
    for level, share in zip(LEVELS, seen.inside, strict=True):
        assert share > level - 0.04
    part = torch.arange(30)
    lower, upper = found.interval(predicted[part], 0.9)
    inside = (lower <= y[part, 0]) & (y[part, 0] <= upper)
    odd = oddness(predicted[part].around(y[part, 0]))
    assert torch.equal(inside, odd <= found.limit(0.9))


def test_noisy_sums_are_valid_and_near_those_without_noise() -> None:
    y, predicted = rows(2500, dispersion=1.0, said=8.0)
    exact = Sums.of(TARGET, y, predicted).quality(TARGET)
    few = Sums.few(TARGET, y, predicted)
    sums = Sums.from_noisy(TARGET, promises.noisy(Sums.few_blocks(TARGET), few, deviation=4.0))
    sums.check(TARGET)
    found = sums.quality(TARGET)
    assert found.rows == pytest.approx(2500, abs=100)
    assert found.log_loss == pytest.approx(exact.log_loss, abs=0.1)
    assert found.deviance == pytest.approx(exact.deviance, rel=0.25)
    for own, other in zip(found.inside, exact.inside, strict=True):
        assert own == pytest.approx(other, abs=0.03)
    blocks = Held.few_blocks(TARGET)
    totals = promises.noisy(blocks, Held.few(TARGET, y, predicted), deviation=4.0)
    noise = {block.name: 4.0 * (block.sensitivity or 0.0) for block in blocks}
    calibration = Calibration.from_noisy(TARGET, totals, noise, dispersion=8.0)
    calibration.check(TARGET)
    assert calibration.factor == pytest.approx(1.0, abs=0.15)
    assert 0.5 < calibration.dispersion < 4.0
    loud = dict.fromkeys(noise, 1e6)
    kept = Calibration.from_noisy(TARGET, totals, loud, dispersion=8.0)
    assert (kept.factor, kept.dispersion) == (pytest.approx(1.0, abs=0.02), 8.0)
    least = promises.noisy(
        Covered.few_blocks(TARGET), calibration.few_covered(TARGET, y, predicted), deviation=4.0
    )
    assert Covered.from_noisy(least).coverage().inside[17] == pytest.approx(0.9, abs=0.06)


def test_a_wrong_factor_is_refused() -> None:
    with pytest.raises(StateError, match="factor"):
        Calibration(Held.zero(TARGET), 0.0, 1.0, 1.0)
