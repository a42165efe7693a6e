"""Times to an event: scores from one table are those of the patients, one by one."""

import math

import pytest
import torch
from torch import Tensor

from kernels.errors import EmptyTable
from kernels.outcomes.scored.recalibration.time_to_event import Calibration, Held
from kernels.outcomes.scored.time_to_event import Predicted, Quality, Sums
from kernels.outcomes.time_to_event import log_density
from kernels.tables.targets import TimeToEvent
from tests.kernels.outcomes.scored import promises

EDGES = (1.0, 2.0, 3.5, 5.0, 6.0)
J = len(EDGES)
TARGET = TimeToEvent("days", "d", "died", EDGES, 5.0)
Patients = tuple[Tensor, Tensor, Tensor]


def patients(n: int, *, seed: int = 0, censored: float = 0.12, shift: float = -1.8) -> Patients:
    """Outcomes (n, 2), true survival (n, J) and the true log odds of hazards (n, J)."""
    generator = torch.Generator().manual_seed(seed)
    score = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    logits = shift + score + torch.linspace(-0.3, 0.3, J, dtype=torch.float64)
    drawn = torch.rand(n, J, generator=generator, dtype=torch.float64)
    event = torch.sigmoid(logits) > drawn
    lost = torch.rand(n, J, generator=generator, dtype=torch.float64) < censored
    within = torch.rand(n, generator=generator, dtype=torch.float64)
    knots = (0.0, *EDGES)
    times, happened = torch.full((n,), 7.0, dtype=torch.float64), torch.zeros(n)
    for i in range(n):
        for j in range(J):
            inside = knots[j] + float(within[i]) * (knots[j + 1] - knots[j])
            if bool(lost[i, j]):
                times[i] = inside
                break
            if bool(event[i, j]):
                times[i], happened[i] = inside, 1.0
                break
    survival = torch.nn.functional.logsigmoid(-logits).cumsum(1).exp()
    return torch.stack([times, happened.double()], 1), survival, logits


def quality(outcomes: Tensor, survival: Tensor) -> Quality:
    return Sums.of(TARGET, outcomes, Predicted(survival)).quality(TARGET)


def known_at(outcomes: Tensor, edge: float) -> tuple[Tensor, Tensor]:
    """Who had the event by an edge, and who is known to be without it there."""
    times, happened = outcomes[:, 0], outcomes[:, 1] == 1
    return happened & (times <= edge), (times > edge) | (~happened & (times == edge))


def test_concordance_is_that_of_all_pairs_of_patients() -> None:
    y, survival, _ = patients(350)
    knots, risk = (0.0, *EDGES), 1 - survival[:, 3]
    right = pairs = 0.0
    for before, edge in zip(knots, EDGES, strict=False):
        first = known_at(y, edge)[0] & (y[:, 0] > before)
        later = known_at(y, edge)[1]
        gaps = risk[first][:, None] - risk[later][None]
        right += float((gaps > 0).sum()) + float((gaps == 0).sum()) / 2
        pairs += gaps.numel()
    assert quality(y, survival).concordance == pytest.approx(right / pairs, abs=1e-3)


def test_the_brier_score_is_that_of_weighted_patients() -> None:
    y, survival, _ = patients(300)
    found, knots, n = quality(y, survival), (0.0, *EDGES), 300
    times, happened = y[:, 0], y[:, 1] == 1
    # Kaplan–Meier of censoring: who is censored in an interval was observed up to its beginning.
    observed, left = [], 1.0
    for before, edge in zip(knots, EDGES, strict=False):
        reached = int((times > before).sum())
        lost = int((~happened & (times > before) & (times < edge)).sum())
        left *= 1 - lost / reached
        observed.append(left)
    assert found.observed == pytest.approx(observed)
    for t, edge in enumerate(EDGES):
        total = 0.0
        for i in range(n):
            s = float(survival[i, t])
            if happened[i] and times[i] <= edge:
                interval = sum(float(times[i]) > end for end in EDGES)
                total += s**2 / observed[interval]
            elif times[i] > edge:
                total += (1 - s) ** 2 / observed[t]
        assert found.brier[t] == pytest.approx(total / n)
    areas = sum(
        (b0 + b1) / 2 * (e1 - e0)
        for b0, b1, e0, e1 in zip((0.0, *found.brier), found.brier, knots, EDGES, strict=False)
    )
    assert found.integrated_brier == pytest.approx(areas / EDGES[-1])


def test_without_censoring_the_brier_score_is_the_mean_square() -> None:
    y, survival, _ = patients(200, censored=0.0)
    found = quality(y, survival)
    assert found.observed == (1.0,) * J
    for t, edge in enumerate(EDGES):
        alive = (y[:, 0] > edge).double()
        assert found.brier[t] == pytest.approx(float((survival[:, t] - alive).square().mean()))


def test_log_loss_and_counts_are_those_of_the_patients() -> None:
    y, survival, _ = patients(250)
    found = quality(y, survival)
    losses = -log_density(survival, y[:, 0], y[:, 1], torch.tensor(EDGES))
    entered = (y[:, 0] >= EDGES[0]) | (y[:, 1] == 1)
    assert found.log_loss == pytest.approx(float(losses[entered].mean()))
    assert found.rows == 250
    assert found.events == float(((y[:, 1] == 1) & (y[:, 0] <= EDGES[-1])).sum())


