"""Phase 1, exact: the gradient of the pooled evidence, with two sums per step.

The negative log evidence L of all rows depends on θ only through S and b, so
∂L/∂θ = Σ_c ∂/∂θ [⟨G_S, S_c(θ)⟩ + ⟨G_b, b_c(θ)⟩] with G_S = ∂L/∂S and G_b = ∂L/∂b at the sums
(`kernels.layer.evidence`). There is no client drift and any optimiser works: each step equals the
one on pooled rows, up to rounding. Many steps would amplify rounding errors, as in any training, so
features, targets and weights are rounded to grids (`kernels.rounds.shared.grid`): dividing the same
rows differently among sites gives the same weights.

Targets that are not real numbers add the bounds of their own layers (`kernels.outcomes`), whose
gradients have the same form with G_S and G_b of each. Their q is carried from one θ to the next and
takes one step at each: it follows θ, and the Pólya–Gamma bound rises with every step.

broadcast  θ; then also σ, λ and the pooled statistics, from which each site computes G_S, G_b, w̄;
           of outcomes the sums so far, from which each site computes q
local      S_c, b_c, y_cᵀy_c, n_c, and of outcomes S_ω, b, Σt at q; then the gradient of
           ⟨G_S, S_c⟩ + ⟨G_b, b_c⟩ divided by n, and the error of the predictions on the rows kept
           for stopping
sum        the pooled statistics; then the pooled gradient and the held-out error
update     σ and λ from the statistics; then one step of Adam on L/n + τ‖θ‖²/2n, and θ rounded to
           its grid

The recipe (warm-up, cosine, clipped gradient, σ and λ refitted at every step rather than by Adam,
the checkpoint and τ chosen by held-out error) is the one measured on prototypes. There is one pass
for each τ.

With differential privacy, `private_exact` takes a few such steps with noise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels import adam
from kernels.errors import StateError, StatisticsError
from kernels.features.urk import starting_weights, weight_count
from kernels.layer.evidence import PooledEvidence, feature_gradient
from kernels.layer.posterior import SCALE_BITS, Hyperparameters
from kernels.layer.refit import refit
from kernels.model.model import Model, check_model, known
from kernels.outcomes.fitted import FittedOutcome, check_outcomes
from kernels.outcomes.likelihood import Likelihood
from kernels.parameter_checks import check_at_least, check_learning_rate, check_whole, choices
from kernels.reproducible import near, norm
from kernels.rounds.algorithm import Contribution, accepted, without_private_form
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import LEAST_BUDGET, SCALES, Bits, Replay, Step
from kernels.rounds.shared import judged
from kernels.rounds.shared.evidence_step import stepped
from kernels.rounds.shared.grid import WEIGHT_STEP, gridded, regenerated
from kernels.rounds.shared.held_out import (
    held_out_blocks,
    held_out_contribution,
    held_out_error,
)
from kernels.rounds.shared.judged import Kept
from kernels.rounds.shared.pooled import EVIDENCE_STEP, Pooled, check_pooled
from kernels.rounds.shared.sufficient import (
    RESOLUTION,
    contribution_of,
    rows_block,
    statistics_length,
)
from kernels.rounds.shared.weighted_sums import (
    all_statistics_blocks,
    contribution_at,
    likelihoods_at,
    negative_bound,
    outcome_columns,
    outcome_numbers,
    site_outcomes,
    starting,
)
from kernels.rounds.shared.weighted_sums import stepped as stepped_outcomes
from kernels.rounds.site.site import Part, Site
from kernels.storage import PRIVATE, check_rows
from kernels.tables.chunks import CHUNK_ROWS, chunks
from privacy.layout import Block, Layout, SecureTotal

NAME = "exact"
VERSION = 4
NEEDS = frozenset({Made.STANDARDISER})
MAKES = frozenset({Made.KERNEL})

GRADIENT_BOUND = 256.0
"""Bound on each element of one site's gradient of L/n; beyond it the run fails by name."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The recipe.

    steps: the number of weights judged for each penalty, including the start; between them are
        steps of Adam. learning_rate: the highest rate. warm_up: steps until it is reached.
    clip: the maximum norm of the gradient of L/n. penalties: the τ to choose from.
    patience: stop a pass after this many steps that are worse than the kept one; 0 never stops.
    """

    STORED_AS: ClassVar[str] = "exact.spec"

    steps: int = 200
    learning_rate: float = 0.01
    warm_up: int = 10
    clip: float = 0.3
    penalties: tuple[float, ...] = (3.0, 30.0)
    patience: int = 0

    def __post_init__(self) -> None:
        check_whole(1, steps=self.steps)
        check_whole(0, warm_up=self.warm_up, patience=self.patience)
        check_learning_rate(learning_rate=self.learning_rate)
        check_at_least(1e-9, clip=self.clip)
        object.__setattr__(self, "penalties", choices(penalties=self.penalties))


@dataclass(frozen=True, eq=False)
class Progress(judged.Progress):
    """Numbers that describe one step, including the norm of the gradient of L/n."""

    STORED_AS: ClassVar[str] = "exact.progress"

    gradient_norm: float | None = None


@dataclass(frozen=True, eq=False)
class Layer:
    """What a site's part of the gradient needs: G_S (M, M), G_b and w̄ (M, T)."""

    scatter_gradient: Tensor
    cross_gradient: Tensor
    posterior_weights: Tensor


