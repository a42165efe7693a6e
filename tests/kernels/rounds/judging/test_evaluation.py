"""Evaluation: the scores of all held-out rows in one place, and honest ones."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from client_sdk.simulation import simulate
from kernels.errors import NotFitted, ProgramError
from kernels.model.model import Model, known
from kernels.model.prediction import predict
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.rounds.site.site import Part, Site
from kernels.scores.evaluation import Evaluation, in_units
from kernels.scores.metrics import Scores
from tests.conformance.algorithm import AdditiveOverRows, EqualToPooled
from tests.dealing import DEALING
from tests.kernels.rounds import noisy, tables


class TestEvaluation(AdditiveOverRows, EqualToPooled):
    algorithm = evaluation

    def spec(self) -> Any:
        return evaluation.Spec()

    def model(self, sites: list[Site]) -> Model:
        return tables.fitted(sites, linear.Spec(), recalibration.Spec(min_rows=1))

    def test_many_sites_score_what_one_site_with_all_rows_scores(self) -> None:
        sites = self.sites()
        model = self.model(sites)
        federated = self.outcome(sites, model).model.scores
        pooled = self.outcome([tables.together(sites)], model).model.scores
        for kind in ("gaussian", "recalibrated"):
            for field in fields(Scores):
                one = getattr(getattr(federated, kind), field.name)
                other = getattr(getattr(pooled, kind), field.name)
                assert torch.allclose(one, other, rtol=1e-8, atol=1e-6), (kind, field.name)
        assert torch.equal(federated.conformal_inside, pooled.conformal_inside)


class TestEvaluationOfTheGaussianOnStoppingRows(TestEvaluation):
    def spec(self) -> Any:
        return evaluation.Spec(part=Part.STOPPING, recalibrated=False)

    def test_many_sites_score_what_one_site_with_all_rows_scores(self) -> None:
        sites = self.sites()
        scores = self.outcome(sites, self.model(sites)).model.scores
        assert scores.recalibrated is None
        assert scores.conformal_curve() is None
        assert scores.part == "stopping"


def evaluated(sites: list[Site]) -> Model:
    program = noisy.program(recalibration.Spec(min_rows=20), evaluation.Spec())
    return simulate(program, sites, DEALING, secure=False).model


def heavy_tailed(rows: int, *, seed: int, held_out: float = 0.5) -> Site:
    table = noisy.table(rows, seed=seed, freedom=3.0)
    return Site.of_table(noisy.SCHEMA, table, held_out=held_out, dealing=DEALING)


def test_scores_in_units_are_those_of_predictions_in_units() -> None:
    sites = [tables.site(seed=seed) for seed in range(3)]
    model = tables.fitted(sites, linear.Spec(), evaluation.Spec(recalibrated=False))
    scores = in_units(
        known(model.scores, "evaluation").gaussian, known(model.standardiser, "moments")
    )
    records = tables.together(sites).records[Part.CALIBRATION]
    predictions = predict(model, records)
    dense = Scores.of(predictions.mean, predictions.variance, known(records.targets, "moments"))
    for measure in ("rmse", "nll", "crps", "width", "interval_score", "ece"):
        one, other = getattr(scores, measure)(), getattr(dense, measure)()
        assert torch.allclose(one, other, rtol=1e-6, atol=1e-6), measure


def test_student_t_is_better_than_the_gaussian_where_tails_are_heavy() -> None:
    scores = known(
        evaluated([heavy_tailed(2000, seed=seed) for seed in range(4)]).scores, "evaluation"
    )
    calibrated = known(scores.recalibrated, "recalibration")
    assert bool((calibrated.nll() < scores.gaussian.nll() - 0.05).all())
    assert bool((calibrated.ece() < scores.gaussian.ece() / 2).all())
    assert bool((calibrated.ece() < 0.02).all())
    assert bool((calibrated.crps() < scores.gaussian.crps()).all())
    conformal = known(scores.conformal_curve(), "recalibration")
    levels = torch.arange(1, 20, dtype=torch.float64) / 20
    assert float((conformal - levels).abs().max()) < 0.04


def test_recalibrated_scores_are_not_of_rows_that_they_were_made_from() -> None:
    """Over many small studies: in-sample scores flatter, cross-fitted ones don't."""
    flattery, honesty = [], []
    for seed in range(12):
        site = heavy_tailed(160, seed=seed)
        model = evaluated([site])
        crossed = known(known(model.scores, "evaluation").recalibrated, "recalibration")
        in_sample = _judged_as_served(model, site, Part.CALIBRATION)
        fresh = heavy_tailed(4000, seed=500 + seed, held_out=0.0)
        served = _judged_as_served(model, fresh, Part.TRAINING)
        flattery.append(float(in_sample.nll()[0] - crossed.nll()[0]))
        honesty.append(float(crossed.nll()[0] - served.nll()[0]))
    assert np.mean(flattery) < 0
    assert np.mean(np.array(honesty)) > -2 * np.std(honesty) / np.sqrt(len(honesty))


