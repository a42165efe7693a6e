"""Update of the linear layer for added or removed rows and sites, as if refitted from scratch.

S, b, yᵀy and n are sums over rows, so those of new rows are added and those of removed rows are
subtracted. A site that joins adds all its rows, and a site that leaves removes all its rows.

broadcast  the model with its kernel and weights, which do not change
local      (S, b, yᵀy, n) of the site's added rows minus those of its removed rows
sum        the change of the statistics over all sites; every member takes part, most of them
           with zero
update     the statistics with the change, and σ and λ fitted to them

If only one site has a change, the sum of the changes *is* that site's change: without differential
privacy the coordinator then sees that site's own S and b. A site with a change therefore takes part
only if its operator has consented to this algorithm by name, which the site's policy states and
checks before the site enters the run.

Students of the sites' committee are not sums over rows, so what they learned from a removed row
stays in them. A run that starts with this stage therefore discards them (`Program.start`).

With differential privacy the noise protects a single site's change, and no consent is needed. Rows
can then be added but not removed. Anything released with a row in it stays released; a sum of
removed rows would only disclose them once more, at a further privacy cost, so rows to remove are
not read here (`client_sdk` refuses them before a site enters a run). To forget a row, run `linear`
again without it. A patient whose rows are added may have others in any part of the table,
so every unit is charged for this sum, whichever part it was assigned to.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch

from kernels.layer.posterior import SCALE_BITS, Hyperparameters, Spectrum
from kernels.layer.statistics import Statistics, added
from kernels.model.model import Model, check_model, known
from kernels.noisy.realisable import DEVIATION_BITS, repaired
from kernels.parameter_checks import check_flag
from kernels.rounds.algorithm import Contribution, accepted
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import LEAST_BUDGET, REPAIRED, SCALES, Bits, OwnStep, Replay
from kernels.rounds.shared.sufficient import (
    check_features,
    contribution_of,
    fitted_scales,
    noise_of,
    rows_in,
    scatter_rounding,
    site_statistics,
    statistics_blocks,
    statistics_length,
    summed_cross,
    summed_scatter,
)
from kernels.rounds.site.site import Part, Site
from kernels.storage import PRIVATE
from privacy.layout import Layout, SecureTotal

NAME = "update"
VERSION = 1
NEEDS = frozenset({Made.LAYER})
MAKES = frozenset({Made.CENTRE, Made.LAYER})


@dataclass(frozen=True, kw_only=True)
class Spec:
    """`refit`: fit σ and λ again to the sums (the default); otherwise they do not change."""

    STORED_AS: ClassVar[str] = "update.spec"

    refit: bool = True

    def __post_init__(self) -> None:
        check_flag(refit=self.refit)


@dataclass(frozen=True, eq=False)
class State:
    """`before`: the statistics so far, which sites do not need. `done`: the sum has been made."""

    STORED_AS: ClassVar[str] = "update.state"

    model: Model
    spec: Spec
    done: bool = False
    before: Statistics | None = field(default=None, metadata=PRIVATE)
    kept: Hyperparameters | None = field(default=None, metadata=PRIVATE)

    def __post_init__(self) -> None:
        check_model(self.model)
        check_flag(done=self.done)


def layout(state: State) -> Layout:
    """Return the change of (S, b, yᵀy, n)."""
    return Layout(statistics_blocks(state.model))


def initial(spec: Spec, model: Model) -> State:
    """Start from a model that has a linear layer."""
    before = known(model.statistics, "linear")
    kept = known(model.hyperparameters, "linear")
    return State(model.advanced(hyperparameters=None), spec, before=before, kept=kept)


def contribute(state: State, site: Site) -> Contribution:
    """Return the change due to the site's rows; zero if there is none."""
    if state.model.privacy is not None:
        return contribution_of(site_statistics(state.model, site, Part.ADDED), state.model)
    new, removed = (site_statistics(state.model, site, part) for part in (Part.ADDED, Part.REMOVED))
    plus, minus = (contribution_of(own, state.model) for own in (new, removed))
    return {name: plus[name] - minus[name] for name in plus}


def update(state: State, total: SecureTotal) -> State:
    """Add the change; refuse a result that cannot be the statistics of any table."""
    total = accepted(total, layout(state))
    before = known(state.before, "linear")
    squares = before.target_squares + torch.tensor(total["target_squares"])
    count = before.count + rows_in(total, state.model)
    if state.model.privacy is not None:
        squares, count = squares.clamp_min(0.0), max(1, count)
    statistics = Statistics(
        before.scatter + summed_scatter(total, state.model),
        before.cross + summed_cross(total, state.model),
        squares,
        count,
        before.rounding + scatter_rounding(total, state.model),
        added(before.noise, noise_of(total, state.model)),
    )
    statistics = repaired(statistics, state.model.urk)
    if statistics.noise is None:
        Spectrum.of(statistics)
    hyperparameters = fitted_scales(statistics) if state.spec.refit else known(state.kept, "linear")
    model = state.model.advanced(hyperparameters=hyperparameters, statistics=statistics)
    return replace(state, model=model, done=True, before=None, kept=None)


def finished(state: State) -> bool:
    """Return whether the one sum has been made."""
    return state.done


def check_private(_spec: Spec, model: Model) -> None:
    """Refuse a kernel whose features are not bounded."""
    check_features(model)


REPLAY = Replay(
    grids={
        **SCALES,
        **REPAIRED,
        "kept.noise_variance": Bits(SCALE_BITS),
        "kept.prior_variance": Bits(SCALE_BITS),
        "before.scatter": OwnStep(),
        "before.noise.scatter": Bits(DEVIATION_BITS),
    },
    budget=LEAST_BUDGET,
)


def declare(_spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    private = before.model.privacy is not None
    return Declaration(
        needs=NEEDS,
        needs_students=frozenset(),
        needs_held_out=False,
        makes=MAKES,
        answers=Answers.REAL,
        students=before.students,
        words="how rows that were added or removed change the sums of products of features",
        sums=1,
        numbers=statistics_length(before.model),
        numbers_in_all=statistics_length(before.model),
        leaves=statistics_length(before.model),
        row_count=None,
        local_passes=0,
        rate_times_steps=0.0,
        reads=frozenset({Part.ADDED} if private else {Part.ADDED, Part.REMOVED}),
        sampling_rate=1.0,
        noise_share=1.0,
        public_rows=PublicRows.NONE,
        public_set=None,
        needs_consent=not private,
        replay=REPLAY,
    )


STORED = (Spec, State)
