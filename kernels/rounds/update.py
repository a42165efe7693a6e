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
"""

from dataclasses import dataclass, field, replace

import torch

from kernels.errors import ConsentNeeded
from kernels.linear import Hyperparameters, Spectrum
from kernels.refit import refit
from kernels.rounds.algorithm import Contribution, accepted
from kernels.rounds.model import Model, known
from kernels.rounds.parameters import check_flag
from kernels.rounds.site import Part, Site
from kernels.rounds.storage import PRIVATE
from kernels.rounds.sufficient import (
    contribution_of,
    scatter_rounding,
    site_statistics,
    statistics_blocks,
)
from kernels.statistics import Statistics
from privacy.layout import Layout, SecureTotal

NAME = "update"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Spec:
    """`refit`: σ and λ anew from the sums, the default; else they stay."""

    refit: bool = True

    def __post_init__(self) -> None:
        check_flag(refit=self.refit)


@dataclass(frozen=True, eq=False)
class State:
    """`before`: the statistics so far, which a site does not need. `done` after the one sum."""

    model: Model
    spec: Spec
    done: bool = False
    before: Statistics | None = field(default=None, metadata=PRIVATE)
    kept: Hyperparameters | None = field(default=None, metadata=PRIVATE)


def initial(spec: Spec, model: Model) -> State:
    """Start from a model that has its linear layer."""
    before = known(model.statistics, "linear")
    kept = known(model.hyperparameters, "linear")
    return State(model.advanced(hyperparameters=None), spec, before=before, kept=kept)


def layout(state: State) -> Layout:
    """Return the change of (S, b, yᵀy, n)."""
    return Layout(statistics_blocks(state.model))


def contribute(state: State, site: Site) -> Contribution:
    """Return what the site's rows change; zero from a site without a change."""
    added, removed = (
        site_statistics(state.model, site, part) for part in (Part.ADDED, Part.REMOVED)
    )
    if added.count + removed.count and NAME not in site.consents:
        raise ConsentNeeded(
            "this site has rows to add or remove, and where it alone has, the sum shows their "
            f"statistics: its operator must consent to {NAME!r} by name first"
        )
    plus, minus = contribution_of(added), contribution_of(removed)
    return {name: plus[name] - minus[name] for name in plus}


def update(state: State, total: SecureTotal) -> State:
    """Add the change; what cannot be a table's statistics any more is refused."""
    total = accepted(total, layout(state))
    before = known(state.before, "linear")
    statistics = Statistics(
        before.scatter + torch.tensor(total["scatter"]),
        before.cross + torch.tensor(total["cross"]),
        before.target_squares + torch.tensor(total["target_squares"]),
        before.count + round(float(total["rows"])),
        before.rounding + scatter_rounding(total, state.model.kernel.features),
    )
    spectrum = Spectrum.of(statistics)
    hyperparameters = refit(spectrum) if state.spec.refit else known(state.kept, "linear")
    model = state.model.advanced(hyperparameters=hyperparameters, statistics=statistics)
    return replace(state, model=model, done=True, before=None, kept=None)


def finished(state: State) -> bool:
    """One sum suffices."""
    return state.done
