"""Local posteriors made into one from one sum of moments at public rows."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from client_sdk.simulation import simulate
from kernels import storage
from kernels.ensembles.committee import Committee, Guard, mixture, product
from kernels.ensembles.distilled import DIVERGENCE_STEP, Distilled, Method
from kernels.ensembles.interpolation import BETA_STEP, fit_beta
from kernels.ensembles.student_network import mean_divergence
from kernels.errors import NotFitted, ProgramError, StateError, StatisticsError, TableRefused
from kernels.layer.posterior import Prediction
from kernels.model.model import Model
from kernels.reproducible import on_grid
from kernels.rounds.ensemble import predictive
from kernels.rounds.ensemble.predictive import Expert, bounded, predict_at, prior_at
from kernels.rounds.layer import linear
from kernels.rounds.plan import stages_disclosed
from kernels.rounds.program import Program
from kernels.rounds.registry import restore
from kernels.rounds.shared.local_network import draws_of, ordered_rows
from kernels.rounds.shared.public_set import EXTRA_SPREAD, columns_of, public_inputs, public_table
from kernels.rounds.site.site import Part, Site
from kernels.scores.gaussians import Gaussian
from privacy.encoding import Encoding
from tests.conformance.algorithm import AlgorithmConformance
from tests.dealing import DEALING
from tests.kernels.rounds import sums, tables

_FEATURES = ("age", "lactate", "ward")
_LABELLED = (*_FEATURES, "stay", "cost")
PUBLIC = columns_of(
    {name: cells for name, cells in tables.table(12, seed=77).items() if name in _FEATURES}
)
SPEC = predictive.Spec(
    public=PUBLIC,
    extra_rows=8,
    hidden=(6,),
    cycles=2,
    cycle_epochs=3,
    cycle_samples=2,
    batch_rows=10,
    distillation_epochs=2,
)
LINEAR = replace(SPEC, expert=Expert.LINEAR)


class TestPredictive(AlgorithmConformance):
    algorithm = predictive

    def spec(self) -> Any:
        return SPEC


class TestWithLinearExperts(AlgorithmConformance):
    algorithm = predictive

    def spec(self) -> Any:
        return LINEAR

    def model(self, sites: list[Site]) -> Model:
        return tables.fitted(sites, linear.Spec())


def _sites_and_model(rows: tuple[int, ...] = (20, 40, 60)) -> tuple[list[Site], Model]:
    sites = [tables.site(n, seed=seed) for seed, n in enumerate(rows)]
    return sites, tables.fitted(sites, linear.Spec())


@pytest.mark.parametrize("spec", [SPEC, LINEAR], ids=["network", "linear"])
def test_the_summed_teacher_is_the_one_of_all_predictions_in_one_place(
    spec: predictive.Spec,
) -> None:
    sites, model = _sites_and_model()
    inputs = spec.inputs(model)
    said = [bounded(predict_at(site, model, spec, inputs)) for site in sites]
    together = Gaussian(
        torch.stack([each.mean for each in said]), torch.stack([each.variance for each in said])
    )
    rows = torch.tensor([site.count(Part.TRAINING) for site in sites])
    prior = prior_at(model, spec, inputs)
    expected = Committee.of(together, rows=rows, prior=prior)

    state = predictive.initial(spec, model)
    after = predictive.update(state, sums.total(predictive, state, [*sites, _empty(sites[0])]))
    opinion = after.model.distilled.opinion
    for name, teacher in {
        Method.PRODUCT: product(expected, prior, guard=Guard.PRIOR),
        Method.MIXTURE: mixture(expected),
    }.items():
        found = opinion.teacher(name)
        assert torch.allclose(found.mean, teacher.mean, rtol=1e-9, atol=1e-10)
        assert torch.allclose(found.variance, teacher.variance, rtol=1e-9)
    for name in (Method.GPOE, Method.RBCM):
        in_one_place = replace(opinion, committee=expected).teacher(name)
        assert torch.allclose(opinion.teacher(name).variance, in_one_place.variance, rtol=1e-8)


def test_there_is_a_student_of_each_method_and_it_has_learned_from_its_teacher() -> None:
    sites, model = _sites_and_model()
    spec = replace(SPEC, distillation_epochs=150, distillation_rate=0.02, hidden=(20,))
    distilled: Distilled = sums.after_all(predictive, spec, model, sites).model.distilled
    assert [student.method for student in distilled.students] == list(spec.methods)
    opinion = distilled.opinion
    assert opinion is not None
    for student in distilled.students:
        teacher = opinion.teacher(student.method)
        missed = mean_divergence(distilled.spec, student.parameters, teacher, opinion.inputs)
        assert student.divergence == pytest.approx(missed, abs=DIVERGENCE_STEP)
        assert missed < 0.15
        found = distilled.predict(student.method, opinion.inputs)
        assert (found.mean - teacher.mean).square().mean() < 0.1 * teacher.mean.var()
    with pytest.raises(NotFitted, match="no student of the method beta"):
        distilled.student(Method.BETA)


def test_no_sites_model_and_no_sites_prediction_is_sent_or_kept() -> None:
    sites, model = _sites_and_model()
    state = predictive.initial(SPEC, model)
    lengths = {block.name: block.length for block in predictive.layout(state).blocks}
    assert set(lengths) == {field.name for field in fields(Committee)}
    assert max(lengths.values()) == 20 * 2
    data = storage.encode(sums.after_one(predictive, state, sites))
    inputs = SPEC.inputs(model)
    for site in sites:
        said = predict_at(site, model, SPEC, inputs)
        for numbers in (said.mean, said.latent_variance, said.variance):
            assert numbers.numpy().tobytes() not in data


def test_what_was_said_stays_with_the_coordinator_and_students_go_out() -> None:
    sites, model = _sites_and_model()
    state = sums.after_all(predictive, SPEC, model, sites)
    seen = restore(storage.encode(state, broadcast=True)).model.distilled
    assert seen.opinion is None
    assert [student.divergence for student in seen.students] == [None] * 4
    assert torch.equal(seen.students[0].parameters, state.model.distilled.students[0].parameters)


def test_a_site_without_rows_is_no_member() -> None:
    sites, model = _sites_and_model()
    state = predictive.initial(SPEC, model)
    assert float(sums.total(predictive, state, [*sites, _empty(sites[0])])["sites"]) == 3
    with pytest.raises(StatisticsError, match="no site has rows"):
        predictive.update(state, sums.total(predictive, state, [_empty(sites[0])]))


def test_a_linear_experts_prior_is_its_own_and_a_site_without_knowledge_says_it() -> None:
    _, model = _sites_and_model()
    inputs = LINEAR.inputs(model)
    nothing = predict_at(_empty(tables.site()), model, LINEAR, inputs)
    prior = prior_at(model, LINEAR, inputs)
    assert torch.allclose(nothing.mean, prior.mean)
    assert torch.allclose(nothing.variance, prior.variance)
    with pytest.raises(NotFitted, match="linear"):
        predictive.initial(LINEAR, replace(model, hyperparameters=None, statistics=None))


def test_public_rows_need_no_labels_and_extra_ones_are_made_of_their_cells() -> None:
    _, model = _sites_and_model()
    few, many = (public_inputs(PUBLIC, model, extra_rows=rows, seed=4) for rows in (0, 500))
    assert (len(few), len(many)) == (12, 512)
    assert torch.equal(many[:12], few)
    assert torch.equal(many[:20], public_inputs(PUBLIC, model, extra_rows=8, seed=4))
    apart = (many[12:, None] - few).abs()
    assert apart.amin(1).max() < 5 * EXTRA_SPREAD, "each cell is one of the column's, moved"
    assert apart.amax(2).amin(1).max() > 4.5 * EXTRA_SPREAD, "and they are not all of one row"
    with pytest.raises(TableRefused, match="ward"):
        predictive.initial(replace(SPEC, public=PUBLIC[:2]), model)


def test_rows_and_draws_of_a_site_do_not_depend_on_the_order_of_its_table() -> None:
    _, model = _sites_and_model()
    table = tables.table(30, seed=5)
    turned = {name: cells[::-1].copy() for name, cells in table.items()}
    one, other = (
        Site.of_table(tables.SCHEMA, each, held_out=0.25, dealing=DEALING)
        for each in (table, turned)
    )
    for part in (Part.TRAINING, Part.STOPPING):
        for left, right in zip(
            ordered_rows(one, part, model), ordered_rows(other, part, model), strict=True
        ):
            assert torch.equal(left, right)
    draws = [draws_of(site, seed=1, turn=0).initial_seed() for site in (one, other)]
    draws += [draws_of(one, seed=1, turn=1).initial_seed()]
    draws += [draws_of(tables.site(seed=6), seed=1, turn=0).initial_seed()]
    assert len(set(draws)) == 3
    assert draws[0] == draws[1]


@pytest.mark.parametrize("mean", [-1e9, 1e9])
@pytest.mark.parametrize("variance", [1e-12, 1e12])
@pytest.mark.parametrize("spec", [SPEC, LINEAR], ids=["network", "linear"])
def test_a_prediction_beyond_the_bounds_counts_as_the_nearest_within(
    spec: predictive.Spec, mean: float, variance: float
) -> None:
    _, model = _sites_and_model()
    wild = Prediction(
        torch.full((20, 2), mean).double(), torch.full((20, 2), variance).double(), torch.zeros(2)
    )
    prior = prior_at(model, spec, spec.inputs(model))
    own = Committee.alone(bounded(wild), rows=model.max_rows, prior=prior)
    layout = predictive.layout(predictive.initial(spec, model))
    encoding = Encoding.finest(layout, max_clients=1000)
    encoding.encode({each.name: getattr(own, each.name).numpy() for each in fields(Committee)})


@pytest.mark.parametrize(
    "wrong",
    [
        {"public": ()},
        {"extra_rows": -1},
        {"extra_rows": 4090},
        {"expert": "oracle"},
        {"guard": "none"},
        {"methods": ("product", "voting")},
        {"prior_variance": 0.0},
        {"distillation_epochs": 0},
        {"distillation_rate": 2.0},
        {"hidden": 100},
        {"hidden": (0,)},
        {"seed": -1},
        {"batch_rows": 0},
        {"cycles": 0},
        {"cycle_samples": 4},
        {"most_samples": 1},
        {"step_size": 0.0},
        {"temperature": 0.0},
        {"weight_variance": -1.0},
        {"noise_variance": 0.0},
    ],
)
def test_impossible_parameters_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProgramError, match=next(iter(wrong))):
        replace(SPEC, **wrong)


def test_beta_is_fitted_to_labelled_public_rows_in_the_same_sum() -> None:
    sites, model = _sites_and_model()
    labelled = columns_of({name: tables.table(12, seed=77)[name] for name in _LABELLED})
    spec = replace(SPEC, public=labelled, methods=(Method.PRODUCT, Method.BETA))
    assert predictive.layout(predictive.initial(spec, model)) == predictive.layout(
        predictive.initial(SPEC, model)
    )
    distilled = sums.after_all(predictive, spec, model, sites).model.distilled
    _, labels = public_table(labelled, model)
    ends = [
        Gaussian(end.mean[:12], end.variance[:12])
        for end in map(distilled.opinion.teacher, (Method.PRODUCT, Method.MIXTURE))
    ]
    assert torch.equal(distilled.beta, on_grid(fit_beta(*ends, labels), BETA_STEP))
    taught = replace(distilled, beta=None).taught([Method.BETA], beta=distilled.beta)
    assert torch.equal(
        distilled.student(Method.BETA).parameters, taught.student(Method.BETA).parameters
    )


def test_beta_is_refused_where_the_public_rows_have_no_labels() -> None:
    _, model = _sites_and_model()
    with pytest.raises(TableRefused, match="stay"):
        predictive.initial(replace(SPEC, methods=(Method.BETA,)), model)


def test_students_of_another_shape_are_refused() -> None:
    sites, model = _sites_and_model()
    distilled = sums.after_all(predictive, SPEC, model, sites).model.distilled
    student = replace(distilled.students[0], parameters=torch.zeros(3).double())
    for wrong in (
        replace(distilled, students=(student,)),
        replace(distilled, students=(1,)),
        replace(distilled, spec=replace(distilled.spec, targets=3)),
        replace(distilled, lesson=None),
        replace(distilled, beta=torch.zeros(3).double()),
    ):
        with pytest.raises(StateError):
            replace(model, distilled=wrong)
    with pytest.raises(StateError, match="method"):
        replace(student, method="oracle")


def test_masks_change_nothing_and_a_program_survives_json() -> None:
    program = Program.from_json(tables.program(SPEC).to_json())
    assert program.stages[1] == SPEC
    assert stages_disclosed(program)[1].numbers == 7 * 20 * 2 + 2
    hidden, plain = (simulate(program, tables.tables(3), DEALING, secure=s) for s in (True, False))
    for one, other in zip(hidden.states, plain.states, strict=True):
        assert storage.encode(one) == storage.encode(other)
    # The linear layer after it keeps the students.
    assert hidden.model.distilled is not None


def _empty(site: Site) -> Site:
    return Site(
        {
            part: rows.take(torch.zeros(len(rows), dtype=torch.bool))
            for part, rows in site.records.items()
        }
    )
