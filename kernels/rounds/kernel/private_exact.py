"""Phase 1 by the gradient of the evidence with differential privacy: few steps, two sums each.

Both sums of a step have noise and each costs privacy, so there are few, large steps. S and b are
those of `linear`. With their noise-aware posterior N(w̄_t, V_t) for each target t,

    G_S = Σ_t (V_t + w̄_tw̄_tᵀ)/2σ_t²,   G_b = −w̄/σ²

are the gradient of −E[log p(y | Φ, w)] under that posterior by S and b. The gradient by θ is a sum
over rows, Σ_rows ∂/∂θ [φᵀG_Sφ + φᵀG_by], so each unit's part is clipped to the norm `unit_clip`
(`kernels.rounds.shared.clipped`), and one unit changes the sum by at most that norm.

broadcast  θ; then also σ, λ and the noisy statistics, from which each site computes G_S and G_b
local      S_c, b_c, y_cᵀy_c, n_c; then the gradient, each unit's part of it clipped
sum        the pooled statistics with noise; then the pooled gradient with noise
update     σ and λ from the statistics; then one step of Adam on L/n + τ‖θ‖²/2n, and θ
           rounded to its grid (`kernels.rounds.shared.evidence_step`)

Nothing is judged on held-out rows, because that would also cost privacy: there is one pass of
`steps` steps, and its last weights are kept. Without differential privacy, `exact` uses the
gradient of the evidence itself.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from kernels import adam
from kernels.errors import NotPrivate, StateError
from kernels.features.urk import starting_weights, weight_count
from kernels.model.model import Model, check_model, known
from kernels.noisy import noise_aware
from kernels.noisy.realisable import DEVIATION_BITS, repaired
from kernels.parameter_checks import check_at_least, check_learning_rate, check_whole
from kernels.reproducible import near, norm
from kernels.rounds.algorithm import Contribution, accepted
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import LEAST_BUDGET, SCALES, Bits, OwnStep, Replay, Step
from kernels.rounds.shared.clipped import clipped_gradient, gradient_block
from kernels.rounds.shared.evidence_step import stepped
from kernels.rounds.shared.pooled import EVIDENCE_STEP, Pooled, check_pooled
from kernels.rounds.shared.sufficient import (
    check_features,
    contribution_of,
    fitted_scales,
    site_statistics,
    statistics_blocks,
    statistics_length,
    statistics_of,
    target_bounds,
)
from kernels.rounds.site.site import Part, Site
from kernels.storage import PRIVATE
from privacy.layout import Layout, SecureTotal

NAME = "private_exact"
VERSION = 2
NEEDS = frozenset({Made.STANDARDISER})
MAKES = frozenset({Made.KERNEL})

_MOST_GRADIENT = 2.0**24
"""Bound on the elements of G_S and G_b, as a multiple of `unit_clip`."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The recipe.

    steps: steps of Adam. learning_rate: the highest rate. warm_up: steps until it is reached.
    clip: the maximum norm of the gradient of L/n. penalty: τ.
    unit_clip: the maximum norm of one unit's part of the gradient of L.
    """

    STORED_AS: ClassVar[str] = "private-exact.spec"

    steps: int = 200
    learning_rate: float = 0.01
    warm_up: int = 10
    clip: float = 0.3
    penalty: float = 3.0
    unit_clip: float = 1.0

    def __post_init__(self) -> None:
        check_whole(1, steps=self.steps)
        check_whole(0, warm_up=self.warm_up)
        check_learning_rate(learning_rate=self.learning_rate)
        check_at_least(1e-9, clip=self.clip, unit_clip=self.unit_clip)
        check_at_least(0.0, penalty=self.penalty)


@dataclass(frozen=True, eq=False)
class PooledGradient:
    """What a site needs for its part of the gradient: G_S, (M, M), and G_b, (M, T)."""

    scatter_gradient: Tensor
    cross_gradient: Tensor


@dataclass(frozen=True, eq=False)
class Progress:
    """Numbers that describe one step: L/n and the gradient's norm."""

    STORED_AS: ClassVar[str] = "private-exact.progress"

    step: int
    evidence: float
    gradient_norm: float