def test_the_curve_is_kaplan_meier_within_groups_of_equal_mass() -> None:
    y, survival, _ = patients(2000)
    found, risk = quality(y, survival), 1 - survival[:, 3]
    assert found.ece < 0.04
    groups = risk.argsort().chunk(10)
    for part, said, seen in zip(groups, found.curve.predicted, found.curve.observed, strict=True):
        assert said == pytest.approx(float(risk[part].mean()), abs=0.02)
        left = 1.0
        for before, edge in zip((0.0, *EDGES[:3]), EDGES[:4], strict=True):
            own = y[part]
            events = int(((own[:, 1] == 1) & (own[:, 0] > before) & (own[:, 0] <= edge)).sum())
            left *= 1 - events / (events + int(known_at(own, edge)[1].sum()))
        assert seen == pytest.approx(1 - left, abs=0.05)
    wrong = quality(y, survival**3)
    assert wrong.ece > 0.15


def test_sums_are_additive_bounded_and_stored() -> None:
    y, survival, _ = patients(60)
    predicted = Predicted(survival**8)
    promises.assert_sums_of_parts_are_those_of_the_whole(TARGET, y, predicted)
    promises.assert_a_row_is_within_its_bounds(TARGET, y, predicted)
    held = Held.of(TARGET, y, predicted, torch.arange(60) % 2)
    promises.assert_stored(Sums.of(TARGET, y, predicted), held, Calibration.of(TARGET, held))


def test_ends_that_are_alike_and_certain_predictions_have_finite_scores() -> None:
    sure = torch.tensor([[1.0] * J, [0.0] * J, [1.0, 1.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    for time, event in ((0.0, 0.0), (0.5, 1.0), (0.5, 0.0), (9.0, 0.0), (9.0, 1.0), (5.0, 0.0)):
        y = torch.tensor([[time, event]] * 3, dtype=torch.float64)
        found = quality(y, sure)
        assert found.concordance is None
        numbers = (found.log_loss, found.integrated_brier, found.ece, *found.brier)
        assert all(map(math.isfinite, numbers))
        held = Held.of(TARGET, y, Predicted(sure), torch.arange(3) % 2)
        after = Calibration.of(TARGET, held).apply(Predicted(sure)).survival
        assert bool(((after >= 0) & (after <= 1)).all())
        assert bool((after.diff() <= 0).all())


def test_no_patients_have_no_scores_and_change_no_prediction() -> None:
    with pytest.raises(EmptyTable):
        Sums.zero(TARGET).quality(TARGET)
    survival = patients(4)[1]
    none = Calibration.of(TARGET, Held.zero(TARGET))
    assert torch.allclose(none.apply(Predicted(survival)).survival, survival)


def test_recalibrated_hazards_are_those_of_the_patients_and_few_leave_them() -> None:
    y, survival, logits = patients(1500)
    wrong = Predicted(torch.nn.functional.logsigmoid(-2 * logits - 1).cumsum(1).exp())
    assert torch.allclose(wrong.hazard_logits(), 2 * logits + 1)
    found = Calibration.of(TARGET, Held.of(TARGET, y, wrong, torch.arange(1500) % 2))
    assert found.mapped.slope == pytest.approx(0.5, abs=0.08)
    assert torch.allclose(found.apply(wrong).survival, survival, atol=0.06)
    assert found.covered(TARGET, y, wrong) is None
    other = Held.of(TARGET, y[1::2], wrong[torch.arange(1, 1500, 2)], torch.ones(750))
    assert found.without(0).mapped.slope == Calibration.of(TARGET, other).mapped.slope
    few = Calibration.of(TARGET, Held.of(TARGET, y[:3], Predicted(survival[:3]), torch.zeros(3)))
    assert float((few.apply(Predicted(survival)).survival - survival).abs().max()) < 0.15


def test_noisy_sums_are_valid_and_near_those_without_noise() -> None:
    y, survival, _ = patients(4000)
    predicted = Predicted(survival)
    exact = quality(y, survival)
    few = Sums.few(TARGET, y, predicted)
    sums = Sums.from_noisy(TARGET, promises.noisy(Sums.few_blocks(TARGET), few, deviation=5.0))
    sums.check(TARGET)
    found = sums.quality(TARGET)
    assert found.concordance == pytest.approx(exact.concordance, abs=0.05)
    assert found.integrated_brier == pytest.approx(exact.integrated_brier, abs=0.03)
    assert found.log_loss == pytest.approx(exact.log_loss, abs=0.1)
    totals = promises.noisy(Held.few_blocks(TARGET), Held.few(TARGET, y, predicted), deviation=5.0)
    calibration = Calibration.from_noisy(TARGET, totals, {"hazards": 5.0 * J})
    calibration.check(TARGET)
    assert calibration.mapped.slope == pytest.approx(1.0, abs=0.25)
