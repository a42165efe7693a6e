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

from dataclasses import dataclass, replace

import torch

from kernels.errors import ConsentNeeded
from kernels.linear import Spectrum
from kernels.refit import refit
from kernels.rounds.algorithm import Contribution
from kernels.rounds.model import Model, known
from kernels.rounds.site import Part, Site
from kernels.rounds.sufficient import contribution_of, scatter_rounding, statistics_blocks
from kernels.statistics import Statistics
from privacy.layout import Layout, SecureTotal

NAME = "update"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Spec:
    """`refit`: σ and λ anew from the sums, the default; else they stay."""

    refit: bool = True


@dataclass(frozen=True, eq=False)
class State:
    """`done` after the one sum."""

    model: Model
    spec: Spec
    done: bool = False


def initial(spec: Spec, model: Model) -> State:
    """Start from a model that has its linear layer."""
    known(model.statistics, "linear")
    return State(model, spec)


def layout(state: State) -> Layout:
    """Return the change of (S, b, yᵀy, n)."""
    return Layout(statistics_blocks(state.model))


def contribute(state: State, site: Site) -> Contribution:
    """Return what the site's rows change; zero from a site without a change."""
    added, removed = (
        Statistics.of_table(state.model.urk, *site.table(part, state.model))
        for part in (Part.ADDED, Part.REMOVED)
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
    before = known(state.model.statistics, "linear")
    statistics = Statistics(
        before.scatter + torch.tensor(total["scatter"]),
        before.cross + torch.tensor(total["cross"]),
        before.target_squares + torch.tensor(total["target_squares"]),
        before.count + round(float(total["rows"])),
        before.rounding + scatter_rounding(total, state.model.kernel.features),
    )
    spectrum = Spectrum.of(statistics)
    hyperparameters = state.model.hyperparameters
    if state.spec.refit or hyperparameters is None:
        hyperparameters = refit(spectrum)
    model = state.model.advanced(hyperparameters=hyperparameters, statistics=statistics)
    return replace(state, model=model, done=True)


def finished(state: State) -> bool:
    """One sum suffices."""
    return state.done
