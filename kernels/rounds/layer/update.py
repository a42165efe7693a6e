"""Rows added and removed, sites joining and leaving: the linear layer as if refitted from scratch.

S, b, yᵀy and n are sums over rows, so those of new rows are added and those of removed rows are
subtracted. A site that joins adds all its rows, one that leaves removes all of its own.

broadcast  the model with its kernel and weights; they stay as they are
local      (S, b, yᵀy, n) of the site's added rows minus those of its removed rows
sum        the change of the statistics, of all sites together; every member takes part, most
           with zero
update     the statistics with the change, and σ and λ by them

The sum of the changes *is* the change of a site that alone has one: without differential privacy
the coordinator then sees that site's own S and b. A site with a change therefore takes part only
where its operator has consented to this algorithm by name.

Students of the sites' committee are not sums over rows: what a removed row taught them stays. A run
that starts with this stage therefore forgets them (`Program.start`).

With differential privacy the noise covers that, and no consent is asked for. Rows can then be added
and not removed. What was released with a row in it stays released; a sum of removed rows would only
show them once more, and pay for it. Whoever must forget a row runs `linear` again without it. A
patient whose rows are added may have others in any part of the table, so every unit pays for this
sum, whatever part it was dealt to.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch

from kernels.errors import ConsentNeeded, NotPrivate
from kernels.layer.posterior import Hyperparameters, Spectrum
from kernels.layer.statistics import Statistics, added
from kernels.model.model import Model, known
from kernels.noisy.realisable import repaired
from kernels.parameter_checks import check_flag
from kernels.rounds.algorithm import Contribution, accepted
from kernels.rounds.declaration import Before, Declaration, Made, PublicRows
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
    """`refit`: σ and λ anew from the sums, the default; else they stay."""

    STORED_AS: ClassVar[str] = "update.spec"

    refit: bool = True

    def __post_init__(self) -> None:
        check_flag(refit=self.refit)


@dataclass(frozen=True, eq=False)
class State:
    """`before`: the statistics so far, which a site does not need. `done` after the one sum."""

    STORED_AS: ClassVar[str] = "update.state"

    model: Model
    spec: Spec
    done: bool = False
    before: Statistics | None = field(default=None, metadata=PRIVATE)
    kept: Hyperparameters | None = field(default=None, metadata=PRIVATE)


def layout(state: State) -> Layout:
    """Return the change of (S, b, yᵀy, n)."""
    return Layout(statistics_blocks(state.model))


def initial(spec: Spec, model: Model) -> State:
    """Start from a model that has its linear layer."""
    before = known(model.statistics, "linear")
    kept = known(model.hyperparameters, "linear")
    return State(model.advanced(hyperparameters=None), spec, before=before, kept=kept)


def contribute(state: State, site: Site) -> Contribution:
    """Return what the site's rows change; zero from a site without a change."""
    if state.model.privacy is not None:
        return _new_rows(state, site)
    new, removed = (site_statistics(state.model, site, part) for part in (Part.ADDED, Part.REMOVED))
    if new.count + removed.count and NAME not in site.consents:
        raise ConsentNeeded(
            "this site has rows to add or remove. If no other site has any, the sum shows the "
            f"statistics of these rows: the site's operator must first consent to {NAME!r} by name"
        )
    plus, minus = (contribution_of(own, state.model) for own in (new, removed))
    return {name: plus[name] - minus[name] for name in plus}


def update(state: State, total: SecureTotal) -> State:
    """Add the change; what cannot be a table's statistics any more is refused."""
    total = accepted(total, layout(state))
    before = known(state.before, "linear")
    squares = before.target_squares + torch.tensor(total["target_squares"])
    count = before.count + rows_in(total, state.model)
    if state.model.privacy is not None:
        squares, count = squares.clamp_min(0.0), max(1, count)
    statistics = Statistics(
        before.scatter + torch.tensor(total["scatter"]),
        before.cross + torch.tensor(total["cross"]),
        squares,
        count,
        before.rounding + scatter_rounding(total, state.model.kernel.features),
        added(before.noise, noise_of(total, state.model)),
    )
    statistics = repaired(statistics, state.model.urk)
    if statistics.noise is None:
        Spectrum.of(statistics)
    hyperparameters = fitted_scales(statistics) if state.spec.refit else known(state.kept, "linear")
    model = state.model.advanced(hyperparameters=hyperparameters, statistics=statistics)
    return replace(state, model=model, done=True, before=None, kept=None)


def finished(state: State) -> bool:
    """One sum suffices."""
    return state.done


def check_private(_spec: Spec, model: Model) -> None:
    """Refuse a kernel whose features have no bound."""
    check_features(model)


def declare(_spec: Spec, before: Before) -> Declaration:
    """Say what the stage needs, makes, reads and gives away, at most."""
    private = before.model.privacy is not None
    return Declaration(
        needs=NEEDS,
        needs_students=frozenset(),
        needs_held_out=False,
        makes=MAKES,
        students=before.students,
        words="how rows that were added or removed change the sums of products of features",
        sums=1,
        numbers=statistics_length(before.model),
        reads=frozenset({Part.ADDED} if private else {Part.ADDED, Part.REMOVED}),
        sampling_rate=1.0,
        noise_share=1.0,
        public_rows=PublicRows.NONE,
        needs_consent=not private,
    )


STORED = (Spec, State)


def _new_rows(state: State, site: Site) -> Contribution:
    if Part.REMOVED in site.parts:
        raise NotPrivate(
            "with differential privacy rows can be added but not removed: run `linear` again over "
            "the table without them"
        )
    return contribution_of(site_statistics(state.model, site, Part.ADDED), state.model)
