"""Classes: scores from histograms are those of the rows, and a temperature repairs."""

import math

import pytest
import torch
from torch import Tensor

from kernels.errors import EmptyTable, StateError
from kernels.outcomes import classes as likelihood
from kernels.outcomes.scored.classes import Predicted, Sums
from kernels.outcomes.scored.conformal import Covered
from kernels.outcomes.scored.recalibration.classes import Calibration, Held
from kernels.scores.metrics import LEVELS
from kernels.tables.targets import Classes
from tests.kernels.outcomes.scored import promises

TARGET = Classes("ward", ("a", "b", "c", "d"))


def rows(n: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, 4, generator=generator, dtype=torch.float64)
    logits[:, 0] += 1.0
    drawn = torch.multinomial(logits.softmax(1), 1, generator=generator)
    return drawn.double(), logits.log_softmax(1)


def held(y: Tensor, logs: Tensor) -> Held:
    return Held.of(TARGET, y, Predicted(logs), torch.arange(len(y)) % 2)


def test_scores_are_those_of_the_rows() -> None:
    y, logs = rows(500)
    found = Sums.of(TARGET, y, Predicted(logs)).quality(TARGET)
    p, own = logs.exp(), y[:, 0].long()
    hot = torch.eye(4, dtype=torch.float64)[own]
    assert found.rows == 500
    assert found.log_loss == pytest.approx(-float(logs.gather(1, y.long()).mean()))
    assert found.brier == pytest.approx(float((p - hot).square().sum(1).mean()))
    assert found.accuracy == pytest.approx(float((p.argmax(1) == own).double().mean()))
    for true in range(4):
        for called in range(4):
            counted = float(((own == true) & (p.argmax(1) == called)).sum())
            assert found.confusion[true][called] == counted
    areas = []
    for level in range(4):
        gaps = p[own == level, level][:, None] - p[own != level, level][None]
        areas.append(float((gaps > 0).double().mean()))
    assert found.auc == pytest.approx(sum(areas) / 4, abs=1e-3)


def test_ece_of_the_greatest_probability_is_that_of_sorted_rows() -> None:
    y, logs = rows(2000)
    sharp = Predicted((2 * logs).log_softmax(1))
    found = Sums.of(TARGET, y, sharp).quality(TARGET)
    top, called = sharp.chances.max(1)
    right = (called == y[:, 0]).double()
    tenths = [(top[part], right[part]) for part in top.argsort().chunk(10)]
    exact = sum(abs(float(a.mean() - b.mean())) for a, b in tenths) / 10
    assert exact > 0.05
    assert found.ece == pytest.approx(exact, abs=3e-3)


def test_log_probabilities_are_those_that_are_served() -> None:
    mean = torch.tensor([[0.0, 1.0, -900.0, 0.3]], dtype=torch.float64)
    variance = torch.full_like(mean, 0.7)
    found = Predicted.of(mean, variance, offsets=(0.1, 0.2, 0.3, -0.6))
    served = likelihood.predict(mean, variance, offsets=(0.1, 0.2, 0.3, -0.6)).mean
    assert torch.allclose(found.chances, served, atol=1e-12)
    assert bool(found.logs.isfinite().all() and found.odds.isfinite().all())
    assert torch.allclose(found.odds[0, [0, 1, 3]], torch.logit(served[0, [0, 1, 3]]))


def test_sums_are_additive_bounded_and_stored() -> None:
    y, logs = rows(60)
    predicted = Predicted((30 * logs).log_softmax(1))
    promises.assert_sums_of_parts_are_those_of_the_whole(TARGET, y, predicted)
    promises.assert_a_row_is_within_its_bounds(TARGET, y, predicted)
    own = held(y, predicted.logs)
    promises.assert_stored(Sums.of(TARGET, y, predicted), own, Calibration.of(TARGET, own))


def test_one_class_alone_and_certain_predictions_have_finite_scores() -> None:
    sure = torch.tensor([[0.0, -800.0, -800.0, -800.0]], dtype=torch.float64).expand(30, 4)
    for level in (0.0, 2.0):
        y = torch.full((30, 1), level, dtype=torch.float64)
        found = Sums.of(TARGET, y, Predicted(sure)).quality(TARGET)
        assert found.auc is None
        assert all(map(math.isfinite, (found.log_loss, found.brier, found.ece)))
        after = Calibration.of(TARGET, held(y, sure)).apply(Predicted(sure))
        assert bool(after.logs.isfinite().all())


