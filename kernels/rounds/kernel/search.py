"""Several kernels trained in the same sums; the one that predicts held-out rows best is kept.

Which kernel suits a table cannot be told from its schema: where rows are few a Gaussian process
with a lengthscale for each column is best, where they are many a deep kernel may be, and medical
tables are often nearly linear. So each recipe, a kernel with the way it is trained, runs a short
program of its own: `exact`, then the layers of all targets (`linear`, `outcomes`). All recipes go
on at once, and what they ask for is one vector: a search costs as many sums as its longest recipe,
and at most two more.

Recipes that fall behind leave the race. While kernels are trained, each sum has their error on the
rows kept for stopping; a recipe whose best error is, after two thirds of its steps, above the least
of all by a margin that narrows to the end, is not trained any further. That saves sums and decides
little: a recipe that is trained stays, as a line that has nothing to train, since on few rows the
least of a hundred errors is low by chance. Those who stay are judged by the log density of all
held-out rows under their own layers (`kernels.rounds.kernel.densities`).

Two kernels that are about as good are wrong about different rows. If all targets are real numbers,
one further sum judges mixtures of the two densest, and the second stays beside the first if that
pays (`kernels.rounds.kernel.blend`). Its layer is summed by the stages after this one, as that of
the first: a run of the layer alone sums both again, and forgets rows that were removed.

Where rows are few, the densest of several is so by chance. A recipe may therefore have a handicap,
as the logarithm of its prior odds against the simplest: so many nats in all must it be better.

broadcast  the states of all recipes in the race; at the end their finished layers
local      what each of them asks for, side by side; at the end a histogram of |z| in two folds,
           Σ log √v, and Σ −log p of outcomes, over the held-out rows, and then the same for
           mixtures of two
sum        the same of all sites together
update     each recipe's own update; at the end the kernel and the weights of the densest, and those
           of the second

The densities of several targets are added. Of densities that are equal up to DENSITY_STEP per row
the first recipe's is taken: rounding must not decide.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from kernels.errors import ProgramError, StateError
from kernels.features.urk import weight_count
from kernels.model.model import Model, check_model, known
from kernels.model.second import SHARES, Second
from kernels.parameter_checks import check_at_least, check_flag, check_learning_rate, check_whole
from kernels.rounds.algorithm import Algorithm, Contribution, accepted, without_private_form
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.kernel import exact
from kernels.rounds.kernel.blend import (
    best_share,
    densest,
    judged_mixtures,
    mixture_blocks,
    mixture_losses,
    rows_mixed,
)
from kernels.rounds.kernel.densities import density_blocks, judged, loss
from kernels.rounds.layer import linear, outcomes
from kernels.rounds.replay import LEAST_BUDGET, Grid, Replay
from kernels.rounds.shared.judged import Kept
from kernels.rounds.site.site import Part, Site
from kernels.storage import PRIVATE
from kernels.strict_json import decode_object, is_text
from privacy.layout import Block, Layout, SecureTotal

NAME = "search"
VERSION = 4
NEEDS = frozenset({Made.STANDARDISER})
MAKES = frozenset({Made.KERNEL, Made.CHOICE})

MOST_RECIPES = 8
_GRACE = 2 / 3
"""The share of its steps before which no recipe leaves: a network is behind smooth kernels for long
before it is ahead of them."""
_WIDEST, _NARROWEST = 0.5, 0.25
"""The margin, as a share of the least error, after that and at the last step of a recipe."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One kernel and how it is trained: `exact` with one penalty.

    name: for people. kernel: its position among the program's choices. handicap: in nats.
    """

    STORED_AS: ClassVar[str] = "search.recipe"

    name: str
    kernel: int
    steps: int
    learning_rate: float = 0.02
    warm_up: int = 10
    clip: float = 0.3
    penalty: float = 0.0
    patience: int = 0
    handicap: float = 0.0

    def __post_init__(self) -> None:
        if not is_text(self.name) or len(self.name) > 100:
            raise ProgramError("a recipe's name must be a text of at most 100 characters")
        check_whole(0, kernel=self.kernel, warm_up=self.warm_up, patience=self.patience)
        check_whole(1, steps=self.steps)
        check_learning_rate(learning_rate=self.learning_rate)
        check_at_least(1e-9, clip=self.clip)
        check_at_least(0.0, penalty=self.penalty, handicap=self.handicap)

    @property
    def training(self) -> exact.Spec:
        """The parameters of its phase 1."""
        return exact.Spec(
            steps=self.steps,
            learning_rate=self.learning_rate,
            warm_up=self.warm_up,
            clip=self.clip,
            penalties=(self.penalty,),
            patience=self.patience,
        )


@dataclass(frozen=True, kw_only=True)
class Spec:
    """`recipes`: what is tried, the simplest first. `all_finish`: nobody leaves the race.

    blend: a mixture of the two densest is kept if it is better, for targets that are real numbers.
    """

    STORED_AS: ClassVar[str] = "search.spec"

    recipes: tuple[Recipe, ...]
    all_finish: bool = False
    blend: bool = True

    def __post_init__(self) -> None:
        given = self.recipes if isinstance(self.recipes, tuple | list) else ()
        object.__setattr__(self, "recipes", tuple(map(_recipe, given)))
        check_flag(all_finish=self.all_finish, blend=self.blend)
        if not 1 <= len(self.recipes) <= MOST_RECIPES:
            raise ProgramError(f"recipes must be a list of 1 to {MOST_RECIPES} recipes")
        if len({own.name for own in self.recipes}) != len(self.recipes):
            raise ProgramError("recipes must have different names")


@dataclass(frozen=True, eq=False)
class Run:
    """How far one recipe is.

    stage: its position among `_stages`; beyond them, it is finished. state: that of its algorithm;
    None if it is finished or has left the race. model: its finished model. error: the least error
    on the rows for stopping, as far as it has one.
    """

    STORED_AS: ClassVar[str] = "search.run"

    stage: int
    state: Any
    model: Model | None = None
    error: float | None = field(default=None, metadata=PRIVATE)

    def __post_init__(self) -> None:
        check_whole(0, stage=self.stage)
        if self.model is not None:
            check_model(self.model)

    @property
    def left(self) -> bool:
        """Whether it has left the race."""
        return self.state is None and self.model is None


@dataclass(frozen=True, eq=False)
class Progress(exact.Progress):
    """One step of a recipe's phase 1."""

    STORED_AS: ClassVar[str] = "search.progress"

    recipe: str = ""


