"""Several kernels trained in the same sums, and the one that is kept."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from kernels import storage
from kernels.errors import ProgramError, StateError
from kernels.features.spec import Architecture, KernelSpec
from kernels.model.model import Model
from kernels.rounds.kernel import exact, search
from kernels.rounds.kernel.search import Recipe
from kernels.rounds.program import Program
from kernels.rounds.registry import restore
from kernels.rounds.site.site import Part, Site
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target
from tests.conformance.algorithm import AdditiveOverRows, EqualToPooled
from tests.dealing import DEALING
from tests.kernels.rounds import outcomes as small
from tests.kernels.rounds import sums, tables

LINEAR = KernelSpec(architecture=Architecture.LINEAR, inputs=5)
CHOICES = (LINEAR, tables.KERNEL)
SIMPLE = Recipe(name="linear", kernel=0, steps=1)
DEEP = Recipe(name="deep", kernel=1, steps=3, penalty=3.0)
RECIPES = (SIMPLE, DEEP, Recipe(name="deep, smooth", kernel=1, steps=2, penalty=30.0))


def choosing(model: Model, choices: tuple[KernelSpec, ...] = CHOICES) -> Model:
    return replace(model, kernel=choices[0], choices=choices)


class TestSearch(AdditiveOverRows, EqualToPooled):
    algorithm = search

    def spec(self) -> Any:
        return search.Spec(recipes=RECIPES)

    def model(self, sites: list[Site]) -> Model:
        return choosing(tables.fitted(sites))

    def test_earlier_work_at_a_site_never_shows(self) -> None:
        """Features kept for one recipe, or for a step before, are not those of another."""
        site = self.sites()[0]
        for state in [*self.states(), *reversed(self.states())]:
            one = self.algorithm.contribute(state, site)
            same = self.algorithm.contribute(state, self.sites()[0])
            assert all(np.array_equal(one[name], same[name]) for name in one)

    def test_a_search_costs_two_sums_more_than_its_longest_recipe(self) -> None:
        assert len(self.states()) <= 2 * DEEP.steps + 1 + 2

    def test_each_recipe_is_trained_as_it_would_be_alone(self) -> None:
        sites = self.sites()
        model = self.model(sites)
        start = replace(model, kernel=tables.KERNEL, choices=())
        alone = sums.after_all(exact, DEEP.training, start, sites)
        models = [state.runs[1].model for state in self.states() if state.runs[1].model]
        assert torch.equal(models[0].weights, alone.model.weights)


class TestSearchWithOutcomes(AdditiveOverRows):
    algorithm = search

    def spec(self) -> Any:
        return search.Spec(recipes=RECIPES[:2])

    def sites(self) -> list[Site]:
        return [small.site(30, seed=seed, schema=small.MIXED) for seed in range(3)]

    def model(self, sites: list[Site]) -> Model:
        return choosing(small.fitted(sites), (LINEAR, small.KERNEL))

    test_earlier_work_at_a_site_never_shows = TestSearch.test_earlier_work_at_a_site_never_shows


CURVE = Schema((Numeric("x", "1", -4, 4),), (Target("y", "1", -9, 9),))
STRAIGHT_OR_SMOOTH = (
    KernelSpec(architecture=Architecture.LINEAR, inputs=1),
    KernelSpec(architecture=Architecture.RBF, inputs=1, samples=20, seed=1),
)
BOTH = search.Spec(
    recipes=(
        Recipe(name="straight", kernel=0, steps=1),
        Recipe(name="smooth", kernel=1, steps=2, learning_rate=0.05),
    )
)


def chosen_of(y: Any, spec: search.Spec = BOTH) -> search.State:
    """Return the last state of a search over three sites with y(x) and a little noise."""
    random = np.random.default_rng(5)
    x = random.uniform(-3, 3, 240)
    column = y(x) + 0.1 * random.normal(size=240)
    rows = [slice(0, 60), slice(60, 140), slice(140, 240)]
    sites = [
        Site.of_table(CURVE, {"x": x[r], "y": column[r]}, held_out=0.3, dealing=DEALING)
        for r in rows
    ]
    program = Program(
        CURVE, STRAIGHT_OR_SMOOTH[0], (tables.moments.Spec(),), choices=STRAIGHT_OR_SMOOTH
    )
    model = tables.simulate(program, sites, DEALING, secure=False).model
    found: search.State = sums.after_all(search, spec, model, sites)
    return found


def test_the_kernel_under_which_held_out_rows_are_densest_is_kept() -> None:
    bent = chosen_of(lambda x: np.sin(2 * x))
    assert bent.model.kernel == STRAIGHT_OR_SMOOTH[1]
    assert bent.model.choices == ()
    assert len(bent.model.weights) == 1
    straight = chosen_of(lambda x: 0.8 * x)
    assert straight.model.kernel == STRAIGHT_OR_SMOOTH[0]
    first, second = straight.verdict.losses
    assert first <= second


def test_a_recipe_that_falls_behind_is_not_trained_any_further() -> None:
    slow = replace(BOTH, recipes=(replace(BOTH.recipes[0], steps=9), BOTH.recipes[1]))
    found = chosen_of(lambda x: np.sin(2 * x), slow)
    assert found.verdict.losses[0] is None, "a straight line is far behind, and is not judged"
    steps = [each.step for each in found.history if each.recipe == "straight"]
    assert steps == list(range(6)), "it leaves after two thirds of its steps"


def test_a_recipe_that_is_trained_stays_however_far_behind() -> None:
    """Its error on few rows for stopping decides nothing; training others costs nothing more."""
    first, second = chosen_of(lambda x: np.sin(2 * x)).verdict.losses
    assert first > second


def test_all_are_judged_where_nobody_leaves() -> None:
    found = chosen_of(lambda x: np.sin(2 * x), replace(BOTH, all_finish=True))
    assert None not in found.verdict.losses
    assert found.model.kernel == STRAIGHT_OR_SMOOTH[1]


def test_a_recipe_s_steps_are_told_by_its_name() -> None:
    history = chosen_of(lambda x: 0.8 * x).history
    assert {each.recipe for each in history} == {"straight", "smooth"}
    assert [each.step for each in history if each.recipe == "smooth"] == [0, 1]


def test_what_held_out_rows_said_stays_with_the_coordinator() -> None:
    for state in TestSearch().states():
        seen = restore(storage.encode(state, broadcast=True))
        assert seen.history is None
        assert all(run.error is None for run in seen.runs)


def test_without_held_out_rows_nothing_can_be_chosen() -> None:
    sites = [tables.site(seed=seed) for seed in range(3)]
    alone = [Site({Part.TRAINING: site.records[Part.TRAINING]}) for site in sites]
    with pytest.raises(ProgramError, match="held_out"):
        sums.after_all(
            search, search.Spec(recipes=RECIPES[:2]), choosing(tables.fitted(sites)), alone
        )


@pytest.mark.parametrize(
    ("recipes", "why"),
    [
        ((), "1 to 8"),
        ((SIMPLE, SIMPLE), "different names"),
        ((SIMPLE, replace(DEEP, kernel=2)), "positions"),
        ((SIMPLE,), "every choice"),
    ],
)
def test_recipes_that_do_not_fit_the_choices_are_refused(recipes: Any, why: str) -> None:
    model = choosing(tables.fitted([tables.site(seed=seed) for seed in range(3)]))
    with pytest.raises(ProgramError, match=why):
        search.initial(search.Spec(recipes=recipes), model)


def test_a_state_with_another_kernel_than_its_recipe_s_is_refused() -> None:
    first = TestSearch().states()[0]
    other = replace(tables.KERNEL, seed=99)
    run = first.runs[1]
    moved = replace(run, state=replace(run.state, model=replace(run.state.model, kernel=other)))
    with pytest.raises(StateError, match="not that of its kernel"):
        replace(first, runs=(first.runs[0], moved, first.runs[2]))


def test_when_a_search_is_over_no_state_of_another_kernel_can_be_in_it() -> None:
    states = TestSearch().states()
    verdict = search.Verdict((None, None, None), 1)
    with pytest.raises(StateError, match="no recipe has a state"):
        replace(states[0], verdict=verdict)
    run = replace(states[0].runs[0], model=states[0].model)
    with pytest.raises(StateError, match="a state while it runs"):
        replace(states[0], runs=(run, *states[0].runs[1:]))


def test_a_program_with_choices_is_read_as_it_was_written() -> None:
    stages = (tables.moments.Spec(), search.Spec(recipes=RECIPES), tables.linear.Spec())
    program = Program(tables.SCHEMA, LINEAR, stages, choices=CHOICES)
    again = Program.from_json(program.to_json())
    assert again == program
    assert again.kernels == CHOICES


@pytest.mark.parametrize(
    "choices",
    [CHOICES[::-1], (LINEAR, LINEAR), (LINEAR, replace(LINEAR, inputs=4)), (LINEAR, "deep")],
)
def test_choices_that_are_not_different_kernels_of_one_table_are_refused(choices: Any) -> None:
    with pytest.raises(ProgramError, match="choices"):
        Program(tables.SCHEMA, LINEAR, (tables.moments.Spec(),), choices=choices)
