"""Phase 2 in two sums: [FedBNR]'s algorithm 1 exactly as written (§3.1.3, eq. 3.5 and 3.6).

A = σ⁻² Σ_c S_c + λ⁻²I; then w̄ = Σ_c w̄_c with w̄_c = σ⁻²A⁻¹Φ_c y_c. The posterior is the same as
that of `linear`, which needs one sum and sends no A⁻¹. Use `linear`; this is the reference.

broadcast  θ; then S, σ and λ, from which each site computes A⁻¹
local      S_c, y_cᵀy_c, n_c over the training rows; then w̄_c and n_c
sum        S, yᵀy, n; then w̄: these disclose as much about all rows together as `linear` does, and
           in addition the sites see S
update     S; then b = σ²Aw̄ = Sw̄ + (σ²/λ²)w̄, so that the model has the same statistics as after
           `linear`

σ and λ must be chosen before b is known. They are those of phase 1, as in [FedBNR], or START if
there are none. But b does not depend on them, and after it the sums are complete: by default σ and
λ are refitted to the sums at the end, as in `linear`, without another sum. If λ²/σ² is so large
that the rounding of S could be seen in A⁻¹, b is transferred with a smaller λ.

[FedBNR] sends A⁻¹. Its last digits, and the signs of its eigenvectors, depend on who computes it;
S is the same for everyone.

Both sums must be over the same rows, or w̄ does not match A. The second sum counts the rows again,
and a different count is refused; requesting S again from a smaller cohort would disclose the S of
the sites that left.

Bound on w̄_c: with S_c ⪯ S + τI, where τ is the rounding of S, ‖σ⁻¹A^{-½}Φ_c‖² ≤ 1 + τλ²/σ²,
‖A^{-½}‖ ≤ λ and ‖y_c‖ ≤ √n·TARGET_BOUND, so no element exceeds
(λ/σ)·√(1 + τλ²/σ²)·√n·TARGET_BOUND. Sites and coordinator both know this bound.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from kernels.errors import StateError, StatisticsError
from kernels.layer.posterior import Hyperparameters, Spectrum
from kernels.layer.refit import refit
from kernels.layer.statistics import Statistics
from kernels.model.model import Model, check_model, check_scales
from kernels.parameter_checks import check_at_least, check_flag
from kernels.reproducible import product
from kernels.rounds.algorithm import Contribution, accepted, without_private_form
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import LEAST_BUDGET, SCALES, Replay
from kernels.rounds.shared.pooled import Pooled, check_pooled
from kernels.rounds.shared.sufficient import (
    RESOLUTION,
    TARGET_BOUND,
    contribution_of,
    scatter_block,
    scatter_rounding,
    site_statistics,
    statistics_length,
    summed_scatter,
    target_blocks,
)
from kernels.rounds.site.site import Part, Site
from privacy.layout import Block, Layout, SecureTotal

NAME = "linear_two_sums"
VERSION = 2
NEEDS = frozenset({Made.STANDARDISER})
MAKES = frozenset({Made.CENTRE, Made.LAYER})

START = {"noise_variance": 0.01, "prior_variance": 1.0}
"""σ² and λ² used to transfer b if phase 1 left none; in that case they are always refitted."""

_AMPLIFIED = 1024
"""How many times smaller than σ²/λ² the rounding of S must be for b to be transferred."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """`refit`: fit σ and λ to the final sums (the default); otherwise keep those of phase 1."""

    STORED_AS: ClassVar[str] = "linear_two_sums.spec"

    refit: bool = True

    def __post_init__(self) -> None:
        check_flag(refit=self.refit)


@dataclass(frozen=True, eq=False)
class First:
    """What the first sum gives: (S, 0, yᵀy, n), and the σ and λ of A.

    bound: the bound on the elements of every |w̄_c|.
    """

    STORED_AS: ClassVar[str] = "linear_two_sums.first"

    pooled: Pooled
    hyperparameters: Hyperparameters
    bound: float


@dataclass(frozen=True, eq=False)
class State:
    """`first` is None when the next sum is of S."""

    STORED_AS: ClassVar[str] = "linear_two_sums.state"

    model: Model
    spec: Spec
    first: First | None = None

    def __post_init__(self) -> None:
        check_model(self.model)
        if self.first is not None:
            if not isinstance(self.first, First):
                raise StateError("first must be a First or None")
            check_scales(self.first.hyperparameters, self.model.targets)
            check_at_least(0.0, bound=self.first.bound)
            check_pooled(self.first.pooled, self.model)


def layout(state: State) -> Layout:
    """Return (S, yᵀy, n), or (w̄, n)."""
    model, rows = state.model, target_blocks(state.model)
    if state.first is None:
        return Layout((scatter_block(model), *rows))
    shape = (model.kernel.features, model.targets)
    return Layout((Block("posterior_weights", shape, state.first.bound, RESOLUTION), rows[-1]))


def initial(spec: Spec, model: Model) -> State:
    """Start from the model's kernel, and drop any earlier linear layer and any second kernel."""
    return State(model.advanced(statistics=None, second=None), spec)