@dataclass(frozen=True, eq=False)
class Verdict:
    """What the search has found.

    losses: of each recipe −log density per held-out row, with its handicap; None if it left.
    second, blended: the next one, and the losses of mixtures of both by share; None if none was
    tried. share: that of the second recipe in the mixture that is kept; None if one kernel is.
    """

    STORED_AS: ClassVar[str] = "search.verdict"

    losses: tuple[float | None, ...]
    chosen: int
    second: int | None = None
    blended: tuple[float, ...] | None = None
    share: float | None = None


@dataclass(frozen=True, eq=False)
class State:
    """The recipes' runs, in order; the search is over when there is a verdict.

    pair: the two recipes that the next sum mixes, the denser one first. losses: then those of all
    recipes, as in the verdict.
    """

    STORED_AS: ClassVar[str] = "search.state"

    model: Model
    spec: Spec
    runs: tuple[Run, ...]
    verdict: Verdict | None = None
    pair: tuple[int, int] | None = None
    losses: tuple[float | None, ...] | None = field(default=None, metadata=PRIVATE)
    history: tuple[Progress, ...] | None = field(default=None, metadata=PRIVATE)

    def __post_init__(self) -> None:
        check_model(self.model)
        if not isinstance(self.spec, Spec) or len(self.runs) != len(self.spec.recipes):
            raise StateError("a search must have one run for each of its recipes")
        if self.verdict is not None:
            if not all(isinstance(run, Run) and run.left for run in self.runs):
                raise StateError("when a search is over, no recipe has a state or a model any more")
            return
        for recipe, run in zip(self.spec.recipes, self.runs, strict=True):
            if not isinstance(run, Run):
                raise StateError("the runs of a search must be Runs")
            if run.state is not None and run.model is not None:
                raise StateError("a recipe has a state while it runs, and a model afterwards")
            if run.state is not None:
                self._check_state(recipe, run)
            if run.model is not None:
                self._check_own(recipe, run.model)
        if all(run.left for run in self.runs):
            raise StateError("a search must have a recipe in the race")
        self._check_pair()

    def _check_pair(self) -> None:
        """Refuse a pair of other recipes than two that are finished, when all are."""
        pair = self.pair
        if pair is None:
            return
        two = isinstance(pair, tuple) and len(pair) == 2 and len(set(pair)) == 2
        if not two or self.racing or not set(pair) <= set(self.finalists):
            raise StateError("the pair of a search must be two of its finished recipes")
        if not _may_blend(self.spec, self.model):
            raise StateError("this search does not mix recipes")

    def _check_state(self, recipe: Recipe, run: Run) -> None:
        stages = _stages(recipe, self.model)
        if run.stage >= len(stages):
            raise StateError("a finished recipe has a model and no state")
        algorithm, spec = stages[run.stage]
        state: Any = run.state
        if type(run.state) is not algorithm.State or state.spec != spec:
            raise StateError(f"the run of recipe {recipe.name!r} has another state than its stage")
        self._check_own(recipe, state.model)

    def _check_own(self, recipe: Recipe, own: Model) -> None:
        """Refuse a recipe's model that differs from the search's in more than its kernel."""
        check_model(own)
        names = ("schema", "max_rows", "privacy", "standardiser", "census")
        same = all(_same(getattr(own, name), getattr(self.model, name)) for name in names)
        beside = own.choices or own.second is not None
        if not same or own.kernel != _kernel(recipe, self.model) or beside:
            raise StateError(f"the model of recipe {recipe.name!r} is not that of its kernel")

    @property
    def racing(self) -> tuple[int, ...]:
        """The recipes that are not finished and have not left."""
        return tuple(index for index, run in enumerate(self.runs) if run.state is not None)

    @property
    def finalists(self) -> tuple[int, ...]:
        """The recipes that are finished."""
        return tuple(index for index, run in enumerate(self.runs) if run.model is not None)


