"""Yes/no outcomes: scores from histograms are those of the rows, and recalibration repairs."""

import math

import pytest
import torch
from torch import Tensor

from kernels.errors import EmptyTable, StateError
from kernels.outcomes import binary as likelihood
from kernels.outcomes.scored.binary import Predicted, Quality, Sums
from kernels.outcomes.scored.logit_map import LogitMap
from kernels.outcomes.scored.recalibration.binary import Calibration, Held
from kernels.scores.metrics import LEVELS
from kernels.tables.targets import Binary
from tests.kernels.outcomes.scored import promises

TARGET = Binary("died", ("no", "yes"), "yes")


def rows(
    n: int, *, seed: int = 0, spread: float = 1.5, shift: float = -1.0
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = shift + spread * torch.randn(n, generator=generator, dtype=torch.float64)
    drawn = torch.rand(n, generator=generator, dtype=torch.float64) < torch.sigmoid(logits)
    return drawn.double().unsqueeze(1), logits


def quality(outcomes: Tensor, logits: Tensor) -> Quality:
    return Sums.of(TARGET, outcomes, Predicted(logits)).quality(TARGET)


def pairs_in_order(y: Tensor, scores: Tensor) -> float:
    events, others = scores[y == 1], scores[y == 0]
    gaps = events[:, None] - others[None]
    return float((gaps > 0).double().mean() + (gaps == 0).double().mean() / 2)


@pytest.mark.parametrize(("spread", "error"), [(0.05, 5e-3), (0.3, 1e-3), (1.5, 1e-3), (4, 1e-3)])
def test_auc_is_that_of_all_pairs_of_rows(spread: float, error: float) -> None:
    y, logits = rows(700, spread=spread)
    found = quality(y, logits)
    assert found.auc == pytest.approx(pairs_in_order(y[:, 0], logits), abs=error)


def test_losses_and_confusion_are_those_of_the_rows() -> None:
    y, logits = rows(400)
    found, p, own = quality(y, logits), torch.sigmoid(logits), y[:, 0] == 1
    assert (found.rows, found.events) == (400, float(y.sum()))
    assert found.log_loss == pytest.approx(-float(torch.where(own, p, 1 - p).log().mean()))
    assert found.brier == pytest.approx(float((p - y[:, 0]).square().mean()))
    called = p >= 0.5
    counted = [(~called & ~own), (called & ~own), (~called & own), (called & own)]
    assert found.confusion == tuple(float(each.sum()) for each in counted)


def test_the_curve_has_groups_of_equal_mass_and_its_ece_is_that_of_sorted_rows() -> None:
    y, logits = rows(2000)
    p, order = torch.sigmoid(logits * 2), logits.argsort()
    found = quality(y, logits * 2)
    tenths = [(p[part], y[part, 0]) for part in order.chunk(10)]
    exact = sum(abs(float(a.mean() - b.mean())) for a, b in tenths) / 10
    assert exact > 0.05
    assert found.ece == pytest.approx(exact, abs=3e-3)
    assert len(found.curve.rows) == 10
    assert all(180 < n < 220 for n in found.curve.rows)
    for (a, b), said, seen in zip(tenths, found.curve.predicted, found.curve.observed, strict=True):
        assert said == pytest.approx(float(a.mean()), abs=0.02)
        assert seen == pytest.approx(float(b.mean()), abs=0.05)


def test_the_roc_curve_rises_and_has_the_area_of_auc() -> None:
    found = quality(*rows(900))
    false, true = (torch.tensor(own, dtype=torch.float64) for own in found.roc)
    assert len(false) <= 52
    assert bool((false.diff() >= 0).all() and (true.diff() >= 0).all())
    assert (float(false[0]), float(true[-1])) == (0.0, 1.0)
    assert float(torch.trapezoid(true, false)) == pytest.approx(found.auc, abs=3e-3)


def test_log_odds_are_those_of_the_served_probability_also_of_rare_events() -> None:
    mean = torch.tensor([-60.0, -1.0, 0.0, 2.0, 60.0], dtype=torch.float64)
    variance = torch.tensor([1.0, 4.0, 0.0, 9.0, 2.0], dtype=torch.float64)
    found = Predicted.of(mean, variance, offset=-0.5)
    served = likelihood.predict(mean, variance, offset=-0.5).mean
    assert torch.allclose(found.chances, served, rtol=1e-12)
    assert float(found.logits[4]) == pytest.approx(59.5 - 1.0, abs=0.01)


def test_sums_are_additive_bounded_and_stored() -> None:
    y, logits = rows(60, spread=8.0)
    predicted = Predicted(logits * 20)
    promises.assert_sums_of_parts_are_those_of_the_whole(TARGET, y, predicted)
    promises.assert_a_row_is_within_its_bounds(TARGET, y, predicted)
    held = Held.of(TARGET, y, predicted, torch.arange(60) % 2)
    promises.assert_stored(Sums.of(TARGET, y, predicted), held, Calibration.of(TARGET, held))


def test_outcomes_that_are_alike_or_separated_have_finite_scores() -> None:
    logits = torch.linspace(-700, 700, 40, dtype=torch.float64)
    for y in (torch.zeros(40, 1), torch.ones(40, 1), (logits > 0).double().unsqueeze(1)):
        found = quality(y.double(), logits)
        assert all(map(math.isfinite, (found.log_loss, found.brier, found.ece)))
        assert found.auc in (None, 1.0)
        held = Held.of(TARGET, y.double(), Predicted(logits), torch.arange(40) % 2)
        mapped = Calibration.of(TARGET, held).apply(Predicted(logits))
        assert bool(mapped.logits.isfinite().all())
        assert bool((mapped.logits.diff() > 0).all())


def test_no_rows_have_no_scores_and_change_no_prediction() -> None:
    with pytest.raises(EmptyTable):
        Sums.zero(TARGET).quality(TARGET)
    logits = torch.tensor([-3.0, 0.5], dtype=torch.float64)
    none = Calibration.of(TARGET, Held.zero(TARGET))
    assert torch.equal(none.apply(Predicted(logits)).logits, logits)
    assert none.limit(0.5) == math.inf


def held(y: Tensor, logits: Tensor) -> Held:
    return Held.of(TARGET, y, Predicted(logits), torch.arange(len(y)) % 2)


def test_two_numbers_are_the_optimum_of_the_penalised_likelihood() -> None:
    y, logits = rows(300)
    found = Calibration.of(TARGET, held(y, logits * 2 + 1)).mapped
    at = torch.tensor([found.slope, found.intercept], dtype=torch.float64, requires_grad=True)
    mapped = at[0] * (logits * 2 + 1) + at[1]
    fit = torch.nn.functional.logsigmoid((2 * y[:, 0] - 1) * mapped).sum()
    value = fit - 8 * (at[0] - 1).square() - 8 * at[1].square()
    slope = torch.autograd.grad(value, at)[0]
    bend = torch.autograd.functional.hessian(
        lambda a: (
            torch.nn.functional.logsigmoid(
                (2 * y[:, 0] - 1) * (a[0] * (logits * 2 + 1) + a[1])
            ).sum()
            - 8 * (a[0] - 1).square()
            - 8 * a[1].square()
        ),
        at.detach(),
    )
    assert float(torch.linalg.solve(bend, slope).abs().max()) < 0.01
    assert found.knots is None
    assert found.slope == pytest.approx(0.5, abs=0.1)


def test_few_rows_do_no_harm_and_many_move_the_prediction_as_far_as_they_should() -> None:
    new, new_logits = rows(2000, seed=99)

    def loss(slope: float, *, n: int, seeds: int) -> float:
        """The mean log loss of new rows after recalibration of log odds that are too large."""
        said, found = Predicted(new_logits * slope), 0.0
        for seed in range(seeds):
            y, logits = rows(n, seed=seed)
            after = Calibration.of(TARGET, held(y, logits * slope)).apply(said)
            found += Sums.of(TARGET, new, after).quality(TARGET).log_loss / seeds
        return found

    best = quality(new, new_logits).log_loss
    wrong = quality(new, new_logits * 3).log_loss
    assert loss(1.0, n=5, seeds=12) < best + 0.02
    assert loss(3.0, n=20, seeds=12) < (best + wrong) / 2
    assert loss(3.0, n=1000, seeds=1) < best + 0.005


def test_a_reversed_model_is_flattened_and_never_turned_around() -> None:
    y, logits = rows(500)
    found = Calibration.of(TARGET, held(y, -logits)).mapped
    assert found.slope == 1 / 16
    assert float(found(torch.zeros(1, dtype=torch.float64))) == pytest.approx(
        math.log(float(y.mean() / (1 - y.mean()))), abs=0.2
    )


def test_knots_are_used_where_two_numbers_do_not_suffice_and_only_there() -> None:
    y, logits = rows(8000, spread=2.0)
    bent = torch.where(logits < -1, -1 + (logits + 1) / 8, logits)
    found = Calibration.of(TARGET, held(y, bent))
    assert found.mapped.knots is not None
    promises.assert_stored(found)
    assert Calibration.of(TARGET, held(y, logits * 2)).mapped.knots is None
    after = found.apply(Predicted(bent))
    better, worse = (
        Sums.of(TARGET, y, own).quality(TARGET) for own in (after, Predicted(LogitMap()(bent)))
    )
    assert better.log_loss < worse.log_loss - 0.02
    assert better.ece < worse.ece / 2
    assert better.auc == pytest.approx(worse.auc, abs=2e-3)
    order = bent.sort().values.unique()
    assert bool((found.apply(Predicted(order)).logits.diff() > 0).all())


def test_each_fold_is_judged_by_the_other() -> None:
    y, logits = rows(600)
    whole = Calibration.of(TARGET, held(y, logits))
    other = Calibration.of(
        TARGET, Held.of(TARGET, y[1::2], Predicted(logits[1::2]), torch.ones(300))
    )
    assert whole.without(0).mapped.slope == other.mapped.slope
    assert whole.without(0).mapped.slope != whole.mapped.slope


def test_conformal_sets_have_their_coverage_on_new_rows_of_a_wrong_model() -> None:
    y, logits = rows(3000, seed=1)
    found = Calibration.of(TARGET, held(y, logits * 3 + 1))
    new, new_logits = rows(4000, seed=9)
    said = Predicted(new_logits * 3 + 1)
    seen = found.covered(TARGET, new, said).coverage()
    assert all(
        level - 0.03 < share < level + 0.04
        for level, share in zip(LEVELS, seen.inside, strict=True)
    )
    at = LEVELS.index(0.8)
    sets = found.sets(said, 0.8)
    assert seen.sizes is not None
    assert float(sets.double().sum(1).mean()) == pytest.approx(seen.sizes[at])
    assert float(sets.gather(1, new.long()).double().mean()) == pytest.approx(seen.inside[at])


def test_noisy_sums_are_valid_and_near_those_without_noise() -> None:
    y, logits = rows(4000)
    predicted = Predicted(logits * 2)
    exact = Sums.of(TARGET, y, predicted).quality(TARGET)
    totals = promises.noisy(Sums.few_blocks(TARGET), Sums.few(TARGET, y, predicted), deviation=8.0)
    sums = Sums.from_noisy(TARGET, totals)
    sums.check(TARGET)
    found = sums.quality(TARGET)
    assert found.auc == pytest.approx(exact.auc, abs=0.03)
    assert found.log_loss == pytest.approx(exact.log_loss, abs=0.06)
    assert found.brier == pytest.approx(exact.brier, abs=0.02)
    assert found.ece == pytest.approx(exact.ece, abs=0.03)
    noise = promises.noisy(Held.few_blocks(TARGET), Held.few(TARGET, y, predicted), deviation=8.0)
    calibration = Calibration.from_noisy(TARGET, noise, {"scores": 8.0})
    calibration.check(TARGET)
    assert calibration.mapped.slope == pytest.approx(0.5, abs=0.15)
    hopeless = Calibration.from_noisy(TARGET, noise, {"scores": 1e4}).mapped
    assert (hopeless.slope, hopeless.intercept) == pytest.approx((1.0, 0.0), abs=0.05)
    few = promises.noisy(
        [*calibration.covered(TARGET, y, predicted).few_blocks(TARGET)],
        calibration.few_covered(TARGET, y, predicted),
        deviation=8.0,
    )
    shares = type(calibration.covered(TARGET, y, predicted)).from_noisy(few).coverage()
    assert shares.inside[9] == pytest.approx(0.5, abs=0.1)
    assert shares.sizes is None


def test_wrong_maps_are_refused() -> None:
    with pytest.raises(StateError, match="slope"):
        LogitMap(0.0)
    with pytest.raises(StateError, match="rise"):
        LogitMap(1.0, 0.0, torch.zeros(2, 3, dtype=torch.float64))