@dataclass(frozen=True, eq=False)
class State:
    """The optimiser's state. `pooled` is None when the next sum is of statistics."""

    STORED_AS: ClassVar[str] = "private-exact.state"

    model: Model
    spec: Spec
    step: int = 0
    pooled: Pooled | None = None
    evidence: float | None = field(default=None, metadata=PRIVATE)
    first_moment: Tensor | None = field(default=None, metadata=PRIVATE)
    second_moment: Tensor | None = field(default=None, metadata=PRIVATE)
    history: tuple[Progress, ...] | None = field(default=None, metadata=PRIVATE)

    def __post_init__(self) -> None:
        check_model(self.model)
        check_whole(0, step=self.step)
        if self.step > self.spec.steps:
            raise StateError(f"step {self.step} is beyond the program's {self.spec.steps} steps")
        if self.pooled is not None:
            check_pooled(self.pooled, self.model)
            if self.pooled.statistics.noise is None:
                raise StateError("state.pooled must be statistics with noise")

    @cached_property
    def gradient(self) -> PooledGradient:
        """G_S and G_b at the state's statistics; they follow from no row."""
        return _pooled_gradient(self)


def layout(state: State) -> Layout:
    """Return (S, b, yᵀy, n), or the gradient."""
    model = state.model
    if state.pooled is None:
        return Layout(statistics_blocks(model))
    clip = state.spec.unit_clip
    return Layout((gradient_block(model, weight_count(model.kernel), clip=clip),))


def initial(spec: Spec, model: Model) -> State:
    """Start at the model's weights from an earlier stage, or else the kernel's initial weights."""
    if model.privacy is None:
        raise NotPrivate(
            "private_exact needs a program with differential privacy: use `exact` in this one"
        )
    start = starting_weights(model.kernel) if model.weights is None else model.weights
    model = model.advanced(weights=start)
    zero = torch.zeros_like(start)
    return State(model, spec, first_moment=zero, second_moment=zero, history=())


def contribute(state: State, site: Site) -> Contribution:
    """Return the same statistics as `linear`, or the gradient, clipped per unit."""
    model = state.model
    if state.pooled is None:
        return contribution_of(site_statistics(model, site, Part.TRAINING), model)
    pooled = state.gradient
    kernel, reach = model.urk, target_bounds(model)

    def row_gradients(x: Tensor, y: Tensor) -> Tensor:
        phi, pullback = kernel.features_and_row_pullback(x)
        by_scatter = 2 * phi @ pooled.scatter_gradient
        return pullback(by_scatter + y.clamp(-reach, reach) @ pooled.cross_gradient.mT)

    parameters = weight_count(model.kernel)
    gradient, _ = clipped_gradient(
        model, site, row_gradients, parameters=parameters, clip=state.spec.unit_clip
    )
    return {"gradient": gradient.numpy()}


def update(state: State, total: SecureTotal) -> State:
    """Prepare the gradient, or take a step."""
    total = accepted(total, layout(state))
    if state.pooled is None:
        return _with_noisy_evidence(state, total)
    return _after_step(state, total)


def finished(state: State) -> bool:
    """Return whether the last step has been taken."""
    return state.step == state.spec.steps


def check_private(_spec: Spec, model: Model) -> None:
    """Refuse a kernel whose features are not bounded."""
    check_features(model)


REPLAY = Replay(
    grids={
        **SCALES,
        "evidence": Step(EVIDENCE_STEP),
        "pooled.statistics.scatter": OwnStep(),
        "pooled.statistics.noise.scatter": Bits(DEVIATION_BITS),
    },
    budget=LEAST_BUDGET,
)