def layout(state: State) -> Layout:
    """Return what all recipes in the race ask for; when all are finished, densities."""
    blocks = []
    for index in state.racing:
        run = state.runs[index]
        own = _stages(state.spec.recipes[index], state.model)[run.stage][0].layout(run.state)
        blocks += [replace(block, name=_prefix(index) + block.name) for block in own.blocks]
    if not blocks:
        blocks = _judging_blocks(state)
    return Layout((*blocks, _rows_block(state.model)))


def initial(spec: Spec, model: Model) -> State:
    """Start every recipe at its kernel's initial weights."""
    _check_kernels(spec, model)
    runs = []
    for recipe in spec.recipes:
        algorithm, own = _stages(recipe, model)[0]
        runs.append(Run(0, algorithm.initial(own, _start(recipe, model))))
    return State(model, spec, tuple(runs), history=())


def contribute(state: State, site: Site) -> Contribution:
    """Return each recipe's contribution, or the densities of the held-out rows."""
    blocks: dict[str, NDArray[np.float64]] = {}
    for index in state.racing:
        run = state.runs[index]
        algorithm, _ = _stages(state.spec.recipes[index], state.model)[run.stage]
        own = algorithm.contribute(run.state, site)
        blocks |= {_prefix(index) + name: each for name, each in own.items()}
    if not state.racing:
        blocks = _judged(state, site)
    return {**blocks, "rows": np.array(float(site.count(Part.TRAINING)))}


def update(state: State, total: SecureTotal) -> State:
    """Move every recipe on, and let those leave that fall behind; at the end, choose."""
    total = accepted(total, layout(state))
    if not state.racing:
        return _chosen(state, total)
    runs, told = list(state.runs), list(known(state.history, NAME))
    for index in state.racing:
        recipe = state.spec.recipes[index]
        runs[index], new = _moved(recipe, runs[index], total.part(_prefix(index)), state.model)
        told += new
    least = min((run.error for run in runs if run.error is not None), default=None)
    least = None if state.spec.all_finish else least
    runs = [
        Run(run.stage, None) if _falls_behind(recipe, run, least) else run
        for recipe, run in zip(state.spec.recipes, runs, strict=True)
    ]
    return replace(state, runs=tuple(runs), history=tuple(told))


def finished(state: State) -> bool:
    """Return whether a recipe has been chosen."""
    return state.verdict is not None


check_private = without_private_form(
    "a search trains kernels by exact gradients and chooses by held-out rows: with differential "
    "privacy state the kernel instead of choices"
)


_OWN_GRIDS: dict[str, Grid] = {
    name: grid
    for algorithm in (exact, linear, outcomes)
    for name, grid in algorithm.REPLAY.grids.items()
    if ".second." not in name  # a recipe has one kernel
}
"""Those of every algorithm that a run's state may be of."""
REPLAY = Replay(
    grids={
        # A recipe's layers of outcomes are in its model, when its state is no more.
        **{
            f"runs.state.{name}": grid
            for name, grid in _OWN_GRIDS.items()
            if not name.startswith("model.outcomes")
        },
        **{f"runs.{name}": grid for name, grid in _OWN_GRIDS.items() if name.startswith("model.")},
    },
    budget=LEAST_BUDGET * MOST_RECIPES,
)