def contribute(state: State, site: Site) -> Contribution:
    """Sum over the site's training rows; b_c stays at the site, and only w̄_c leaves it."""
    first = state.first
    if first is not None:
        spectrum = first.pooled.spectrum(state.model.kernel)
        basis, shrunk = spectrum.eigenvectors, spectrum.posterior_variances(first.hyperparameters)
        shrunk = shrunk / first.hyperparameters.noise_variance
    statistics = site_statistics(state.model, site, Part.TRAINING)
    blocks = contribution_of(statistics, state.model)
    if first is None:
        return {name: blocks[name] for name in ("scatter", "target_squares", "rows")}
    weights = basis @ (shrunk * (basis.mT @ statistics.cross))
    return {"posterior_weights": weights.numpy(), "rows": blocks["rows"]}


def update(state: State, total: SecureTotal) -> State:
    """Set S, or complete the statistics."""
    total = accepted(total, layout(state))
    if state.first is None:
        return _with_scatter(state, total)
    return _complete(state, state.first, total)


def finished(state: State) -> bool:
    """Return whether the second sum has completed the statistics."""
    return state.model.statistics is not None


check_private = without_private_form(
    "linear_two_sums would spend budget on a second sum that adds no information: with "
    "differential privacy use `linear`"
)


REPLAY = Replay(
    grids=SCALES,
    budget=LEAST_BUDGET,
)


def declare(_spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    return Declaration(
        needs=NEEDS,
        needs_students=frozenset(),
        needs_held_out=False,
        makes=MAKES,
        answers=Answers.REAL,
        students=before.students,
        words="sums of products of features (S, yᵀy, n), then sums of the linear layer's weights",
        sums=2,
        numbers=statistics_length(before.model),
        numbers_in_all=statistics_length(before.model) + 1,
        leaves=statistics_length(before.model) + 1,
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


STORED = (Spec, State, Pooled, First)


def _with_scatter(state: State, total: SecureTotal) -> State:
    model = state.model
    first = Statistics(
        summed_scatter(total, model),
        torch.zeros(model.kernel.features, model.targets, dtype=torch.float64),
        torch.tensor(total["target_squares"]).clamp_min(0.0),
        round(float(total["rows"])),
        scatter_rounding(total, model),
    )
    hyperparameters = model.hyperparameters or Hyperparameters.of(**START, targets=model.targets)
    noise = hyperparameters.noise_variance
    least = noise / max(_AMPLIFIED * first.rounding, math.ulp(0.0))
    hyperparameters = Hyperparameters(noise, hyperparameters.prior_variance.minimum(least))
    ratio = float((hyperparameters.prior_variance / hyperparameters.noise_variance).max())
    bound = math.sqrt(ratio * (1 + first.rounding * ratio) * model.max_rows) * TARGET_BOUND
    # Leave room for float64 rounding where the bound is reached.
    return replace(state, first=First(Pooled(first), hyperparameters, bound * (1 + 2.0**-20)))


def _complete(state: State, first: First, total: SecureTotal) -> State:
    known_sums, rows = first.pooled.statistics, round(float(total["rows"]))
    if rows != first.pooled.rows:
        raise StatisticsError(
            f"the second sum covers {rows} rows and the first {first.pooled.rows}: repeat it over "
            "the sites of the first, or use the stage `linear`, which needs one sum"
        )
    used = first.hyperparameters
    weights = torch.tensor(np.asarray(total["posterior_weights"]))
    ratio = used.noise_variance / used.prior_variance
    cross = product(known_sums.scatter, weights) + ratio * weights
    statistics = replace(known_sums, cross=cross)
    hyperparameters = state.model.hyperparameters
    if state.spec.refit or hyperparameters is None:
        inducing = state.model.kernel.inducing_features
        hyperparameters = refit(Spectrum.of(statistics, inducing=inducing))
    model = state.model.advanced(hyperparameters=hyperparameters, statistics=statistics)
    return replace(state, model=model)