def declare(spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    model = before.model
    return Declaration(
        needs=NEEDS,
        needs_students=frozenset(),
        needs_held_out=False,
        makes=MAKES,
        answers=Answers.REAL,
        students=before.students,
        words="in turn, sums of products of features (S, b, yᵀy, n) and the gradient of the "
        "evidence, to which each unit contributes a clipped part",
        sums=2 * spec.steps,
        numbers=max(statistics_length(model), weight_count(model.kernel)),
        numbers_in_all=spec.steps * (statistics_length(model) + weight_count(model.kernel)),
        leaves=weight_count(model.kernel) + 2 * model.targets,
        row_count=None,
        local_passes=0,
        rate_times_steps=spec.learning_rate * spec.steps,
        reads=frozenset({Part.TRAINING}),
        summed_together=frozenset({frozenset({Part.TRAINING})}),
        sampling_rate=1.0,
        noise_share=1.0,
        public_rows=PublicRows.NONE,
        public_set=None,
        needs_consent=False,
        includes=frozenset(),
        replay=REPLAY,
    )


STORED = (Spec, State, Pooled, Progress)


def _pooled_gradient(state: State) -> PooledGradient:
    pooled, scales = known(state.pooled, NAME), known(state.model.hyperparameters, NAME)
    posterior = noise_aware.posterior(pooled.statistics, scales)
    noise, weights = scales.noise_variance, posterior.weights
    second = torch.stack(
        [posterior.covariance(t) / noise[t] for t in range(state.model.targets)]
    ).sum(0)
    second = (second + (weights / noise) @ weights.mT) / 2
    found = PooledGradient((second + second.mT) / 2, -weights / noise)
    _check_gradients(found, state.spec)
    return found


def _check_gradients(found: PooledGradient, spec: Spec) -> None:
    """Refuse G_S and G_b so large that a unit's clipped gradient is only rounding error.

    ⟨G_S, φφᵀ⟩ with G_S ∝ I is the same for every θ, so its computed gradient is only rounding
    error, which may depend on other rows. Clipping makes it smaller but not correct.
    """
    most = _MOST_GRADIENT * spec.unit_clip
    for name, own in (("G_S", found.scatter_gradient), ("G_b", found.cross_gradient)):
        if not float(own.abs().max()) <= most:
            raise StateError(
                f"{name} exceeds {most:g}: the units' gradients would be rounding errors"
            )


def _with_noisy_evidence(state: State, total: SecureTotal) -> State:
    statistics = repaired(statistics_of(total, state.model), state.model.urk)
    scales = fitted_scales(statistics, state.model.kernel)
    evidence = float(-noise_aware.log_evidence(statistics, scales).sum()) / statistics.count
    return replace(
        state,
        model=state.model.advanced(hyperparameters=scales),
        pooled=Pooled(statistics),
        evidence=near(evidence, EVIDENCE_STEP),
    )


def _after_step(state: State, total: SecureTotal) -> State:
    """Take a step along the noisy gradient. The model ends with the last fitted σ and λ."""
    pooled, weights = known(state.pooled, NAME), known(state.model.weights, NAME)
    gradient = torch.tensor(total["gradient"]) / pooled.rows
    gradient = gradient + state.spec.penalty / pooled.rows * weights
    progress = Progress(state.step, known(state.evidence, NAME), norm(gradient))
    first, second = known(state.first_moment, NAME), known(state.second_moment, NAME)
    after = stepped(adam.State(weights, first, second, state.step), gradient, state.spec)
    last = after.step == state.spec.steps
    scales = known(state.model.hyperparameters, NAME) if last else None
    return replace(
        state,
        model=state.model.advanced(weights=after.parameters, hyperparameters=scales),
        step=after.step,
        pooled=None,
        first_moment=after.mean,
        second_moment=after.square,
        history=(*known(state.history, NAME), progress),
    )
