"""Mixtures of the two best kernels of a search, from the sum that finds them to an update."""

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from kernels import storage
from kernels.errors import ProgramError, StateError
from kernels.features.spec import Architecture, KernelSpec
from kernels.features.urk import URK
from kernels.model.model import Model
from kernels.model.prediction import predict
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.kernel import search
from kernels.rounds.kernel.blend import best_share, densest
from kernels.rounds.kernel.search import Recipe
from kernels.rounds.layer import completion, linear, update
from kernels.rounds.plan import declared
from kernels.rounds.program import Program
from kernels.rounds.registry import restore
from kernels.rounds.site.site import Part, Site
from kernels.tables.records import Records
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target
from tests.conformance.algorithm import AdditiveOverRows, EqualToPooled
from tests.dealing import DEALING
from tests.kernels.rounds import outcomes as small
from tests.kernels.rounds import sums, tables
from tests.kernels.rounds.kernel import test_search

CURVE = Schema((Numeric("x", "1", -4, 4),), (Target("y", "1", -9, 9),))
CRUDE = KernelSpec(architecture=Architecture.RBF, inputs=1, samples=2, seed=8)
CHOICES = (CRUDE, replace(CRUDE, seed=9))
"""Two kernels of few random features: either sees half of what is in the table."""
SPEC = search.Spec(
    recipes=(
        Recipe(name="one", kernel=0, steps=1),
        Recipe(name="other", kernel=1, steps=1, handicap=0.5),
    )
)
PROGRAM = Program(
    CURVE,
    CRUDE,
    (tables.moments.Spec(), SPEC, linear.Spec()),
    max_rows=1000,
    held_out=0.4,
    choices=CHOICES,
)


