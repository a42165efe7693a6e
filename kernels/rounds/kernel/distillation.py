"""Phase 1 by kernel distillation on a labelled public set ([FedBNR] §3.1.3, eq. 3.4).

    L^KD(θ, σ, λ) = L_kd/K + α·mean (Φ_kd Φ_kdᵀ − T)²,   T = Σ_c Φ_c Φ_cᵀ / |S|

where Φ_c (K, M) are the features of the K public rows X_kd under site c's trained kernel and L_kd
is the negative log evidence of (X_kd, y_kd). [FedBNR] sums over rows and uses 2L, so its α is 2K
times ours. Our α has the same meaning for public sets of any size.

broadcast  θ, σ, λ, and the public rows, which are part of the program; after a sum of statistics
           also these, from which each site computes w̄
local      if validated, S_c, b_c, y_cᵀy_c, n_c at θ; then, after training (`local_training`), the
           Gram matrix Φ_c Φ_cᵀ of the public rows and 1, or nothing from a site without rows; and
           the absolute error of the broadcast model on the rows kept for stopping
sum        the pooled statistics; then the mean teacher kernel T on the public rows and the held-out
           error: the coordinator sees no site's kernel, and no site's weights, summed or not
update     the σ and λ that fit all rows; then θ, σ and λ by `distillation_steps` of Adam on
           L^KD, starting from their current values. A pass keeps the θ with the lowest held-out
           error and stops after `patience` rounds that are worse; a last sum judges its last θ.
           There is one pass for each α. The final θ is the one with the lowest error among those
           that the passes kept, with the σ and λ that fit all rows

Without validation there is one α and a round is one sum; the final σ and λ fit the public set, and
refitting is left to the linear layer. A Gram matrix's entries are at most ‖φ‖²
(`squared_norm_bound`), or M·FEATURE_BOUND² for kernels without such a bound.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels.errors import ProgramError, StateError
from kernels.features.urk import URK, weight_count
from kernels.layer.local_evidence import negative_log_evidence
from kernels.layer.posterior import SCALE_BITS, Hyperparameters
from kernels.layer.refit import refit
from kernels.model.model import Model, check_model, check_scales, known
from kernels.parameter_checks import (
    check_at_least,
    check_flag,
    check_learning_rate,
    check_whole,
    choices,
)
from kernels.reproducible import near
from kernels.rounds.algorithm import Contribution, accepted, without_private_form
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import LEAST_BUDGET, SCALES, Bits, Replay, Step
from kernels.rounds.shared import judged
from kernels.rounds.shared.grid import WEIGHT_STEP
from kernels.rounds.shared.held_out import (
    held_out_blocks,
    held_out_contribution,
    held_out_error,
)
from kernels.rounds.shared.judged import Kept
from kernels.rounds.shared.local_training import Fit, minimise, starting_scales, train_locally
from kernels.rounds.shared.pooled import EVIDENCE_STEP, Pooled, check_pooled, posterior_weights
from kernels.rounds.shared.public_set import Columns, checked, digest_of, public_table
from kernels.rounds.shared.site_mean import SITES, of_site, total_weight, trainable
from kernels.rounds.shared.sufficient import (
    FEATURE_BOUND,
    RESOLUTION,
    contribution_of,
    site_statistics,
    statistics_blocks,
    statistics_length,
    statistics_of,
)
from kernels.rounds.site.site import Part, Site
from kernels.storage import PRIVATE
from privacy.layout import Block, Layout, SecureTotal

NAME = "distillation"
VERSION = 3
NEEDS = frozenset({Made.STANDARDISER})
MAKES = frozenset({Made.KERNEL})

_LOSS_STEP = 2.0**-20
_MISMATCH_STEP = 2.0**-30
"""The grids of losses and distances, which are only reported."""
DAMPING = 1e-6
"""Adam's ε at the coordinator: a gradient that is only rounding must not become a step."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The public set, and how to train on it and at the sites.

    public: `columns_of` a table with the schema's features and targets, in their units.
    rounds: the maximum number of rounds of training and distilling for each α.
    local_steps, learning_rate, proximal, validate, patience: as in `fedavg`.
    distillation_steps, distillation_rate: steps and learning rate of Adam at the coordinator.
    alphas: the α to choose from; more than one needs `validate`. The default is all four that were
        compared by test RMSE, not only the best of them, so that test rows do not influence it.
    """

    STORED_AS: ClassVar[str] = "distillation.spec"

    public: Columns
    rounds: int = 20
    local_steps: int = 10
    learning_rate: float = 0.01
    proximal: float = 0.0
    distillation_steps: int = 50
    distillation_rate: float = 0.01
    alphas: tuple[float, ...] = (1.0, 10.0, 100.0, 1000.0)
    validate: bool = True
    patience: int = 5

    def __post_init__(self) -> None:
        object.__setattr__(self, "public", checked(self.public))
        check_whole(
            1,
            rounds=self.rounds,
            local_steps=self.local_steps,
            distillation_steps=self.distillation_steps,
        )
        check_whole(0, patience=self.patience)
        check_learning_rate(
            learning_rate=self.learning_rate, distillation_rate=self.distillation_rate
        )
        check_at_least(0.0, proximal=self.proximal)
        check_flag(validate=self.validate)
        object.__setattr__(self, "alphas", choices(alphas=self.alphas))
        if len(self.alphas) > 1 and not self.validate:
            raise ProgramError(
                "choosing among several alphas needs validation: set validate to true, or give one"
            )

    @property
    def public_rows(self) -> int:
        """Return K."""
        return len(self.public[0][1])


@dataclass(frozen=True, eq=False)
class Progress(judged.Progress):
    """θ after a given number of rounds of a pass.

    loss_before, loss_after: L^KD before and after the steps that led to θ. mismatch: the distance
        from T after them. All are None at the start.
    """

    STORED_AS: ClassVar[str] = "distillation.progress"

    loss_before: float | None = None
    loss_after: float | None = None
    mismatch: float | None = None


@dataclass(frozen=True, eq=False)
class State:
    """The progress of distillation.

    scales: the σ and λ that training continues from. run: passes so far, one for each α.
    round: the number of teachers that this pass has distilled. latest: what is known about θ.
    pooled: the statistics of all rows at θ; None when the next sum is of statistics.
    best: the best of the finished passes. best_of_run: the best of the current pass so far.
    """

    STORED_AS: ClassVar[str] = "distillation.state"

    model: Model
    spec: Spec
    scales: Hyperparameters
    run: int = 0
    round: int = 0
    pooled: Pooled | None = None
    start: Tensor | None = field(default=None, metadata=PRIVATE)
    latest: Progress | None = field(default=None, metadata=PRIVATE)
    best: Kept | None = field(default=None, metadata=PRIVATE)
    best_of_run: Kept | None = field(default=None, metadata=PRIVATE)
    history: tuple[Progress, ...] | None = field(default=None, metadata=PRIVATE)

    def __post_init__(self) -> None:
        check_model(self.model)
        check_scales(self.scales, self.model.targets)
        check_whole(0, run=self.run, round=self.round)
        if self.run > len(self.spec.alphas) or self.round > self.spec.rounds:
            raise StateError(f"round {self.round} of run {self.run} is beyond what the program has")
        if self.pooled is not None:
            check_pooled(self.pooled, self.model)


def layout(state: State) -> Layout:
    """Return (S, b, yᵀy, n), or the Gram matrix, the number of sites and the held-out error.

    After the last round, only the error.
    """
    model, spec, rows = state.model, state.spec, state.spec.public_rows
    if _statistics_are_next(state):
        return Layout(statistics_blocks(model))
    errors = held_out_blocks(model) if spec.validate else ()
    if state.round == spec.rounds:
        return Layout(errors)
    bound = model.kernel.squared_norm_bound or model.kernel.features * FEATURE_BOUND**2
    return Layout(
        (
            Block("gram", (rows, rows), bound * (1 + 2.0**-40), RESOLUTION, symmetric=True),
            SITES,
            *errors,
        )
    )


def initial(spec: Spec, model: Model) -> State:
    """Check the public set; start at the model's weights, or else the kernel's, and σ = λ = 1."""
    public_table(spec.public, model)
    scales = starting_scales(model.targets)
    start = Fit.of(model, scales).weights
    model = model.advanced(weights=start)
    return State(model, spec, scales, start=start, latest=Progress(0, 0), history=())


def contribute(state: State, site: Site) -> Contribution:
    """Return the site's statistics, or its trained kernel's Gram matrix and held-out error."""
    model, spec = state.model, state.spec
    if _statistics_are_next(state):
        return contribution_of(site_statistics(model, site, Part.TRAINING), model)
    contribution: dict[str, NDArray[np.float64]] = {}
    judge = posterior_weights(known(state.pooled, NAME), model) if spec.validate else None
    if state.round < spec.rounds:
        contribution |= _lesson(state, site)
    if judge is not None:
        contribution |= held_out_contribution(model, judge, site)
    return contribution


def update(state: State, total: SecureTotal) -> State:
    """Fit the linear layer to θ, or judge θ and distil the mean teacher kernel."""
    total, spec = accepted(total, layout(state)), state.spec
    if _statistics_are_next(state):
        return _with_posterior(state, total)
    if not spec.validate:
        state = _told(_distilled(state, total))
        return replace(state, run=int(state.round == spec.rounds))
    state = _judged(state, held_out_error(total))
    of_run = known(state.best_of_run, NAME)
    stalled = judged.stalled(of_run, step=state.round, patience=spec.patience)
    if stalled or state.round == spec.rounds:
        return _next_run(state)
    return _distilled(state, total)


def finished(state: State) -> bool:
    """Return whether there has been one pass for each α."""
    return state.run == len(state.spec.alphas)


check_private = without_private_form(
    "distillation sums locally trained kernels, and the effect of one row on them is not bounded:"
    " in a program with differential privacy leave phase 1 out, or train with `private_exact` or "
    "`elbo`"
)


REPLAY = Replay(
    grids={
        **SCALES,
        "scales.noise_variance": Bits(SCALE_BITS),
        "scales.prior_variance": Bits(SCALE_BITS),
        "model.weights": Step(WEIGHT_STEP),
        "start": Step(WEIGHT_STEP),
        **{f"{name}.evidence": Step(EVIDENCE_STEP) for name in ("latest", "history")},
        **{f"{name}.loss_before": Step(_LOSS_STEP) for name in ("latest", "history")},
        **{f"{name}.loss_after": Step(_LOSS_STEP) for name in ("latest", "history")},
        **{f"{name}.mismatch": Step(_MISMATCH_STEP) for name in ("latest", "history")},
    },
    budget=LEAST_BUDGET,
)


def declare(spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    model = before.model
    gram = spec.public_rows * (spec.public_rows + 1) // 2 + 1
    return Declaration(
        needs=NEEDS,
        needs_students=frozenset(),
        needs_held_out=False,
        makes=MAKES,
        answers=Answers.REAL,
        students=before.students,
        words="similarities between the rows of a public table, by a kernel trained on the local "
        "rows; with validation also sums of products of features (S, b, yᵀy, n) and the error"
        " on held-out rows",
        sums=2 * (spec.rounds + 1) * len(spec.alphas) if spec.validate else spec.rounds,
        numbers=max(statistics_length(model), gram + 2) if spec.validate else gram,
        numbers_in_all=(spec.rounds + 1) * len(spec.alphas) * (statistics_length(model) + gram + 2)
        if spec.validate
        else spec.rounds * gram,
        leaves=weight_count(model.kernel) + 2 * model.targets,
        row_count="rows" if spec.validate else None,
        local_passes=spec.local_steps,
        rate_times_steps=spec.learning_rate * spec.local_steps * spec.rounds * len(spec.alphas),
        reads=frozenset({Part.TRAINING, *([Part.STOPPING] if spec.validate else [])}),
        summed_together=frozenset({frozenset({Part.TRAINING})}),
        sampling_rate=1.0,
        noise_share=1.0,
        public_rows=PublicRows.LABELLED,
        public_set=digest_of(spec.public),
        needs_consent=False,
        includes=frozenset(),
        replay=REPLAY,
    )


STORED = (Spec, State, Pooled, Kept, Progress)


def _statistics_are_next(state: State) -> bool:
    return state.spec.validate and state.pooled is None


def _lesson(state: State, site: Site) -> Contribution:
    """Train, and return the trained kernel's Gram matrix of the public rows."""
    model, spec = state.model, state.spec
    x, y = trainable(site, model).table(Part.TRAINING, model)
    trained = train_locally(
        model.kernel,
        Fit.of(model, state.scales),
        x,
        y,
        steps=spec.local_steps,
        learning_rate=spec.learning_rate,
        proximal=spec.proximal,
    )
    public, _ = public_table(spec.public, model)
    with torch.no_grad():
        phi = URK(model.kernel, trained.weights).features(public)
    return of_site(site, {"gram": (phi @ phi.mT).numpy(), "sites": np.ones(())})