@dataclass(frozen=True, eq=False)
class State:
    """The optimiser's state.

    rows: the number of rows of the statistics at θ; None when the next sum is of statistics.
    pooled: the statistics of the targets that are real numbers, if there are any.
    fitted: the q of the other targets; at the start of a pass, their priors.
    best: the best of the finished passes. best_of_run: the best of the current pass so far.
    """

    STORED_AS: ClassVar[str] = "exact.state"

    model: Model
    spec: Spec
    run: int = 0
    step: int = 0
    rows: int | None = None
    pooled: Pooled | None = None
    fitted: tuple[FittedOutcome, ...] = ()
    evidence: float | None = field(default=None, metadata=PRIVATE)
    start: Tensor | None = field(default=None, metadata=PRIVATE)
    first_moment: Tensor | None = field(default=None, metadata=PRIVATE)
    second_moment: Tensor | None = field(default=None, metadata=PRIVATE)
    best: Kept | None = field(default=None, metadata=PRIVATE)
    best_of_run: Kept | None = field(default=None, metadata=PRIVATE)
    history: tuple[Progress, ...] | None = field(default=None, metadata=PRIVATE)

    def __post_init__(self) -> None:
        check_model(self.model)
        check_whole(0, run=self.run, step=self.step)
        if self.run > len(self.spec.penalties) or self.step > self.spec.steps:
            raise StateError(f"step {self.step} of run {self.run} is beyond what the program has")
        if self.rows is not None:
            check_rows(self.rows)
        if (self.pooled is not None) != (self.rows is not None and bool(self.model.targets)):
            raise StateError("this state has pooled statistics if and only if they were summed")
        if self.pooled is not None:
            check_pooled(self.pooled, self.model)
        check_outcomes(self.fitted, self.model.schema, self.model.kernel.features)

    @cached_property
    def likelihoods(self) -> tuple[Likelihood, ...]:
        """The outcomes at their q, made before any row is read."""
        return likelihoods_at(self.model, self.fitted)

    @cached_property
    def layer(self) -> "Layer | None":
        """What a site needs for targets that are real numbers; None if there are none."""
        if self.pooled is None:
            return None
        spectrum = self.pooled.spectrum(self.model.kernel)
        scales = known(self.model.hyperparameters, NAME)
        gradient = PooledEvidence.of(spectrum, scales)
        return Layer(
            gradient.scatter_gradient,
            gradient.cross_gradient,
            spectrum.posterior_weights(scales),
        )


@dataclass(frozen=True, eq=False)
class Features:
    """A site's features at one θ, and the map from ∂/∂Φ of the training rows to ∂/∂θ."""

    training: Tensor
    held_out: Tensor
    pullback: Callable[[Tensor], Tensor]


def layout(state: State) -> Layout:
    """Return (S, b, yᵀy, n) and the sums of outcomes, or the gradient with the held-out error."""
    model = state.model
    if state.rows is None:
        return Layout(all_statistics_blocks(model, state.fitted))
    return Layout(
        (
            Block("gradient", (weight_count(model.kernel),), GRADIENT_BOUND, RESOLUTION),
            rows_block(model),
            *held_out_blocks(model),
        )
    )


def initial(spec: Spec, model: Model) -> State:
    """Start at the model's weights from an earlier stage, or else the kernel's initial weights."""
    start = starting_weights(model.kernel) if model.weights is None else model.weights
    model = model.advanced(weights=start)
    zero = torch.zeros_like(start)
    fitted = starting(model)
    return State(
        model,
        spec,
        fitted=fitted,
        start=start,
        first_moment=zero,
        second_moment=zero,
        history=(),
    )


