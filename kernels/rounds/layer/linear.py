"""Phase 2, fused: the global Bayesian linear layer in one sum ([FedBNR] §3.1.3).

A = σ⁻² Σ_c S_c + λ⁻²I, w̄ = σ⁻²A⁻¹ Σ_c b_c.

broadcast  the standardiser, the kernel and its weights θ
local      S_c = Σ φφᵀ, b_c = Σ φy, y_cᵀy_c, n_c over the training rows
sum        (S, b, yᵀy, n) of all rows together, which is what the coordinator sees
update     σ and λ from the sums (or kept, as in [FedBNR]), and the posterior from all of these

If the kernel has a linear part beside another one, its ratio ρ, which is a weight of the kernel, is
chosen with σ and λ, by evidence from the same sums (`kernels.layer.ratio`). With differential
privacy ρ is kept: at another ratio, the noise of S and b would differ from feature to feature.

A model of two kernels (`kernels.model.second`) has the sums and the layer of each.

With differential privacy the sums are noisy and are stored with the deviations of their noise: σ, λ
and the posterior are those of `kernels.noisy.noise_aware`.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from kernels.features.linear_part import log_ratio_of, with_log_ratio
from kernels.layer.ratio import Chosen, best_ratio
from kernels.model.model import Model
from kernels.noisy.realisable import repaired
from kernels.parameter_checks import check_flag
from kernels.rounds.algorithm import Contribution, accepted
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import LEAST_BUDGET, REPAIRED, SCALES, Replay
from kernels.rounds.shared.sufficient import (
    check_features,
    contribution_of,
    fitted_scales,
    site_statistics,
    statistics_blocks,
    statistics_of,
)
from kernels.rounds.shared.two_kernels import SECOND, blocks_of_each, contribution_of_each
from kernels.rounds.site.site import Part, Site
from privacy.layout import Layout, SecureTotal

NAME = "linear"
VERSION = 1
NEEDS = frozenset({Made.STANDARDISER})
MAKES = frozenset({Made.CENTRE, Made.LAYER})


@dataclass(frozen=True, kw_only=True)
class Spec:
    """`refit`: fit σ, λ and ρ to the sums (the default); otherwise keep those of phase 1."""

    STORED_AS: ClassVar[str] = "linear.spec"

    refit: bool = True

    def __post_init__(self) -> None:
        check_flag(refit=self.refit)


@dataclass(frozen=True, eq=False)
class State:
    """The model; the one sum has been made when it has statistics."""

    STORED_AS: ClassVar[str] = "linear.state"

    model: Model
    spec: Spec


def layout(state: State) -> Layout:
    """Return (S, b, yᵀy, n)."""
    return Layout(blocks_of_each(state.model, statistics_blocks))


def initial(spec: Spec, model: Model) -> State:
    """Start from the model, and drop any earlier linear layer."""
    second = None if model.second is None else model.second.without_sums
    return State(model.advanced(centre=None, second=second), spec)


def contribute(state: State, site: Site) -> Contribution:
    """Sum over the site's training rows."""
    return contribution_of_each(
        state.model, lambda own: contribution_of(site_statistics(own, site, Part.TRAINING), own)
    )


def update(state: State, total: SecureTotal) -> State:
    """Set the statistics, and fit σ and λ, and the ratio of a linear part, to them."""
    total = accepted(total, layout(state))
    model, other = _fitted(state.spec, state.model, total), state.model.other
    if other is not None:
        # New weights of the first kernel, which are a ratio at most, leave the second as it is.
        model = replace(model, second=state.model.second)
        model = model.beside(_fitted(state.spec, other, total.part(SECOND)))
    return replace(state, model=model)


def finished(state: State) -> bool:
    """Return whether the one sum has been made."""
    return state.model.statistics is not None


def check_private(_spec: Spec, model: Model) -> None:
    """Refuse a kernel whose features are not bounded."""
    check_features(model)


REPLAY = Replay(
    grids={**SCALES, **REPAIRED},
    budget=LEAST_BUDGET,
)


def declare(_spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    numbers = sum(block.length for block in blocks_of_each(before.model, statistics_blocks))
    return Declaration(
        needs=NEEDS,
        needs_students=frozenset(),
        needs_held_out=False,
        makes=MAKES,
        answers=Answers.REAL,
        students=before.students,
        words="sums of products of features (S, b, yᵀy, n), once",
        sums=1,
        numbers=numbers,
        numbers_in_all=numbers,
        leaves=numbers,
        row_count="rows",
        local_passes=0,
        rate_times_steps=0.0,
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


STORED = (Spec, State)


def _fitted(spec: Spec, model: Model, total: SecureTotal) -> Model:
    """Return a model with the layer that its kernel's sums give."""
    statistics = repaired(statistics_of(total, model), model.urk)
    log_ratio = log_ratio_of(model.kernel, model.urk.weights.detach())
    if spec.refit and log_ratio is not None and statistics.noise is None:
        return _at(best_ratio(model.kernel, statistics, log_ratio=log_ratio), model)
    hyperparameters = model.hyperparameters
    if spec.refit or hyperparameters is None:
        hyperparameters = fitted_scales(statistics, model.kernel)
    return model.advanced(hyperparameters=hyperparameters, statistics=statistics)


def _at(chosen: Chosen, model: Model) -> Model:
    """Return the model with the chosen ratio, and with σ, λ and the statistics at it."""
    weights = with_log_ratio(model.urk.weights.detach(), chosen.log_ratio)
    return model.advanced(
        weights=weights,
        hyperparameters=chosen.hyperparameters,
        statistics=chosen.statistics,
    )
