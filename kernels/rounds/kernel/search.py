"""Several kernels trained in the same sums; the one that predicts held-out rows best is kept.

Which kernel suits a table cannot be told from its schema: where rows are few a Gaussian process
with a lengthscale for each column is best, where they are many a deep kernel may be, and medical
tables are often nearly linear. So each recipe, a kernel with the way it is trained, runs a short
program of its own: `exact`, then the layers of all targets (`linear`, `outcomes`). All recipes go
on at once, and what they ask for is one vector: a search costs as many sums as its longest recipe,
and one more.

Recipes that fall behind leave the race. While kernels are trained, each sum has their error on the
rows kept for stopping; a recipe whose best error is, after two thirds of its steps, above the least
of all by a margin that narrows to the end, is not trained any further. That saves sums and decides
little: a recipe that is trained stays, as a line that has nothing to train, since on few rows the
least of a hundred errors is low by chance. Those who stay are judged by the log density of the rows
for calibration under their own layers; the rows for stopping have chosen their weights. Residuals
are judged by the law that recalibration would give them, fitted to one half of the rows for the
other half (`kernels.scores.recalibration`): a kernel's own variance is not what is served.

Where rows are few, the densest of several is so by chance. A recipe may therefore have a handicap,
as the logarithm of its prior odds against the simplest: so many nats in all must it be better.

broadcast  the states of all recipes in the race; at the end their finished layers
local      what each of them asks for, side by side; at the end a histogram of |z| in two folds,
           Σ log √v, and Σ −log p of outcomes, over the rows for calibration
sum        the same of all sites together
update     each recipe's own update; at the end the kernel and the weights of the densest

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
from kernels.model.prediction import predict_standardised
from kernels.outcomes.likelihood import MOST_LOSS
from kernels.parameter_checks import check_at_least, check_flag, check_learning_rate, check_whole
from kernels.reproducible import near
from kernels.rounds.algorithm import Algorithm, Contribution, accepted, without_private_form
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.kernel import exact
from kernels.rounds.layer import linear, outcomes
from kernels.rounds.replay import LEAST_BUDGET, Grid, Replay
from kernels.rounds.shared import judged
from kernels.rounds.shared.weighted_sums import likelihoods_at, outcome_chunks
from kernels.rounds.site.site import Part, Site
from kernels.scores.recalibration import BINS, EDGES, FOLDS, fit, histogram
from kernels.storage import PRIVATE
from kernels.strict_json import decode_object, is_text
from privacy.layout import Block, Layout, SecureTotal

NAME = "search"
VERSION = 2
NEEDS = frozenset({Made.STANDARDISER})
MAKES = frozenset({Made.KERNEL, Made.CHOICE})

DENSITY_STEP = 2.0**-12
"""The grid of the held-out log density per row, in nats."""
MOST_RECIPES = 8
_GRACE = 2 / 3
"""The share of its steps before which no recipe leaves: a network is behind smooth kernels for long
before it is ahead of them."""
_WIDEST, _NARROWEST = 0.5, 0.25
"""The margin, as a share of the least error, after that and at the last step of a recipe."""
_LOG_DEVIATION_BOUND = 64.0
_LOG_RESOLUTION = 2.0**-30


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
    """`recipes`: what is tried, the simplest first. `all_finish`: nobody leaves the race."""

    STORED_AS: ClassVar[str] = "search.spec"

    recipes: tuple[Recipe, ...]
    all_finish: bool = False

    def __post_init__(self) -> None:
        given = self.recipes if isinstance(self.recipes, tuple | list) else ()
        object.__setattr__(self, "recipes", tuple(map(_recipe, given)))
        check_flag(all_finish=self.all_finish)
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

    losses: of each recipe −log density per row for calibration, with its handicap; None if it left.
    """

    STORED_AS: ClassVar[str] = "search.verdict"

    losses: tuple[float | None, ...]
    chosen: int