def contribute(state: State, site: Site) -> Contribution:
    """Return the site's statistics, or its part of the gradient and of the held-out error."""
    model, likelihoods = state.model, state.likelihoods
    layer = state.layer
    training, stopping = (site.count(part) for part in (Part.TRAINING, Part.STOPPING))
    if not 0 < training <= model.kernel.rows_at_a_time(CHUNK_ROWS) - stopping:
        return _contribute_in_chunks(state, site)
    x, y = site.table(Part.TRAINING, model)
    # Both sums of a step use the same weights, so the second reuses the features of the first.
    features = None if state.rows is None else site.take_kept(model)
    if not isinstance(features, Features):
        held_out, _ = site.table(Part.STOPPING, model)
        phi, pullback = model.urk.features_and_pullback(torch.cat([x, held_out]))
        features = Features(phi[: len(x)], phi[len(x) :], pullback)
    columns = site_outcomes(model, site, Part.TRAINING)
    if state.rows is None:
        site.keep(model, features)
        return _statistics(state, features.training, y, columns)
    gradient = _feature_gradient(layer, likelihoods, features.training, y, columns)
    return {
        "gradient": features.pullback(gradient.div_(state.rows)).numpy(),
        "rows": np.array(float(len(x))),
        **held_out_contribution(
            model,
            None if layer is None else layer.posterior_weights,
            site,
            features=features.held_out,
            likelihoods=likelihoods,
        ),
    }


def update(state: State, total: SecureTotal) -> State:
    """Prepare the gradient, or take a step."""
    total = accepted(total, layout(state))
    if state.rows is None:
        return _with_pooled_evidence(state, total)
    return _after_step(state, total)


def finished(state: State) -> bool:
    """Return whether there has been one pass for each penalty."""
    return state.run == len(state.spec.penalties)


check_private = without_private_form(
    "exact sums gradients, on which the effect of one row is not bounded, and chooses by held-out "
    "rows: with differential privacy use `private_exact`"
)


REPLAY = Replay(
    grids={
        **SCALES,
        "evidence": Step(EVIDENCE_STEP),
        "start": Step(WEIGHT_STEP),
        "fitted.layers.prior_variance": Bits(SCALE_BITS),
        "fitted.dispersion": Bits(SCALE_BITS),
    },
    budget=LEAST_BUDGET,
)


