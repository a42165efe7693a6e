"""Phase 2, fused: the global Bayesian linear layer in one sum ([FedBNR] §3.1.3).

A = σ⁻² Σ_c S_c + λ⁻²I, w̄ = σ⁻²A⁻¹ Σ_c b_c.

broadcast  the standardiser, the kernel and its weights θ
local      S_c = Σ φφᵀ, b_c = Σ φy, y_cᵀy_c, n_c over the training rows
sum        (S, b, yᵀy, n): what the coordinator sees, of all rows together
update     σ and λ from the sums (or kept, as in [FedBNR]), and with them the posterior

With differential privacy the sums are noisy, and stay stored with their noise's deviations: σ, λ
and the posterior are those of `kernels.noisy.noise_aware`.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from kernels.model.model import Model
from kernels.noisy.realisable import repaired
from kernels.parameter_checks import check_flag
from kernels.rounds.algorithm import Contribution, accepted
from kernels.rounds.declaration import Before, Declaration, Made, PublicRows
from kernels.rounds.shared.sufficient import (
    check_features,
    contribution_of,
    fitted_scales,
    site_statistics,
    statistics_blocks,
    statistics_length,
    statistics_of,
)
from kernels.rounds.site.site import Part, Site
from privacy.layout import Layout, SecureTotal

NAME = "linear"
VERSION = 1
NEEDS = frozenset({Made.STANDARDISER})
MAKES = frozenset({Made.CENTRE, Made.LAYER})


@dataclass(frozen=True, kw_only=True)
class Spec:
    """`refit`: σ and λ from the sums, the default; else those of phase 1 are kept."""

    STORED_AS: ClassVar[str] = "linear.spec"

    refit: bool = True

    def __post_init__(self) -> None:
        check_flag(refit=self.refit)


@dataclass(frozen=True, eq=False)
class State:
    """Done with its one sum when the model has statistics."""

    STORED_AS: ClassVar[str] = "linear.state"

    model: Model
    spec: Spec


def layout(state: State) -> Layout:
    """Return (S, b, yᵀy, n)."""
    return Layout(statistics_blocks(state.model))


def initial(spec: Spec, model: Model) -> State:
    """Start from the model without any earlier linear layer."""
    return State(model.advanced(centre=None), spec)


def contribute(state: State, site: Site) -> Contribution:
    """Sum over the site's training rows."""
    return contribution_of(site_statistics(state.model, site, Part.TRAINING), state.model)


def update(state: State, total: SecureTotal) -> State:
    """Set the statistics, and σ and λ by them."""
    total = accepted(total, layout(state))
    statistics = repaired(statistics_of(total, state.model), state.model.urk)
    hyperparameters = state.model.hyperparameters
    if state.spec.refit or hyperparameters is None:
        hyperparameters = fitted_scales(statistics)
    model = state.model.advanced(hyperparameters=hyperparameters, statistics=statistics)
    return replace(state, model=model)


def finished(state: State) -> bool:
    """One sum suffices."""
    return state.model.statistics is not None


def check_private(_spec: Spec, model: Model) -> None:
    """Refuse a kernel whose features have no bound."""
    check_features(model)


def declare(_spec: Spec, before: Before) -> Declaration:
    """Say what the stage needs, makes, reads and gives away, at most."""
    return Declaration(
        needs=NEEDS,
        needs_students=frozenset(),
        needs_held_out=False,
        makes=MAKES,
        students=before.students,
        words="sums of products of features (S, b, yᵀy, n), once",
        sums=1,
        numbers=statistics_length(before.model),
        reads=frozenset({Part.TRAINING}),
        sampling_rate=1.0,
        noise_share=1.0,
        public_rows=PublicRows.NONE,
        needs_consent=False,
    )


STORED = (Spec, State)