def test_no_rows_have_no_scores_and_change_no_prediction() -> None:
    with pytest.raises(EmptyTable):
        Sums.zero(TARGET).quality(TARGET)
    none, logs = Calibration.of(TARGET, Held.zero(TARGET)), rows(3)[1]
    assert torch.allclose(none.apply(Predicted(logs)).logs, logs)
    assert bool(none.sets(Predicted(logs), 0.5).all())


@pytest.mark.parametrize("sharper", [0.4, 1.0, 3.0])
def test_the_temperature_is_the_likeliest_and_few_rows_leave_it_near_one(sharper: float) -> None:
    y, logs = rows(3000)
    wrong = (sharper * logs).log_softmax(1)
    found = Calibration.of(TARGET, held(y, wrong)).exponent
    assert found == pytest.approx(1 / sharper, rel=0.08)
    few = Calibration.of(TARGET, held(y[:6], logs[:6])).exponent
    assert 0.6 < few < 1.7


def test_each_fold_is_judged_by_the_other() -> None:
    y, logs = rows(400)
    whole = Calibration.of(TARGET, held(y, logs))
    other = Held.of(TARGET, y[1::2], Predicted(logs[1::2]), torch.ones(200))
    assert whole.without(0).exponent == Calibration.of(TARGET, other).exponent
    assert whole.without(0).exponent != whole.exponent


def test_conformal_sets_have_their_coverage_on_new_rows_of_a_wrong_model() -> None:
    y, logs = rows(3000, seed=1)
    found = Calibration.of(TARGET, held(y, (3 * logs).log_softmax(1)))
    new, new_logs = rows(4000, seed=9)
    said = Predicted((3 * new_logs).log_softmax(1))
    seen = found.covered(TARGET, new, said).coverage()
    for level, share in zip(LEVELS, seen.inside, strict=True):
        assert level - 0.03 < share < level + 0.04
    sets, at = found.sets(said, 0.8), LEVELS.index(0.8)
    assert seen.sizes is not None
    assert float(sets.double().sum(1).mean()) == pytest.approx(seen.sizes[at])
    assert float(sets.gather(1, new.long()).double().mean()) == pytest.approx(seen.inside[at])


def test_noisy_sums_are_valid_and_near_those_without_noise() -> None:
    y, logs = rows(5000)
    predicted = Predicted((2 * logs).log_softmax(1))
    exact = Sums.of(TARGET, y, predicted).quality(TARGET)
    few = Sums.few(TARGET, y, predicted)
    sums = Sums.from_noisy(TARGET, promises.noisy(Sums.few_blocks(TARGET), few, deviation=8.0))
    sums.check(TARGET)
    found = sums.quality(TARGET)
    assert found.auc is None
    assert found.accuracy == pytest.approx(exact.accuracy, abs=0.03)
    assert found.log_loss == pytest.approx(exact.log_loss, abs=0.05)
    assert found.brier == pytest.approx(exact.brier, abs=0.02)
    assert found.ece == pytest.approx(exact.ece, abs=0.04)
    blocks = Held.few_blocks(TARGET)
    totals = promises.noisy(blocks, Held.few(TARGET, y, predicted), deviation=8.0)
    noise = {block.name: 8.0 * (block.sensitivity or 0.0) for block in blocks}
    calibration = Calibration.from_noisy(TARGET, totals, noise)
    calibration.check(TARGET)
    assert calibration.exponent == pytest.approx(0.5, abs=0.12)
    assert Calibration.from_noisy(TARGET, totals, {"gains": 1e5, "odds": 1e5}).exponent == 1.0
    least = promises.noisy(
        Covered.few_blocks(TARGET), calibration.few_covered(TARGET, y, predicted), deviation=8.0
    )
    assert Covered.from_noisy(least).coverage().inside[9] == pytest.approx(0.5, abs=0.1)


def test_a_wrong_exponent_is_refused() -> None:
    with pytest.raises(StateError, match="exponent"):
        Calibration(Held.zero(TARGET), 0.0)