def _with_posterior(state: State, total: SecureTotal) -> State:
    kernel, pooled = state.model.kernel, Pooled(statistics_of(total, state.model))
    scales = refit(pooled.spectrum(kernel))
    return replace(
        state,
        model=state.model.advanced(hyperparameters=scales),
        pooled=pooled,
        latest=replace(known(state.latest, NAME), evidence=pooled.evidence(kernel, scales)),
    )


def _told(state: State) -> State:
    return replace(state, history=(*known(state.history, NAME), known(state.latest, NAME)))


def _distilled(state: State, total: SecureTotal) -> State:
    model, spec = state.model, state.spec
    x, y = public_table(spec.public, model)
    teacher = torch.tensor(total["gram"]) / total_weight(total)
    alpha = spec.alphas[state.run]

    def loss(urk: URK, log_noise: Tensor, log_prior: Tensor) -> Tensor:
        return distillation_loss(
            urk.features(x),
            y,
            teacher,
            log_noise=log_noise,
            log_prior=log_prior,
            alpha=alpha,
            inducing=model.kernel.inducing_features,
        )

    start = Fit.of(model, state.scales)
    end = minimise(
        loss,
        model.kernel,
        start,
        steps=spec.distillation_steps,
        learning_rate=spec.distillation_rate,
        damping=DAMPING,
        step=WEIGHT_STEP,
    )
    with torch.no_grad():
        before, after = (
            near(
                float(loss(URK(model.kernel, fit.weights), fit.log_noise, fit.log_prior)),
                _LOSS_STEP,
            )
            for fit in (start, end)
        )
        mismatch = float(_mismatch(URK(model.kernel, end.weights).features(x), teacher))
    scales = end.hyperparameters.rounded()
    return replace(
        state,
        model=model.advanced(weights=end.weights, hyperparameters=scales),
        scales=scales,
        round=state.round + 1,
        pooled=None,
        latest=Progress(
            state.run,
            state.round + 1,
            loss_before=before,
            loss_after=after,
            mismatch=near(mismatch, _MISMATCH_STEP),
        ),
    )