@dataclass(frozen=True, eq=False)
class State:
    """The recipes' runs, in order; the search is over when there is a verdict."""

    STORED_AS: ClassVar[str] = "search.state"

    model: Model
    spec: Spec
    runs: tuple[Run, ...]
    verdict: Verdict | None = None
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
        if not same or own.kernel != _kernel(recipe, self.model) or own.choices:
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
    """Return what all recipes in the race ask for; when all are finished, the densities."""
    blocks = []
    for index in state.racing:
        run = state.runs[index]
        own = _stages(state.spec.recipes[index], state.model)[run.stage][0].layout(run.state)
        blocks += [replace(block, name=_prefix(index) + block.name) for block in own.blocks]
    if not blocks:
        blocks = [block for index in state.finalists for block in _judging_blocks(state, index)]
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
        for index in state.finalists:
            own = _judged(known(state.runs[index].model, NAME), site)
            blocks |= {_prefix(index) + name: each for name, each in own.items()}
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
    judging = sum(
        block.length
        for recipe in spec.recipes
        for block in _blocks_of_densities(_start(recipe, model))
    )
    most = max(own.sums for own in each) + 1
    numbers = max(sum(own.numbers for own in each), judging) + 1
    return Declaration(
        needs=NEEDS,
        needs_students=frozenset(),
        needs_held_out=True,
        makes=MAKES,
        answers=Answers.ALL,
        students=before.students,
        words=_words(spec),
        sums=most,
        numbers=numbers,
        numbers_in_all=sum(own.numbers_in_all for own in each) + judging + most,
        leaves=max(own.leaves for own in each),
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


def _words(spec: Spec) -> str:
    names = ", ".join(recipe.name for recipe in spec.recipes)
    return (
        f"of each of {len(spec.recipes)} kernels ({names}) in turn sums of products of features "
        "(S, b, yᵀy, n) and the gradient of the evidence with the error on held-out rows; at the "
        "end counts of held-out rows by the size of their prediction error. The kernel that "
        "predicts them best is kept"
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
        kept: judged.Kept | None = state.best_of_run or state.best
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


def _judging_blocks(state: State, index: int) -> list[Block]:
    own = _blocks_of_densities(known(state.runs[index].model, NAME))
    return [replace(block, name=_prefix(index) + block.name) for block in own]


def _blocks_of_densities(model: Model) -> list[Block]:
    """Return the blocks of the densities of held-out rows under one model."""
    rows, real, others = float(model.max_rows), model.targets, len(model.schema.outcomes)
    blocks = [Block("held_out", (), rows, 1.0)]
    if real:
        blocks += [
            Block("residuals", (real, FOLDS, BINS), rows, 1.0),
            Block("log_deviations", (real,), rows * _LOG_DEVIATION_BOUND, _LOG_RESOLUTION),
        ]
    if others:
        blocks.append(Block("losses", (others,), rows * MOST_LOSS, _LOG_RESOLUTION))
    return blocks


def _judged(model: Model, site: Site) -> dict[str, NDArray[np.float64]]:
    """Sum what the densities of the site's rows for calibration follow from."""
    counts = torch.zeros(model.targets, FOLDS, BINS, dtype=torch.float64)
    deviations = torch.zeros(model.targets, dtype=torch.float64)
    losses = torch.zeros(len(model.schema.outcomes), dtype=torch.float64)
    likelihoods = likelihoods_at(model, model.outcomes or ())
    part = Part.CALIBRATION
    if model.targets:
        for (x, y, _), fold in site.chunks_in_folds(part, model, folds=FOLDS):
            said = predict_standardised(model, x)
            z = (y - said.mean) / said.variance.sqrt()
            for f in range(FOLDS):
                counts[:, f] += torch.stack([histogram(own[fold == f]) for own in z.mT])
            deviations += said.variance.log().clamp(-60, 60).sum(0) / 2
    if likelihoods:
        for phi, columns in outcome_chunks(model, site, part):
            for index, (at, own) in enumerate(zip(likelihoods, columns, strict=True)):
                losses[index] += at.losses(phi, own).sum()
    blocks = {"held_out": np.array(float(site.count(part)))}
    if model.targets:
        blocks |= {"residuals": counts.numpy(), "log_deviations": deviations.numpy()}
    if likelihoods:
        blocks["losses"] = losses.numpy()
    return blocks


def _chosen(state: State, total: SecureTotal) -> State:
    """Keep the recipe under which the rows for calibration are densest."""
    losses: list[float | None] = [None] * len(state.runs)
    for index in state.finalists:
        model = known(state.runs[index].model, NAME)
        handicap = state.spec.recipes[index].handicap
        losses[index] = _loss(model, total.part(_prefix(index)), handicap)
    best = min(loss for loss in losses if loss is not None)
    chosen = losses.index(best)
    return _settled(state, chosen, tuple(losses))


def _loss(model: Model, total: SecureTotal, handicap: float) -> float:
    """Return −log density per row for calibration, with the handicap, rounded."""
    rows = round(float(total["held_out"]))
    if rows < 1:
        raise ProgramError(
            "a search chooses by held-out rows, and no site has any: set the program's held_out "
            "above 0"
        )
    loss = handicap / rows
    if model.targets:
        counts = torch.tensor(total["residuals"]).round().clamp_min(0.0)
        loss += sum(_residual_loss(own) for own in counts) / rows
        loss += float(torch.tensor(total["log_deviations"]).sum()) / rows
    if model.schema.outcomes:
        loss += float(torch.tensor(total["losses"]).sum()) / rows
    return near(loss, DENSITY_STEP)


def _residual_loss(counts: torch.Tensor) -> float:
    """Return −Σ log p(z) of the rows of each fold (FOLDS, BINS) under the law of the others."""
    ends = torch.cat([EDGES.new_zeros(1), EDGES])
    middles = torch.cat([(ends[1:] + ends[:-1]) / 2, EDGES[-1:]])
    loss = 0.0
    for fold in range(FOLDS):
        law = fit(counts.sum(0) - counts[fold])
        loss -= float(counts[fold] @ law.log_density(middles))
    return loss


def _settled(state: State, chosen: int, losses: tuple[float | None, ...]) -> State:
    """Return the state at the end: the model with the chosen kernel and its weights."""
    own = known(state.runs[chosen].model, NAME)
    model = replace(state.model.advanced(weights=None), kernel=own.kernel, choices=())
    model = model.advanced(weights=own.weights)
    nothing = tuple(Run(run.stage, None) for run in state.runs)
    return replace(state, model=model, runs=nothing, verdict=Verdict(losses, chosen))
