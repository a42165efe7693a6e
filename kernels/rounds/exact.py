"""Phase 1, exact: the gradient of the pooled evidence, two sums a step.

The negative log evidence L of all rows depends on θ through S and b alone, so
∂L/∂θ = Σ_c ∂/∂θ [⟨G_S, S_c(θ)⟩ + ⟨G_b, b_c(θ)⟩] with G_S = ∂L/∂S and G_b = ∂L/∂b at the sums
(`kernels.evidence`). No client drift, any optimiser: the same steps as on pooled rows.

broadcast  θ; then also G_S, G_b and w̄
local      S_c, b_c, y_cᵀy_c, n_c; then the gradient of ⟨G_S, S_c⟩ + ⟨G_b, b_c⟩ over n, and on the
           rows kept for stopping the squared error of w̄'s predictions
sum        the pooled statistics; then the pooled gradient and the held-out error
update     σ, λ, G_S, G_b from the statistics; then one step of Adam on L/n + τ‖θ‖²/2n

The recipe (warm-up, cosine, clipped gradient, σ and λ refitted at every step rather than by Adam,
the checkpoint and τ chosen by held-out error) is what prototypes measured. One pass for each τ.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from kernels.chunks import CHUNK_ROWS
from kernels.errors import ProgramError, StatisticsError
from kernels.evidence import PooledEvidence, client_gradient, feature_gradient
from kernels.linear import Spectrum
from kernels.refit import refit
from kernels.rounds.algorithm import Contribution
from kernels.rounds.held_out import held_out_blocks, held_out_contribution, held_out_error
from kernels.rounds.model import Model, known
from kernels.rounds.site import Part, Site
from kernels.rounds.storage import PRIVATE
from kernels.rounds.sufficient import (
    RESOLUTION,
    contribution_of,
    statistics_blocks,
    statistics_of,
)
from kernels.statistics import Statistics
from kernels.urk import URK, starting_weights, weight_count
from privacy.layout import Block, Layout, SecureTotal

NAME = "exact"
VERSION = 1

GRADIENT_BOUND = 1e4
"""No element of one site's gradient of L/n exceeds it, or the run fails by name."""

_DECAY = (0.9, 0.999)
_DAMPING = 1e-8


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The recipe.

    steps: steps of Adam for each penalty. learning_rate: its greatest. warm_up: steps until then.
    clip: the greatest norm of the gradient of L/n. penalties: the τ to choose from.
    patience: stop a pass after so many steps without a better held-out error; 0 never does.
    """

    steps: int = 200
    learning_rate: float = 0.01
    warm_up: int = 10
    clip: float = 0.3
    penalties: tuple[float, ...] = (3.0, 30.0)
    patience: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "penalties", tuple(self.penalties))
        whole = (self.steps >= 1, self.warm_up >= 0, self.patience >= 0)
        positive = (self.learning_rate > 0, self.clip > 0, bool(self.penalties))
        if not all((*whole, *positive, *(penalty >= 0 for penalty in self.penalties))):
            raise ProgramError(
                "exact needs steps ≥ 1, a positive learning_rate and clip, warm_up and patience "
                "≥ 0, and at least one penalty ≥ 0"
            )


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What a site needs for its part of the gradient: G_S (M, M), G_b and w̄ (M, T), and n."""

    scatter_gradient: Tensor
    cross_gradient: Tensor
    posterior_weights: Tensor
    rows: int


@dataclass(frozen=True, eq=False)
class Best:
    """The weights with the least held-out error so far; without held-out rows the latest."""

    error: float | None
    weights: Tensor
    run: int
    step: int


@dataclass(frozen=True, eq=False)
class Progress:
    """One step in numbers: L/n, the held-out mean squared error, the gradient's norm."""

    run: int
    step: int
    evidence: float
    held_out_error: float | None
    gradient_norm: float


@dataclass(frozen=True, eq=False)
class State:
    """Where the optimiser is. `pooled` is None when statistics are asked for next."""

    model: Model
    spec: Spec
    run: int = 0
    step: int = 0
    pooled: Broadcast | None = None
    evidence: float = 0.0
    start: Tensor | None = field(default=None, metadata=PRIVATE)
    first_moment: Tensor | None = field(default=None, metadata=PRIVATE)
    second_moment: Tensor | None = field(default=None, metadata=PRIVATE)
    best: Best | None = field(default=None, metadata=PRIVATE)
    history: tuple[Progress, ...] | None = field(default=None, metadata=PRIVATE)


@dataclass(frozen=True, eq=False)
class Features:
    """A site's features at one θ, those of the training rows with their graph."""

    kernel: URK
    training: Tensor
    held_out: Tensor


def initial(spec: Spec, model: Model) -> State:
    """Start at the model's weights: a warm-up's, or the kernel's own."""
    start = starting_weights(model.kernel) if model.weights is None else model.weights
    model = model.advanced(weights=start)
    zero = torch.zeros_like(start)
    return State(model, spec, start=start, first_moment=zero, second_moment=zero, history=())


def layout(state: State) -> Layout:
    """Return (S, b, yᵀy, n), or the gradient with the held-out error."""
    model = state.model
    if state.pooled is None:
        return Layout(statistics_blocks(model))
    return Layout(
        (
            Block("gradient", (weight_count(model.kernel),), GRADIENT_BOUND, RESOLUTION),
            Block("rows", (), float(model.max_rows), 1.0),
            *held_out_blocks(model),
        )
    )