def distillation_loss(
    features: Tensor,
    targets: Tensor,
    teacher: Tensor,
    *,
    log_noise: Tensor,
    log_prior: Tensor,
    alpha: float,
    inducing: int = 0,
) -> Tensor:
    """Return L^KD, differentiable in features (K, M), log σ and log λ; teacher: T, (K, K).

    inducing: how many features are inducing, the first ones.
    """
    evidence = negative_log_evidence(
        features, targets, log_noise=log_noise, log_prior=log_prior, inducing=inducing
    )
    return evidence / len(features) + alpha * _mismatch(features, teacher)


def _mismatch(features: Tensor, teacher: Tensor) -> Tensor:
    return (features @ features.mT - teacher).square().mean()


def _judged(state: State, error: float | None) -> State:
    model, history = state.model, known(state.history, NAME)
    judged.check_choice(len(state.spec.alphas), error, "alphas")
    weights, scales = known(model.weights, NAME), known(model.hyperparameters, NAME)
    now = Kept(error, weights, scales, state.run, state.round)
    of_run = judged.kept(now, state.best_of_run, history)
    latest = replace(known(state.latest, NAME), held_out_error=error)
    return _told(replace(state, best_of_run=of_run, latest=latest))


def _next_run(state: State) -> State:
    run, best = state.run + 1, judged.better(state.best, known(state.best_of_run, NAME))
    if run == len(state.spec.alphas):
        model = best.restored(state.model)
    else:
        model = state.model.advanced(weights=known(state.start, NAME))
    return replace(
        state,
        model=model,
        scales=starting_scales(model.targets),
        run=run,
        round=0,
        pooled=None,
        latest=Progress(run, 0),
        best=best,
        best_of_run=None,
    )