def _judged_as_served(model: Model, site: Site, part: Part) -> Scores:
    """Score the served recalibration on rows of a part, without crossing folds."""
    state = evaluation.initial(evaluation.Spec(part=Part.STOPPING), model)
    blocks = evaluation.contribute(replace(state, spec=evaluation.Spec(part=part)), site)
    names = [f"recalibrated.{field.name}" for field in fields(Scores)]
    return Scores(*(torch.from_numpy(blocks[name]) for name in names))


def test_a_coverage_that_is_right_on_average_can_be_wrong_at_each_site() -> None:
    """Heterogeneous noise: what only a site can see of itself, and is never summed."""
    quiet, loud = (noisy.table(2000, seed=seed, noise=noise) for seed, noise in ((1, 0.2), (2, 1)))
    program = noisy.program(recalibration.Spec(), evaluation.Spec())
    model = simulate(program, [quiet, loud], DEALING, secure=False).model
    curve = known(known(model.scores, "evaluation").conformal_curve(), "recalibration")
    assert float(curve[0, 17]) == pytest.approx(0.9, abs=0.03)

    def coverage(noise: float) -> float:
        new = noisy.table(2000, seed=9, noise=noise)
        lower, upper = predict(model, new).conformal(0.9)
        y = torch.tensor(new["response"])
        return float(((lower[:, 0] <= y) & (y <= upper[:, 0])).double().mean())

    assert coverage(0.2) > 0.97
    assert coverage(1.0) < 0.85


def test_it_says_which_stage_is_missing_or_which_part_is_none() -> None:
    with pytest.raises(ProgramError, match="recalibration"):
        tables.fitted([tables.site()], linear.Spec(), evaluation.Spec())
    with pytest.raises(ProgramError, match="linear"):
        tables.fitted([tables.site()], evaluation.Spec())
    with pytest.raises(NotFitted, match="linear"):
        evaluation.initial(evaluation.Spec(), tables.fitted([tables.site()]))
    with pytest.raises(ProgramError, match="part"):
        evaluation.Spec(part="test")


@pytest.mark.parametrize("part", [Part.ADDED, Part.REMOVED])
def test_rows_that_a_site_adds_or_removes_are_not_scored(part: Part) -> None:
    """Where one site has any their scores are its own, and it has consented to `update` only."""
    with pytest.raises(ProgramError, match="part"):
        evaluation.Spec(part=part)
    honest = noisy.program(evaluation.Spec(part=Part.STOPPING, recalibrated=False)).to_json()
    assert '"stopping"' in honest
    with pytest.raises(ProgramError, match="part"):
        Program.from_json(honest.replace('"stopping"', f'"{part}"'))


def test_a_program_with_both_survives_json() -> None:
    program = noisy.program(recalibration.Spec(min_rows=7), evaluation.Spec(part=Part.STOPPING))
    assert Program.from_json(program.to_json()) == program


def test_secure_and_plain_sums_score_alike() -> None:
    program = noisy.program(recalibration.Spec(min_rows=1), evaluation.Spec())
    rows = noisy.dealt(noisy.table(240, seed=2), 3)

    def scores(*, secure: bool) -> Evaluation:
        return known(simulate(program, rows, DEALING, secure=secure).model.scores, "evaluation")

    masked, plain = scores(secure=True), scores(secure=False)
    assert torch.equal(masked.gaussian.log_losses, plain.gaussian.log_losses)
    assert torch.equal(known(masked.recalibrated, "").widths, known(plain.recalibrated, "").widths)
