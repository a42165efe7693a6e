"""Phase 1 by federated averaging ([FedBNR] §3.1.3, algorithm 1; [McMahan17]).

θ ← θ + Σ_c ω_c(θ_c − θ) / Σ_c ω_c, with θ_c trained from θ at site c (`local_training`) and ω_c = 1
as in [FedBNR], or n_c; a site without training rows has ω_c = 0. log σ_c and log λ_c are trained
with θ_c and averaged with it. Training continues from these means. The σ and λ that the model is
judged by and ends with are either the same ([FedBNR]) or, by default, refitted by the coordinator
to the pooled statistics, which is far better calibrated (docs/results.md) and costs no sum.
Targets that are not real numbers add the bounds of their own layers to what a site maximises
(`local_outcomes`).

broadcast  θ, σ, λ; after a sum of statistics also these, from which each site computes w̄, and q of
           the outcomes
local      if validated, S_c, b_c, y_cᵀy_c, n_c at θ, and of outcomes S_ω, b, Σt at q; then, after
           `local_steps`, ω_c(θ_c − θ), the same for log σ_c and log λ_c, and ω_c; and the error of
           the broadcast model on the rows kept for stopping, so that validation needs no sum of its
           own
sum        the pooled statistics; then the mean change and the held-out error: the coordinator sees
           neither a site's θ_c nor its number of rows
update     σ and λ; then the mean. It keeps the θ with the lowest held-out error and stops
           after `patience` rounds that are worse; a last sum judges the last θ

Without validation a round is one sum, and refitting is left to the linear layer.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from kernels.errors import StateError
from kernels.features.urk import weight_count
from kernels.layer.posterior import SCALE_BITS, Hyperparameters
from kernels.layer.refit import refit
from kernels.model.model import Model, check_model, check_scales, known
from kernels.outcomes.fitted import FittedOutcome, check_outcomes
from kernels.parameter_checks import (
    check_at_least,
    check_flag,
    check_learning_rate,
    check_whole,
    one_of,
)
from kernels.reproducible import near
from kernels.rounds.algorithm import Contribution, accepted, without_private_form
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import LEAST_BUDGET, SCALES, Bits, Replay, Step
from kernels.rounds.shared import judged
from kernels.rounds.shared.held_out import (
    held_out_blocks,
    held_out_contribution,
    held_out_error,
)
from kernels.rounds.shared.judged import Kept, Progress
from kernels.rounds.shared.local_outcomes import LocalOutcomes
from kernels.rounds.shared.local_training import Fit, reach, starting_scales, train_locally
from kernels.rounds.shared.pooled import EVIDENCE_STEP, Pooled, check_pooled, posterior_weights
from kernels.rounds.shared.site_mean import (
    CHANGE_RESOLUTION,
    Weighting,
    total_weight,
    trainable,
)
from kernels.rounds.shared.sufficient import statistics_length, statistics_of
from kernels.rounds.shared.weighted_sums import (
    all_statistics,
    all_statistics_blocks,
    likelihoods_at,
    negative_bound,
    outcome_numbers,
    starting,
    stepped,
)
from kernels.rounds.site.site import Part, Site
from kernels.storage import PRIVATE, check_rows
from privacy.layout import Block, Layout, SecureTotal

NAME = "fedavg"
VERSION = 4
NEEDS = frozenset({Made.STANDARDISER})
MAKES = frozenset({Made.KERNEL})

_CHANGES = {
    "change": "weights",
    "log_noise_change": "log_noise",
    "log_prior_change": "log_prior",
}
"""The blocks that hold the change made by training, and the part of a `Fit` that each holds."""


class Scales(StrEnum):
    """Which σ and λ the model has."""

    REFITTED = "refitted"
    """Fitted to the pooled statistics by the coordinator."""
    AVERAGED = "averaged"
    """The mean of the logarithms that the sites trained, as in [FedBNR]."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """How to train and how to average.

    rounds: the maximum number of rounds. local_steps, learning_rate: of Adam at each site, full
    batch. proximal: μ of [LiT20], 0 for none. patience: stop after this many rounds that are worse
    than the kept one; 0 never stops, and neither does training without `validate`.
    """

    STORED_AS: ClassVar[str] = "fedavg.spec"

    rounds: int = 20
    local_steps: int = 10
    learning_rate: float = 0.01
    proximal: float = 0.0
    weighting: Weighting = Weighting.SITES
    scales: Scales = Scales.REFITTED
    validate: bool = True
    patience: int = 5

    def __post_init__(self) -> None:
        check_whole(1, rounds=self.rounds, local_steps=self.local_steps)
        check_whole(0, patience=self.patience)
        check_learning_rate(learning_rate=self.learning_rate)
        check_at_least(0.0, proximal=self.proximal)
        check_flag(validate=self.validate)
        object.__setattr__(self, "weighting", one_of(Weighting, weighting=self.weighting))
        object.__setattr__(self, "scales", one_of(Scales, scales=self.scales))


@dataclass(frozen=True, eq=False)
class State:
    """The progress of averaging.

    scales: the σ and λ that training continues from. round: rounds of training so far.
    rows: the number of rows of the statistics at θ; None when the next sum is of statistics, and
    without validation. pooled: the statistics of the targets that are real numbers, if there are
    any. fitted: the q of the other targets.
    """

    STORED_AS: ClassVar[str] = "fedavg.state"

    model: Model
    spec: Spec
    scales: Hyperparameters
    round: int = 0
    done: bool = False
    rows: int | None = None
    pooled: Pooled | None = None
    fitted: tuple[FittedOutcome, ...] = ()
    evidence: float | None = field(default=None, metadata=PRIVATE)
    best: Kept | None = field(default=None, metadata=PRIVATE)
    history: tuple[Progress, ...] | None = field(default=None, metadata=PRIVATE)

    def __post_init__(self) -> None:
        check_model(self.model)
        check_scales(self.scales, self.model.targets)
        check_whole(0, round=self.round)
        check_flag(done=self.done)
        if self.round > self.spec.rounds:
            raise StateError(f"round {self.round} is beyond the program's {self.spec.rounds}")
        if self.rows is not None:
            check_rows(self.rows)
        if (self.pooled is not None) != (self.rows is not None and bool(self.model.targets)):
            raise StateError("this state has pooled statistics if and only if they were summed")
        if self.pooled is not None:
            check_pooled(self.pooled, self.model)
        check_outcomes(self.fitted, self.model.schema, self.model.kernel.features)


def layout(state: State) -> Layout:
    """Return (S, b, yᵀy, n), or the change of θ and the held-out error; finally only the error."""
    model, spec = state.model, state.spec
    if _statistics_are_next(state):
        return Layout(all_statistics_blocks(model, state.fitted))
    errors = held_out_blocks(model) if spec.validate else ()
    if state.round == spec.rounds:
        return Layout(errors)
    most = float(spec.weighting.weight(model.max_rows))
    bound = most * reach(steps=spec.local_steps, learning_rate=spec.learning_rate)
    lengths = (weight_count(model.kernel), model.targets, model.targets)
    changes = (
        Block(name, (length,), bound, CHANGE_RESOLUTION)
        for name, length in zip(_CHANGES, lengths, strict=True)
    )
    return Layout((*changes, Block("weight", (), most, 1.0), *errors))


def initial(spec: Spec, model: Model) -> State:
    """Start at the model's weights, or else the kernel's, and at σ = λ = 1."""
    scales = starting_scales(model.targets)
    weights = Fit.of(model, scales).weights
    model = model.advanced(weights=weights)
    return State(model, spec, scales, fitted=starting(model), history=())


def contribute(state: State, site: Site) -> Contribution:
    """Return the site's statistics, or its weighted change of θ and its held-out error."""
    model, spec = state.model, state.spec
    if _statistics_are_next(state):
        return all_statistics(model, state.fitted, site)
    contribution: dict[str, NDArray[np.float64]] = {}
    judge = None if state.pooled is None else posterior_weights(state.pooled, model)
    judges = likelihoods_at(model, state.fitted)
    if state.round < spec.rounds:
        training = trainable(site, model)
        x, y = training.table(Part.TRAINING, model)
        start = Fit.of(model, state.scales)
        trained = train_locally(
            model.kernel,
            start,
            x,
            y,
            steps=spec.local_steps,
            learning_rate=spec.learning_rate,
            proximal=spec.proximal,
            outcomes=LocalOutcomes.of(model, training) if state.fitted else None,
        )
        weight = spec.weighting.weight(site.count(Part.TRAINING))
        for name, part in _CHANGES.items():
            change = weight * (getattr(trained, part) - getattr(start, part))
            contribution[name] = change.numpy()
        contribution["weight"] = np.array(float(weight))
    if spec.validate:
        contribution |= held_out_contribution(model, judge, site, likelihoods=judges)
    return contribution