def contribute(state: State, site: Site) -> Contribution:
    """Return the site's statistics, or its part of the gradient and of the held-out error."""
    model, pooled = state.model, state.pooled
    x, y = site.table(Part.TRAINING, model)
    held_out, _ = site.table(Part.STOPPING, model)
    if not 0 < len(x) <= model.kernel.rows_at_a_time(CHUNK_ROWS) - len(held_out):
        return _contribute_in_chunks(state, site)
    weights = known(model.weights, NAME)
    # Both sums of a step are at the same weights, so the features of the first serve the second.
    features = None if pooled is None else site.take_kept(weights)
    if not isinstance(features, Features):
        phi = model.urk.features(torch.cat([x, held_out]))
        features = Features(model.urk, phi[: len(x)], phi[len(x) :].detach())
    if pooled is None:
        site.keep(weights, features)
        return contribution_of(Statistics.of_features(features.training, y))
    backward = feature_gradient(
        features.training,
        y,
        scatter_gradient=pooled.scatter_gradient,
        cross_gradient=pooled.cross_gradient,
    )
    (gradient,) = torch.autograd.grad(features.training, features.kernel.weights, backward)
    return {
        "gradient": (gradient / pooled.rows).numpy(),
        "rows": np.array(float(len(x))),
        **held_out_contribution(model, pooled.posterior_weights, site, features=features.held_out),
    }


def _contribute_in_chunks(state: State, site: Site) -> Contribution:
    """Do the same in memory that does not grow with the rows."""
    model, pooled = state.model, state.pooled
    x, y = site.table(Part.TRAINING, model)
    if pooled is None:
        return contribution_of(Statistics.of_table(model.urk, x, y))
    gradient = client_gradient(
        model.urk,
        x,
        y,
        scatter_gradient=pooled.scatter_gradient,
        cross_gradient=pooled.cross_gradient,
    )
    return {
        "gradient": (gradient / pooled.rows).numpy(),
        "rows": np.array(float(len(x))),
        **held_out_contribution(model, pooled.posterior_weights, site),
    }


def update(state: State, total: SecureTotal) -> State:
    """Prepare the gradient, or take a step."""
    if state.pooled is None:
        return _with_pooled_evidence(state, total)
    return _after_step(state, total)


def finished(state: State) -> bool:
    """Done after one pass for each penalty."""
    return state.run == len(state.spec.penalties)


def _with_pooled_evidence(state: State, total: SecureTotal) -> State:
    spectrum = Spectrum.of(statistics_of(total, state.model))
    hyperparameters = refit(spectrum)
    pooled = PooledEvidence.of(spectrum, hyperparameters)
    weights = spectrum.posterior_weights(hyperparameters)
    rows = spectrum.count
    return replace(
        state,
        model=state.model.advanced(hyperparameters=hyperparameters),
        pooled=Broadcast(pooled.scatter_gradient, pooled.cross_gradient, weights, rows),
        evidence=pooled.value / rows,
    )


def _after_step(state: State, total: SecureTotal) -> State:
    spec, pooled = state.spec, known(state.pooled, NAME)
    weights = known(state.model.weights, NAME)
    if round(float(total["rows"])) != pooled.rows:
        raise StatisticsError(
            "the two sums of a step are of different rows: a site's table has changed in between"
        )
    error = held_out_error(total)
    gradient = torch.tensor(total["gradient"])
    gradient = gradient + spec.penalties[state.run] / pooled.rows * weights
    norm = float(gradient.norm())
    progress = Progress(state.run, state.step, state.evidence, error, norm)
    best = state.best
    if best is None or best.error is None or error is None or error < best.error:
        best = Best(error, weights, state.run, state.step)
    state = replace(state, pooled=None, best=best, history=(*known(state.history, NAME), progress))
    stalled = 0 < spec.patience <= state.step - best.step and best.run == state.run
    if state.step + 1 >= spec.steps or stalled:
        return _next_run(state)
    return adam_step(state, gradient)


def adam_step(state: State, gradient: Tensor) -> State:
    """Take one step along a gradient of L/n, its norm clipped; the rate warms up and decays."""
    spec, time = state.spec, state.step + 1
    gradient = gradient * min(1.0, spec.clip / max(float(gradient.norm()), 1e-300))
    first = _DECAY[0] * known(state.first_moment, NAME) + (1 - _DECAY[0]) * gradient
    second = _DECAY[1] * known(state.second_moment, NAME) + (1 - _DECAY[1]) * gradient**2
    rate = spec.learning_rate * min(1.0, time / max(spec.warm_up, 1))
    rate *= 0.5 * (1 + math.cos(math.pi * state.step / spec.steps))
    direction = first / (1 - _DECAY[0] ** time)
    direction = direction / ((second / (1 - _DECAY[1] ** time)).sqrt() + _DAMPING)
    weights = known(state.model.weights, NAME) - rate * direction
    return replace(
        state,
        model=state.model.advanced(weights=weights),
        step=time,
        first_moment=first,
        second_moment=second,
    )


def _next_run(state: State) -> State:
    run, start = state.run + 1, known(state.start, NAME)
    if run == len(state.spec.penalties):
        start = known(state.best, NAME).weights
    zero = torch.zeros_like(start)
    return replace(
        state,
        model=state.model.advanced(weights=start),
        run=run,
        step=0,
        first_moment=zero,
        second_moment=zero,
    )
