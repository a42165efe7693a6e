"""Private programs: what is refused, what is planned, and what the simulator makes of them."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from client_sdk.simulation import simulate
from kernels import storage
from kernels.errors import NotPrivate, ProgramError, UnboundedColumns, UnboundedFeatures
from kernels.features.spec import Architecture, Ending, KernelSpec
from kernels.model.prediction import predict
from kernels.rounds import registry
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.kernel import distillation, elbo, exact, fedavg, private_exact
from kernels.rounds.layer import linear, linear_two_sums, outcomes, refinement, update
from kernels.rounds.plan import planned, stages_disclosed
from kernels.rounds.program import Program
from kernels.rounds.registry import restore
from kernels.rounds.shared.public_set import columns_of
from kernels.rounds.site.site import Part, Site
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target
from privacy import noise
from tests.dealing import DEALING
from tests.kernels.rounds import private

_PUBLIC = columns_of(
    {"age": [50.0], "lactate": [1.0], "ward": ["medical"], "stay": [1.0], "cost": [1.0]}
)


@pytest.mark.parametrize(
    "spec",
    [
        fedavg.Spec(),
        distillation.Spec(public=_PUBLIC),
        linear_two_sums.Spec(),
        exact.Spec(),
        exact.Spec(penalties=(3.0,), patience=2),
    ],
)
def test_what_has_no_private_form_is_refused_when_the_program_is_made(spec: Any) -> None:
    with pytest.raises(NotPrivate):
        private.program(moments.Spec(), spec)
    Program(private.PATIENTS, private.KERNEL, (moments.Spec(), spec))


def test_every_installed_algorithm_has_a_private_form_or_says_that_it_has_none() -> None:
    model = private.program(moments.Spec()).start()
    private_forms = (
        *(moments, private_exact, elbo, linear, outcomes, refinement),
        *(recalibration, evaluation, update),
    )
    specs: dict[Any, Any] = {own: own.Spec() for own in private_forms}
    for algorithm in registry.ALGORITHMS.values():
        refused = algorithm not in specs
        with pytest.raises(NotPrivate, match=algorithm.NAME) if refused else nullcontext():
            algorithm.check_private(specs.get(algorithm), model)


@pytest.mark.parametrize(
    "kernel",
    [
        {"architecture": Architecture.EXPONENTIAL},
        {"architecture": Architecture.POLYNOMIAL},
        {"architecture": Architecture.REPLICATED, "ending": Ending.LINEAR},
    ],
)
@pytest.mark.parametrize("spec", [linear.Spec(), update.Spec(), private_exact.Spec()])
def test_features_without_a_bound_are_refused(kernel: dict[str, Any], spec: Any) -> None:
    with pytest.raises(UnboundedFeatures, match="cos and sin"):
        private.program(spec, kernel=KernelSpec(inputs=6, samples=4, **kernel))


@pytest.mark.parametrize("linear_part", [True, False])
@pytest.mark.parametrize("spec", [linear.Spec(), update.Spec(), private_exact.Spec()])
def test_inducing_features_are_refused_with_what_to_take_instead(
    spec: Any, linear_part: bool
) -> None:
    kernel = KernelSpec(architecture="inducing", inputs=6, samples=4, linear_part=linear_part)
    with pytest.raises(UnboundedFeatures, match=r"inducing .* such as matern52, or the linear"):
        private.program(spec, kernel=kernel)


@pytest.mark.parametrize("from_bounds", [True, False])
def test_columns_without_bounds_are_refused_by_name(from_bounds: bool) -> None:
    schema = Schema(
        (Numeric("age", "a", 0, 120), Numeric("crp", "mg/l", lower=0)), (Target("stay", "d"),)
    )
    kernel = KernelSpec(architecture=Architecture.RBF, inputs=2, samples=4)
    with pytest.raises(UnboundedColumns, match="'crp', 'stay'"):
        private.program(moments.Spec(from_bounds=from_bounds), schema=schema, kernel=kernel)


def test_a_program_says_beforehand_what_it_would_release() -> None:
    whole = private.program(
        moments.Spec(from_bounds=True),
        moments.Spec(),
        private_exact.Spec(steps=3, penalty=1.0),
        elbo.Spec(steps=40, sampling_rate=0.1),
        linear.Spec(),
        recalibration.Spec(),
        evaluation.Spec(part=Part.STOPPING),
        update.Spec(),
    )
    released = planned(whole)
    assert [each.sums for each in released] == [0, 1, 6, 40, 1, 1, 1, 1]
    assert [each.part.value for each in released] == [
        *["training"] * 5,
        "calibration",
        "stopping",
        "added",
    ]
    assert [each.dealt for each in released] == [True] * 7 + [False]
    assert [each.sampling_rate for each in released] == [1, 1, 1, 0.1, 1, 1, 1, 1]
    words = [stage.words for stage in stages_disclosed(whole)]
    assert "noise" not in words[0]
    assert all("noise of 1 times what any one patient can change" in each for each in words[1:])
    with pytest.raises(ProgramError, match="not private"):
        planned(replace(whole, privacy=None))


def test_no_run_releases_more_than_was_planned() -> None:
    stages = (
        moments.Spec(),
        private_exact.Spec(steps=2, penalty=1.0),
        elbo.Spec(steps=2, sampling_rate=0.5),
        linear.Spec(),
        recalibration.Spec(min_rows=1),
        evaluation.Spec(),
    )
    whole, asked = private.program(*stages), []
    simulated = simulate(
        whole,
        [private.table(60, seed=s, patients=30) for s in range(3)],
        DEALING,
        secure=False,
        source=noise.approximate(np.random.default_rng(1)),
        watch=lambda name, _: asked.append(name),
    )
    names = [each.algorithm.partition("/")[0] for each in planned(whole)]
    assert [asked.count(name) for name in names] == [each.sums for each in planned(whole)]
    disclosed = sum(stage.sums * stage.numbers for stage in stages_disclosed(whole))
    assert simulated.released <= disclosed


def test_masks_change_nothing_and_a_run_goes_on_through_dropouts() -> None:
    whole = private.program(*private.LAYER, recalibration.Spec(min_rows=1), multiplier=0.5)
    tables = [private.table(40, seed=s, patients=20) for s in range(5)]
    found = [
        simulate(
            whole,
            tables,
            DEALING,
            secure=secure,
            dropouts={0: (3,), 1: (0,)},
            source=noise.approximate(np.random.default_rng(7)),
        ).model
        for secure in (True, False)
    ]
    assert storage.encode(found[0]) == storage.encode(found[1])


def test_fewer_honest_sites_each_draw_more() -> None:
    whole, tables = private.program(*private.LAYER), [private.table(30, seed=s) for s in range(4)]
    deviations = []
    for honest in (4, 1):
        model = simulate(whole, tables, DEALING, secure=False, honest=honest).model
        assert model.statistics is not None
        assert model.statistics.noise is not None
        deviations.append(model.statistics.noise.cross)
    assert deviations[1] == pytest.approx(2 * deviations[0], rel=1e-2)


def test_a_model_read_from_its_bytes_predicts_the_same() -> None:
    sites = [private.site(private.table(80, seed=s, patients=60)) for s in range(3)]
    model = private.fitted(private.program(*private.LAYER), sites, multiplier=0.3)
    again = restore(storage.encode(model))
    new = {name: column for name, column in private.table(20, seed=9).items() if name != "who"}
    one, other = predict(model, new), predict(again, new)
    assert torch.equal(one.mean, other.mean)
    assert torch.equal(one.variance, other.variance)
    assert bool((one.variance > 0).all())


def test_an_update_adds_rows_and_their_noise() -> None:
    sites = [private.site(private.table(90, seed=s, patients=80)) for s in range(3)]
    model = private.fitted(private.program(*private.LAYER), sites, multiplier=0.1)
    changed = [Site({Part.ADDED: each.parts[Part.CALIBRATION]}, dealing=DEALING) for each in sites]
    more = private.states(update, update.Spec(), model, changed, multiplier=0.1)[-1].model
    assert more.statistics.count > model.statistics.count
    assert more.statistics.noise.cross > model.statistics.noise.cross


def test_rows_to_remove_are_not_read_with_differential_privacy() -> None:
    site = private.site(private.table(90, seed=1))
    model = private.fitted(private.program(*private.LAYER), [site] * 3)
    state = update.initial(update.Spec(), model)
    gone = Site({**site.parts, Part.REMOVED: site.parts[Part.TRAINING]})
    own, more = (update.contribute(state, each) for each in (site, gone))
    assert all(np.array_equal(own[name], more[name]) for name in own)