def table(rows: int, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    x = random.uniform(-3, 3, rows)
    z = torch.tensor(x).unsqueeze(1) / math.sqrt(3)
    halves = [URK(own).features(z).sum(1).detach().numpy() for own in CHOICES]
    return {"x": x, "y": sum(halves) + 0.1 * random.normal(size=rows)}


@cache
def sites() -> list[Site]:
    return [site(rows, seed) for seed, rows in enumerate((60, 80, 100))]


def site(rows: int, seed: int) -> Site:
    return Site.of_table(CURVE, table(rows, seed), held_out=0.4, dealing=DEALING)


@cache
def standardised() -> Model:
    program = replace(PROGRAM, stages=PROGRAM.stages[:1])
    return tables.simulate(program, sites(), DEALING, secure=False).model


@cache
def searched() -> search.State:
    found: search.State = sums.after_all(search, SPEC, standardised(), sites())
    return found


@cache
def after(*stages: Any) -> Model:
    """Return the model of two kernels after further stages."""
    model = searched().model
    for algorithm, spec in replace(PROGRAM, stages=stages).algorithms():
        model = sums.after_all(algorithm, spec, model, sites()).model
    return model


class TestSearchOfMixtures(AdditiveOverRows, EqualToPooled):
    algorithm = search

    def spec(self) -> Any:
        return SPEC

    def sites(self) -> list[Site]:
        return list(sites())

    def model(self, sites: list[Site]) -> Model:
        return standardised()

    test_earlier_work_at_a_site_never_shows = (
        test_search.TestSearch.test_earlier_work_at_a_site_never_shows
    )


class TestLinear(AdditiveOverRows, EqualToPooled):
    algorithm = linear

    def spec(self) -> Any:
        return linear.Spec()

    def sites(self) -> list[Site]:
        return list(sites())

    def model(self, sites: list[Site]) -> Model:
        return searched().model


class TestCompletion(TestLinear):
    algorithm = completion

    def spec(self) -> Any:
        return completion.Spec()

    def model(self, sites: list[Site]) -> Model:
        return after(linear.Spec())


class TestUpdate(TestLinear):
    algorithm = update

    def spec(self) -> Any:
        return update.Spec()

    def sites(self) -> list[Site]:
        return [changing(seed) for seed in range(3)]

    def model(self, sites: list[Site]) -> Model:
        return after(linear.Spec(), completion.Spec())


def changing(seed: int) -> Site:
    """Return a site with its training rows, rows to add and rows to remove."""
    training = sites()[seed].records[Part.TRAINING]
    new = Records.for_training(CURVE, table(12, 50 + seed))
    return Site(
        {
            Part.TRAINING: training,
            Part.ADDED: new.between(slice(0, 8)),
            Part.ADDED_HELD_OUT: new.between(slice(8, 12)),
            Part.REMOVED: training.between(slice(0, 3)),
        }
    )


def test_a_mixture_is_kept_if_it_is_denser_than_the_best_kernel_alone() -> None:
    verdict, model = searched().verdict, searched().model
    assert model.second.share == verdict.share
    assert {model.kernel, model.second.kernel} == set(CHOICES)
    assert verdict.losses[verdict.chosen] == min(verdict.losses)
    assert min(verdict.blended) < min(verdict.losses)
    alone = sums.after_all(search, replace(SPEC, blend=False), standardised(), sites())
    assert alone.model.second is None
    assert alone.verdict.losses == verdict.losses
    assert alone.verdict.blended is alone.verdict.second is None
    assert torch.equal(alone.model.weights, model.weights)


def test_it_predicts_new_rows_better_than_the_best_kernel_alone() -> None:
    judging = recalibration.Spec(min_rows=10), evaluation.Spec()
    model = after(linear.Spec(), completion.Spec(), *judging)
    alone = replace(model, second=None)
    new = table(400, 9)
    y = torch.tensor(new["y"])[:, None]

    def loss(own: Model) -> float:
        said = predict(own, {"x": new["x"]})
        return float((said.variance.log() + (y - said.mean).square() / said.variance).mean() / 2)

    assert loss(model) < loss(alone)


def test_a_mixture_that_gains_little_is_not_kept() -> None:
    assert best_share((0.995,) * 7, 1.0, 100) is None
    assert best_share((0.9,) * 7, 1.0, 100) == 0.5, "the prior prefers equal shares"
    assert best_share((*(0.9,) * 6, 0.8), 1.0, 100) == 7 / 8


def test_the_two_densest_are_mixed_and_of_equals_the_simplest() -> None:
    assert densest((3.0, None, 1.0, 2.0)) == (2, 3)
    assert densest((1.0, 1.0, 1.0)) == (0, 1)
    assert densest((None, 1.0)) is None


def test_where_other_kinds_of_targets_are_there_is_one_kernel() -> None:
    own = [small.site(30, seed=seed, schema=small.MIXED) for seed in range(3)]
    model = replace(small.fitted(own), kernel=CRUDE_OF_MIXED, choices=(CRUDE_OF_MIXED,))
    spec = search.Spec(recipes=(replace(SPEC.recipes[0]), Recipe(name="b", kernel=0, steps=1)))
    found = sums.after_all(search, spec, model, own)
    assert found.model.second is None
    assert found.verdict.blended is None


CRUDE_OF_MIXED = replace(CRUDE, inputs=small.KERNEL.inputs)


def test_a_pair_that_is_not_of_finished_recipes_is_refused() -> None:
    states = TestSearchOfMixtures().states()
    last = states[-1]
    assert last.pair is not None
    for state, pair in ((states[0], (0, 1)), (last, (0, 0)), (last, (0, 2)), (last, (1,))):
        with pytest.raises(StateError, match="pair"):
            replace(state, pair=pair)
    with pytest.raises(StateError, match="does not mix"):
        replace(last, spec=replace(SPEC, blend=False))


def test_a_flag_that_is_none_is_refused() -> None:
    with pytest.raises(ProgramError, match="blend"):
        replace(SPEC, blend="yes")


def test_every_held_out_row_is_judged_by_layers_without_it() -> None:
    complete = after(linear.Spec(), completion.Spec())
    before = after(linear.Spec())
    for own, without in zip(complete.judged.members, before.members, strict=True):
        assert own[1] == without[1]
        assert torch.equal(own[0].statistics.scatter, without[0].statistics.scatter)
    assert complete.other.statistics.count == complete.statistics.count > before.statistics.count


def test_an_update_changes_both_layers_as_if_fitted_from_scratch() -> None:
    complete = after(linear.Spec(), completion.Spec())
    changed = sums.after_all(update, update.Spec(), complete, TestUpdate().sites()).model
    assert changed.second.share == complete.second.share
    for (own, _), (old, _) in zip(changed.members, complete.members, strict=True):
        for part, rows in ((own, 3 * (12 - 3)), (own.judged, 3 * (8 - 3))):
            before = old if part is own else old.judged
            assert part.statistics.count == before.statistics.count + rows
        expected = old.statistics.scatter.clone()
        for site in TestUpdate().sites():
            for part, sign in (
                (Part.ADDED, 1),
                (Part.ADDED_HELD_OUT, 1),
                (Part.REMOVED, -1),
            ):
                x = site.table(part, own)[0]
                phi = own.urk.features(x).detach().double()
                expected += sign * phi.T @ phi
        torch.testing.assert_close(own.statistics.scatter, expected, rtol=0, atol=1e-6)


def test_a_new_layer_forgets_removed_rows_in_both_kernels() -> None:
    complete = after(linear.Spec(), completion.Spec())
    few = [Site({Part.TRAINING: site.records[Part.TRAINING]}) for site in sites()[:2]]
    again = sums.after_all(linear, linear.Spec(), complete, few).model
    rows = sum(site.count(Part.TRAINING) for site in few)
    assert again.statistics.count == again.other.statistics.count == rows
    assert again.withheld is None
    assert again.second.withheld is None


def test_a_broadcast_of_an_update_has_neither_layer() -> None:
    state = update.initial(update.Spec(), after(linear.Spec(), completion.Spec()))
    seen = restore(storage.encode(state, broadcast=True))
    assert seen.second is None
    for own in (seen.model, seen.model.second):
        assert own.statistics is own.hyperparameters is own.withheld is None


def test_what_a_run_of_two_kernels_sums_is_declared() -> None:
    """Of a run that starts from a model, too: how many kernels that has is not known before."""
    length = linear.layout(linear.initial(linear.Spec(), searched().model)).length
    *_, own = declared(PROGRAM)
    (later,) = declared(replace(PROGRAM, stages=(linear.Spec(),)))
    (single,) = declared(Program(CURVE, CRUDE, (linear.Spec(),)))
    assert own.numbers == later.numbers == own.leaves == length == 2 * single.numbers
    alone = (PROGRAM.stages[0], replace(SPEC, blend=False), linear.Spec())
    assert declared(replace(PROGRAM, stages=alone))[-1].numbers == single.numbers