def update(state: State, total: SecureTotal) -> State:
    """Fit the linear layer to θ, or judge θ and take the mean."""
    total = accepted(total, layout(state))
    if _statistics_are_next(state):
        return _with_posterior(state, total)
    if not state.spec.validate:
        state = _averaged(state, total)
        return replace(state, done=state.round == state.spec.rounds)
    state = _judged(state, held_out_error(total))
    best = known(state.best, NAME)
    stalled = judged.stalled(best, step=state.round, patience=state.spec.patience)
    if stalled or state.round == state.spec.rounds:
        model = best.restored(state.model)
        return replace(state, model=model, done=True, rows=None, pooled=None, evidence=None)
    return _averaged(state, total)


def finished(state: State) -> bool:
    """Return whether the last round is over or the held-out error no longer falls."""
    return state.done


check_private = without_private_form(
    "fedavg sums locally trained weights, and the effect of one row on them is not bounded: in a "
    "program with differential privacy leave phase 1 out, or train with `private_exact` or `elbo`"
)


REPLAY = Replay(
    grids={
        **SCALES,
        "scales.noise_variance": Bits(SCALE_BITS),
        "scales.prior_variance": Bits(SCALE_BITS),
        "evidence": Step(EVIDENCE_STEP),
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
        words="how training on the local rows changes the kernel's weights; with validation also "
        "sums of products of features (S, b, yᵀy, n) and the error on held-out rows",
        sums=2 * (spec.rounds + 1) if spec.validate else spec.rounds,
        numbers=max(statistics, weight_count(model.kernel) + 2 * model.targets + 3),
        numbers_in_all=(spec.rounds + 1)
        * (statistics + weight_count(model.kernel) + 2 * model.targets + 3)
        if spec.validate
        else spec.rounds * (weight_count(model.kernel) + 2 * model.targets + 1),
        leaves=weight_count(model.kernel) + 2 * model.targets,
        row_count="rows" if spec.validate else None,
        local_passes=spec.local_steps,
        rate_times_steps=spec.learning_rate * spec.local_steps * spec.rounds,
        reads=frozenset({Part.TRAINING, *([Part.STOPPING] if spec.validate else [])}),
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


def _statistics_are_next(state: State) -> bool:
    return state.spec.validate and state.rows is None


def _with_posterior(state: State, total: SecureTotal) -> State:
    model, rows = state.model, round(float(total["rows"]))
    pooled, evidence, scales = None, 0.0, state.scales
    if model.targets:
        pooled = Pooled(statistics_of(total, model))
        averaged = state.spec.scales is Scales.AVERAGED
        scales = state.scales if averaged else refit(pooled.spectrum(model.kernel))
        evidence = pooled.evidence(model.kernel, scales)
    if state.fitted:
        bound = negative_bound(model, state.fitted, total, rows=rows)
        evidence = near(evidence + bound / max(rows, 1), EVIDENCE_STEP)
    return replace(
        state,
        model=model.advanced(hyperparameters=scales),
        rows=rows,
        pooled=pooled,
        fitted=stepped(model, state.fitted, total, rows=rows),
        evidence=evidence,
    )


def _averaged(state: State, total: SecureTotal) -> State:
    weight = total_weight(total, "weight")
    start = Fit.of(state.model, state.scales)
    mean = Fit(
        **{
            part: getattr(start, part) + torch.tensor(total[name]) / weight
            for name, part in _CHANGES.items()
        }
    )
    scales = mean.hyperparameters.rounded()
    averaged = state.spec.scales is Scales.AVERAGED
    return replace(
        state,
        # Refitted σ and λ belong to the previous θ: the new θ has none until its statistics exist.
        model=replace(
            state.model,
            weights=mean.weights,
            hyperparameters=scales if averaged else None,
        ),
        scales=scales,
        round=state.round + 1,
        rows=None,
        pooled=None,
        evidence=None,
    )


def _judged(state: State, error: float | None) -> State:
    model, history = state.model, known(state.history, NAME)
    weights, scales = known(model.weights, NAME), known(model.hyperparameters, NAME)
    best = judged.kept(Kept(error, weights, scales, 0, state.round), state.best, history)
    progress = Progress(0, state.round, known(state.evidence, NAME), error)
    return replace(state, best=best, history=(*history, progress))