def declare(spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    model = before.model
    _check_kernels(spec, model)
    each = [_declared(recipe, before) for recipe in spec.recipes]
    judging = [len(spec.recipes) * sum(block.length for block in density_blocks(model))]
    if _may_blend(spec, model):
        judging.append(sum(block.length for block in mixture_blocks(model)))
    kept = sorted(own.leaves for own in each)[-len(judging) :]
    most = max(own.sums for own in each) + len(judging)
    numbers = max(sum(own.numbers for own in each), *judging) + 1
    return Declaration(
        needs=NEEDS,
        needs_students=frozenset(),
        needs_held_out=True,
        makes=MAKES,
        answers=Answers.ALL,
        students=before.students,
        words=_words(spec, model),
        sums=most,
        numbers=numbers,
        numbers_in_all=sum(own.numbers_in_all for own in each) + sum(judging) + most,
        # The weights of one kernel, or those of two and the share.
        leaves=sum(kept) + len(kept) - 1,
        row_count="rows",
        local_passes=0,
        rate_times_steps=max(own.learning_rate * own.steps for own in spec.recipes),
        reads=frozenset({Part.TRAINING, Part.STOPPING, Part.CALIBRATION}),
        summed_together=frozenset({frozenset({Part.TRAINING})}),
        sampling_rate=1.0,
        noise_share=1.0,
        public_rows=PublicRows.NONE,
        public_set=None,
        needs_consent=False,
        includes=frozenset(own.NAME for own, _ in _stages(spec.recipes[0], model)),
        replay=REPLAY,
    )


STORED = (Spec, Recipe, State, Run, Progress, Verdict)


def _words(spec: Spec, model: Model) -> str:
    names = ", ".join(recipe.name for recipe in spec.recipes)
    kept = "The kernel that predicts them best is kept"
    if _may_blend(spec, model):
        kept = (
            f"These counts again for {SHARES - 1} mixtures of the best two. The kernel that "
            "predicts them best is kept, or both if a mixture is better: the stages after this one "
            "then sum for both"
        )
    return (
        f"of each of {len(spec.recipes)} kernels ({names}) in turn sums of products of features "
        "(S, b, yᵀy, n) and the gradient of the evidence with the error on held-out rows; at the "
        f"end counts of held-out rows by the size of their prediction error. {kept}"
    )


@dataclass(frozen=True)
class _Declared:
    """The most that one recipe asks for."""

    sums: int
    numbers: int
    numbers_in_all: int
    leaves: int


def _declared(recipe: Recipe, before: Before) -> _Declared:
    own = replace(before, model=_start(recipe, before.model))
    stages = [algorithm.declare(spec, own) for algorithm, spec in _stages(recipe, before.model)]
    return _Declared(
        sum(each.sums for each in stages),
        max(each.numbers for each in stages),
        sum(each.numbers_in_all for each in stages),
        weight_count(own.model.kernel),
    )


def _recipe(given: object) -> Recipe:
    """Return a recipe, as it is or from the object of a program's JSON."""
    if isinstance(given, Recipe):
        return given
    wrong: list[str] = []
    found = decode_object(Recipe, given, "a recipe", wrong)
    if found is None:
        raise ProgramError("; ".join(wrong))
    return found


def _check_kernels(spec: Spec, model: Model) -> None:
    if not model.choices:
        raise ProgramError("a search needs kernels to choose from: list them as the choices")
    unused = set(range(len(model.choices))) - {own.kernel for own in spec.recipes}
    if unused or any(own.kernel >= len(model.choices) for own in spec.recipes):
        raise ProgramError(
            f"the recipes' kernels must be the positions of the {len(model.choices)} choices, from "
            "0, and every choice must have a recipe"
        )


def _kernel(recipe: Recipe, model: Model) -> Any:
    return model.choices[recipe.kernel]


def _start(recipe: Recipe, model: Model) -> Model:
    """Return the search's model with the recipe's kernel."""
    return replace(model.advanced(weights=None), kernel=_kernel(recipe, model), choices=())


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if type(one) is type(other) and hasattr(one, "__dataclass_fields__"):
        return all(
            _same(getattr(one, name), getattr(other, name)) for name in one.__dataclass_fields__
        )
    return bool(one == other)


def _stages(recipe: Recipe, model: Model) -> Sequence[tuple[Algorithm, Any]]:
    """Return a recipe's own program."""
    stages: list[tuple[Algorithm, Any]] = [(exact, recipe.training)]
    if model.schema.real:
        stages.append((linear, linear.Spec()))
    if model.schema.outcomes:
        stages.append((outcomes, outcomes.Spec()))
    return stages


def _prefix(index: int) -> str:
    return f"{index}."


def _rows_block(model: Model) -> Block:
    return Block("rows", (), float(model.max_rows), 1.0)


def _moved(
    recipe: Recipe, run: Run, total: SecureTotal, model: Model
) -> tuple[Run, list[Progress]]:
    """Return a run after a sum, at the next stage that needs one, and its new steps."""
    stages = _stages(recipe, model)
    algorithm, _ = stages[run.stage]
    state, stage = algorithm.update(run.state, total), run.stage
    error, told = run.error, []
    if algorithm is exact:
        kept: Kept | None = state.best_of_run or state.best
        error = error if kept is None else kept.error
        told = list(_told(recipe, run.state, state))
    while algorithm.finished(state):
        stage += 1
        if stage == len(stages):
            return Run(stage, None, state.model, error), told
        algorithm, spec = stages[stage]
        state = algorithm.initial(spec, state.model)
    return Run(stage, state, None, error), told


def _told(recipe: Recipe, before: Any, after: Any) -> Iterator[Progress]:
    """Yield the steps of phase 1 that are new."""
    for each in known(after.history, NAME)[len(known(before.history, NAME)) :]:
        yield Progress(
            each.run,
            each.step,
            each.evidence,
            each.held_out_error,
            each.gradient_norm,
            recipe=recipe.name,
        )


def _falls_behind(recipe: Recipe, run: Run, least: float | None) -> bool:
    """Return whether a recipe's best error is too far above the least."""
    if run.left:
        return True
    if run.stage or run.error is None or least is None:
        return False
    done = float(run.state.step / recipe.steps)
    if done < _GRACE:
        return False
    margin = _WIDEST + (_NARROWEST - _WIDEST) * (done - _GRACE) / (1 - _GRACE)
    return run.error > least * (1 + margin)


def _judging_blocks(state: State) -> list[Block]:
    """Return the blocks of the last sums: densities under each finalist, then under mixtures."""
    if state.pair is not None:
        return mixture_blocks(known(state.runs[state.pair[0]].model, NAME))
    return [
        replace(block, name=_prefix(index) + block.name)
        for index in state.finalists
        for block in density_blocks(known(state.runs[index].model, NAME))
    ]


def _judged(state: State, site: Site) -> dict[str, NDArray[np.float64]]:
    models = {index: known(state.runs[index].model, NAME) for index in state.finalists}
    if state.pair is not None:
        first, second = state.pair
        return judged_mixtures(models[first], models[second], site)
    return {
        _prefix(index) + name: each
        for index, own in models.items()
        for name, each in judged(own, site).items()
    }


def _chosen(state: State, total: SecureTotal) -> State:
    """Keep the recipe under which the held-out rows are densest, unless two are mixed."""
    if state.pair is not None:
        return _mixed(state, state.pair, total)
    losses: list[float | None] = [None] * len(state.runs)
    for index in state.finalists:
        model = known(state.runs[index].model, NAME)
        handicap = state.spec.recipes[index].handicap
        losses[index] = loss(model, total.part(_prefix(index)), handicap)
    pair = densest(losses) if _may_blend(state.spec, state.model) else None
    if pair is not None:
        return replace(state, pair=pair, losses=tuple(losses))
    best = min(loss for loss in losses if loss is not None)
    return _settled(state, Verdict(tuple(losses), losses.index(best)))


def _mixed(state: State, pair: tuple[int, int], total: SecureTotal) -> State:
    """Keep the densest recipe, and the next one beside it if their mixture is denser."""
    first, second = pair
    model, losses = known(state.runs[first].model, NAME), known(state.losses, NAME)
    handicaps = state.spec.recipes[first].handicap, state.spec.recipes[second].handicap
    found = mixture_losses(model, total, handicaps)
    share = best_share(found, known(losses[first], NAME), rows_mixed(total))
    return _settled(state, Verdict(losses, first, second, found, share))


def _may_blend(spec: Spec, model: Model) -> bool:
    """Return whether two recipes can be mixed in the end."""
    return spec.blend and len(spec.recipes) > 1 and not model.schema.outcomes


def _settled(state: State, verdict: Verdict) -> State:
    """Return the state at the end: the model with the chosen kernels and their weights."""
    own = known(state.runs[verdict.chosen].model, NAME)
    model = replace(state.model.advanced(weights=None), kernel=own.kernel, choices=())
    model = model.advanced(weights=own.weights)
    if verdict.share is not None:
        other = known(state.runs[known(verdict.second, NAME)].model, NAME)
        beside = Second(kernel=other.kernel, share=verdict.share, weights=other.weights)
        model = model.advanced(second=beside)
    nothing = tuple(Run(run.stage, None) for run in state.runs)
    return replace(state, model=model, runs=nothing, verdict=verdict, pair=None, losses=None)
