"""Every method judged on the same held-out rows in one sum, and students that go with theirs."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from typing import Any

import pytest
import torch

from client_sdk.simulation import simulate
from kernels.ensembles.distilled import Method
from kernels.model.methods import METHODS, methods_of
from kernels.model.model import Model, known
from kernels.model.prediction import predict
from kernels.rounds.algorithm import Contribution
from kernels.rounds.columns import moments
from kernels.rounds.compared import fedpa
from kernels.rounds.ensemble import beta, predictive
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.kernel import distillation, exact, fedavg
from kernels.rounds.layer import linear, linear_two_sums, update
from kernels.rounds.plan import stages_disclosed
from kernels.rounds.program import Program
from kernels.rounds.shared.public_set import columns_of
from kernels.rounds.site.site import Part, Site
from kernels.scores.evaluation import in_units
from kernels.scores.metrics import Scores
from tests.conformance.algorithm import AdditiveOverRows, EqualToPooled
from tests.conformance.test_broken_twins import twin
from tests.dealing import DEALING
from tests.kernels.rounds import sums, tables
from tests.kernels.rounds.artifacts import STUDENTS, WITH_STUDENTS, artifact
from tests.kernels.rounds.ensemble.test_predictive import SPEC as PREDICTIVE
from tests.kernels.rounds.network_rows import TRAINING


class TestEvaluationOfStudents(AdditiveOverRows, EqualToPooled):
    algorithm = evaluation

    def spec(self) -> Any:
        return evaluation.Spec(recalibrated=False)

    def model(self, sites: list[Site]) -> Model:
        return sites_and_model()[1]


@cache
def sites_and_model() -> tuple[tuple[Site, ...], Model]:
    sites = tuple(tables.site(60, seed=seed, held_out=0.5) for seed in range(3))
    return sites, tables.fitted(list(sites), linear.Spec(), PREDICTIVE, beta.Spec())


def scored(contribute: Callable[..., Contribution] = evaluation.contribute) -> Model:
    """The model with scores of what sites contribute."""
    sites, model = sites_and_model()
    state = evaluation.initial(evaluation.Spec(recalibrated=False), model)
    total = sums.total(twin(evaluation, contribute=contribute), state, sites)
    return evaluation.update(state, total).model


def check_scores(model: Model) -> None:
    """Each method's scores in units are those of its predictions of all sites' rows together."""
    sites, _ = sites_and_model()
    records = tables.together(list(sites)).records[Part.CALIBRATION]
    found = known(model.scores, "evaluation")
    judged = {each.method: each.scores for each in found.students}
    assert list(judged) == list(WITH_STUDENTS[1:])
    for method, scores in {"fedbnr": found.gaussian, **judged}.items():
        ours = in_units(scores, known(model.standardiser, "moments"))
        said = predict(model, records, method=method)
        dense = Scores.of(said.mean, said.variance, known(records.targets, "moments"))
        assert torch.equal(ours.rows, dense.rows)
        for measure in ("rmse", "nll", "crps", "ece", "calibration_curve", "width"):
            one, other = getattr(ours, measure)(), getattr(dense, measure)()
            assert torch.allclose(one, other, rtol=1e-6, atol=1e-6), (method, measure)


def test_every_method_is_scored_as_if_all_rows_were_in_one_place() -> None:
    check_scores(scored())


def _of_another_method(state: Any, site: Site) -> Contribution:
    blocks = dict(evaluation.contribute(state, site))
    for field in fields(Scores):
        blocks[f"mixture.{field.name}"] = blocks[f"product.{field.name}"]
    return blocks


def _latent_alone(state: Any, site: Site) -> Contribution:
    distilled = state.model.distilled
    surer = tuple(
        replace(student, parameters=student.parameters - _log_variance(distilled.spec))
        for student in distilled.students
    )
    model = replace(state.model, distilled=replace(distilled, students=surer))
    return evaluation.contribute(replace(state, model=model), site)


def _log_variance(spec: Any) -> torch.Tensor:
    """A step that makes every variance smaller: the last biases are those of both heads."""
    step = torch.zeros(spec.network.parameters, dtype=torch.float64)
    step[-spec.targets :] = 0.5
    return step


def _of_other_rows(state: Any, site: Site) -> Contribution:
    blocks = dict(evaluation.contribute(state, site))
    other = evaluation.contribute(
        replace(state, spec=evaluation.Spec(part=Part.STOPPING, recalibrated=False)), site
    )
    return {name: other[name] if name.startswith("rbcm") else own for name, own in blocks.items()}


@pytest.mark.parametrize("broken", [_of_another_method, _latent_alone, _of_other_rows])
def test_a_broken_twin_is_noticed(broken: Callable[..., Contribution]) -> None:
    with pytest.raises(AssertionError):
        check_scores(scored(broken))


def test_without_students_the_sum_is_what_it_was() -> None:
    sites, model = sites_and_model()
    spec = evaluation.Spec(recalibrated=False)
    bare = evaluation.initial(spec, replace(model, distilled=None))
    lengths = [block.name for block in evaluation.layout(bare).blocks]
    assert lengths == [f"gaussian.{field.name}" for field in fields(Scores)]
    assert known(sums.after_one(evaluation, bare, sites).model.scores, "").students == ()
    whole = evaluation.layout(evaluation.initial(spec, model))
    assert whole.length == 6 * evaluation.layout(bare).length


def test_what_is_disclosed_beforehand_is_what_is_summed() -> None:
    _, model = sites_and_model()
    spec = evaluation.Spec(recalibrated=False)
    length = evaluation.layout(evaluation.initial(spec, model)).length
    base = (moments.Spec(), linear.Spec())
    programs = {
        length: (*base, PREDICTIVE, beta.Spec(), spec),
        length - length // 6: (*base, PREDICTIVE, spec),
        length // 6: (*base, spec),
    }
    for expected, stages in programs.items():
        program = Program(tables.SCHEMA, tables.KERNEL, stages, max_rows=1000, held_out=0.5)
        assert stages_disclosed(program)[-1].numbers == expected
    alone = Program(tables.SCHEMA, tables.KERNEL, (spec,), max_rows=1000, held_out=0.5)
    # Of whatever model it is asked: one with students and networks of every method.
    assert stages_disclosed(alone)[0].numbers == length // 6 * len(METHODS)


def test_new_students_have_no_scores_of_former_ones() -> None:
    sites, _ = sites_and_model()
    model = scored()
    assert beta.initial(beta.Spec(), model).model.scores is None
    assert sums.after_all(predictive, PREDICTIVE, model, sites).model.scores is None


@pytest.mark.parametrize("first", [linear.Spec(), linear_two_sums.Spec(), update.Spec()])
def test_students_do_not_outlive_the_rows_that_they_were_taught_by(first: Any) -> None:
    made = artifact(STUDENTS).model
    program = replace(STUDENTS, stages=(first, recalibration.Spec(min_rows=1), evaluation.Spec()))
    model = simulate(program, tables.tables(3, rows=250), DEALING, secure=False, model=made).model
    assert methods_of(model) == ("fedbnr",)
    assert known(model.scores, "evaluation").students == ()


def test_an_evaluation_alone_keeps_students_and_scores_them() -> None:
    made = artifact(STUDENTS).model
    program = replace(STUDENTS, stages=(evaluation.Spec(),))
    model = simulate(program, tables.tables(3, rows=250), DEALING, secure=False, model=made).model
    assert methods_of(model) == WITH_STUDENTS
    for one, other in zip(
        known(model.scores, "").students, known(made.scores, "").students, strict=True
    ):
        assert torch.equal(one.scores.log_losses, other.scores.log_losses)


def test_masks_change_nothing_where_one_program_has_every_method() -> None:
    program = Program.from_json(STUDENTS.to_json())
    hidden, plain = (
        simulate(program, tables.tables(3, rows=60), DEALING, secure=secure).model
        for secure in (True, False)
    )
    assert methods_of(hidden) == methods_of(plain) == WITH_STUDENTS
    for method in Method:
        rows = tables.table(5, seed=9)
        one, other = (predict(model, rows, method=method) for model in (hidden, plain))
        assert torch.equal(one.mean, other.mean)
        assert torch.equal(one.variance, other.variance)


@pytest.mark.parametrize(
    "phase_one",
    [
        exact.Spec(steps=1, penalties=(3.0,)),
        fedavg.Spec(rounds=1),
        distillation.Spec(public=columns_of(tables.table(12, seed=77)), rounds=1, alphas=(0.5,)),
    ],
    ids=["exact", "fedavg", "distillation"],
)
def test_ensembles_stand_beside_every_first_phase(phase_one: Any) -> None:
    stages = (moments.Spec(), phase_one, *STUDENTS.stages[1:])
    program = replace(STUDENTS, stages=stages)
    model = simulate(program, tables.tables(3), DEALING, secure=False).model
    assert methods_of(model) == WITH_STUDENTS
    assert len(known(model.scores, "evaluation").students) == 5


def test_the_card_has_every_methods_quality_and_fedbnrs_first() -> None:
    evaluation_ = known(artifact(STUDENTS).card.evaluation, "evaluation")
    assert [each.method for each in evaluation_.others] == list(WITH_STUDENTS[1:])
    for each in evaluation_.others:
        assert [quality.name for quality in each.quality] == ["stay", "cost"]
        assert all(quality.rmse > 0 and 0 <= quality.ece <= 0.5 for quality in each.quality)


def test_networks_are_scored_as_if_all_rows_were_in_one_place() -> None:
    sites, model = sites_and_model()
    spec = fedpa.Spec(**TRAINING, rounds=1)
    trained = sums.after_all(fedpa, spec, replace(model, distilled=None), sites).model
    state = evaluation.initial(evaluation.Spec(recalibrated=False), trained)
    scores = known(sums.after_one(evaluation, state, sites).model.scores, "evaluation")
    (judged,) = scores.students
    records = tables.together(list(sites)).records[Part.CALIBRATION]
    said = predict(trained, records, method="fedpa")
    dense = Scores.of(said.mean, said.variance, known(records.targets, "moments"))
    ours = in_units(judged.scores, known(model.standardiser, "moments"))
    for measure in ("rmse", "nll", "crps", "calibration_curve", "width"):
        one, other = getattr(ours, measure)(), getattr(dense, measure)()
        assert torch.allclose(one, other, rtol=1e-6, atol=1e-6), measure