def declare(spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    model = before.model
    statistics = (statistics_length(model) if model.targets else 1) + outcome_numbers(model)
    return Declaration(
        needs=NEEDS,
        needs_students=frozenset(),
        needs_held_out=False,
        makes=MAKES,
        answers=Answers.ALL,
        students=before.students,
        words="in turn, sums of products of features (S, b, yᵀy, n) and the gradient of the "
        "evidence with the error on held-out rows",
        sums=2 * spec.steps * len(spec.penalties),
        numbers=max(statistics, weight_count(model.kernel) + 3),
        numbers_in_all=spec.steps
        * len(spec.penalties)
        * (statistics + weight_count(model.kernel) + 3),
        leaves=weight_count(model.kernel) + 2 * model.targets,
        row_count="rows",
        local_passes=0,
        rate_times_steps=spec.learning_rate * spec.steps * len(spec.penalties),
        reads=frozenset({Part.TRAINING, Part.STOPPING}),
        summed_together=frozenset({frozenset({Part.TRAINING})}),
        sampling_rate=1.0,
        noise_share=1.0,
        public_rows=PublicRows.NONE,
        public_set=None,
        needs_consent=False,
        includes=frozenset(),
        replay=REPLAY,
    )


STORED = (Spec, State, Pooled, Kept, Progress)


def _contribute_in_chunks(state: State, site: Site) -> Contribution:
    """Return the same as `contribute`, with memory that does not grow with the number of rows."""
    model, layer, likelihoods = state.model, state.layer, state.likelihoods
    if state.rows is None:
        sums = {block.name: np.zeros(block.shape) for block in layout(state).blocks}
        for x, y, records in site.chunks(Part.TRAINING, model):
            columns = outcome_columns(model, records)
            for rows, phi in model.urk.features_in_chunks(x, chunk_rows=CHUNK_ROWS):
                own = _statistics(state, phi, y[rows], [each[rows] for each in columns])
                sums = {name: sums[name] + own[name] for name in sums}
        return sums
    gradient = torch.zeros(weight_count(model.kernel), dtype=torch.float64)
    for x, y, records in site.chunks(Part.TRAINING, model):
        columns = outcome_columns(model, records)
        for rows in chunks(len(x), model.kernel.rows_at_a_time(CHUNK_ROWS)):
            phi, pullback = model.urk.features_and_pullback(x[rows])
            some = [each[rows] for each in columns]
            gradient += pullback(_feature_gradient(layer, likelihoods, phi, y[rows], some))
    return {
        "gradient": (gradient / state.rows).numpy(),
        "rows": np.array(float(site.count(Part.TRAINING))),
        **held_out_contribution(
            model,
            None if layer is None else layer.posterior_weights,
            site,
            likelihoods=likelihoods,
        ),
    }


def _statistics(
    state: State, features: Tensor, y: Tensor, columns: Sequence[Tensor]
) -> dict[str, NDArray[np.float64]]:
    """Return the blocks of the statistics of some rows."""
    model = state.model
    blocks: dict[str, NDArray[np.float64]] = {"rows": np.array(float(len(features)))}
    if model.targets:
        blocks |= contribution_of(gridded(model, [(features, y)]), model)
    for index, (at, own) in enumerate(zip(state.likelihoods, columns, strict=True)):
        blocks |= contribution_at(model, index, at, features, own)
    return blocks


def _feature_gradient(
    layer: Layer | None,
    likelihoods: Sequence[Likelihood],
    features: Tensor,
    y: Tensor,
    columns: Sequence[Tensor],
) -> Tensor:
    """Return ∂/∂Φ of all targets' parts of L, (n, M)."""
    gradient = torch.zeros_like(features)
    if layer is not None:
        gradient += feature_gradient(
            features,
            y,
            scatter_gradient=layer.scatter_gradient,
            cross_gradient=layer.cross_gradient,
        )
    for at, own in zip(likelihoods, columns, strict=True):
        gradient += at.feature_gradient(features, own)
    return gradient


def _with_pooled_evidence(state: State, total: SecureTotal) -> State:
    model, rows = state.model, round(float(total["rows"]))
    pooled, evidence = None, 0.0
    scales = Hyperparameters.of(noise_variance=1.0, prior_variance=1.0, targets=0)
    if model.targets:
        pooled = Pooled(regenerated(total, model))
        scales = refit(pooled.spectrum(model.kernel))
        evidence = pooled.evidence(model.kernel, scales)
    if state.fitted:
        bound = negative_bound(model, state.fitted, total, rows=rows)
        evidence = near(evidence + bound / max(rows, 1), EVIDENCE_STEP)
    return replace(
        state,
        model=model.advanced(hyperparameters=scales),
        rows=rows,
        pooled=pooled,
        fitted=stepped_outcomes(model, state.fitted, total, rows=rows),
        evidence=evidence,
    )


def _after_step(state: State, total: SecureTotal) -> State:
    spec, rows = state.spec, known(state.rows, NAME)
    weights = known(state.model.weights, NAME)
    if round(float(total["rows"])) != rows:
        raise StatisticsError(
            "the two sums of a step cover different rows: a site's table changed in between"
        )
    error = held_out_error(total)
    judged.check_choice(len(spec.penalties), error, "penalties")
    gradient = torch.tensor(total["gradient"])
    gradient = gradient + spec.penalties[state.run] / rows * weights
    progress = Progress(state.run, state.step, known(state.evidence, NAME), error, norm(gradient))
    scales, history = known(state.model.hyperparameters, NAME), known(state.history, NAME)
    now = Kept(error, weights, scales, state.run, state.step)
    of_run = judged.kept(now, state.best_of_run, history)
    state = replace(state, rows=None, pooled=None, best_of_run=of_run, history=(*history, progress))
    stalled = judged.stalled(of_run, step=state.step, patience=spec.patience)
    if state.step + 1 >= spec.steps or stalled:
        return _next_run(state)
    return _stepped(state, gradient)


def _next_run(state: State) -> State:
    run, start = state.run + 1, known(state.start, NAME)
    best = judged.better(state.best, known(state.best_of_run, NAME))
    zero = torch.zeros_like(start)
    if run == len(state.spec.penalties):
        model = best.restored(state.model)
    else:
        model = state.model.advanced(weights=start)
    return replace(
        state,
        model=model,
        fitted=starting(model),
        run=run,
        step=0,
        first_moment=zero,
        second_moment=zero,
        best=best,
        best_of_run=None,
    )


def _stepped(state: State, gradient: Tensor) -> State:
    weights = known(state.model.weights, NAME)
    first, second = known(state.first_moment, NAME), known(state.second_moment, NAME)
    after = stepped(adam.State(weights, first, second, state.step), gradient, state.spec)
    return replace(
        state,
        model=state.model.advanced(weights=after.parameters),
        step=after.step,
        first_moment=after.mean,
        second_moment=after.square,
    )
