"""A site's own gain for targets that are not real numbers: the log loss of both models.

The local model of an outcome has the federation's kernel and scales, and layers that were fitted to
the site's own training rows alone, from the site's own census: the same search as the federation's
(`kernels.outcomes.newton`), over one table. The dispersion of a count is the federation's. Both
models are scored by −log p of the site's held-out rows, before recalibration. A level that the site
does not have is no error: the federation knows more about it than the site does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

from torch import Tensor

from kernels.model.model import Model, known
from kernels.outcomes.census import Census
from kernels.outcomes.classes import STRIDE
from kernels.outcomes.fitted import FittedOutcome
from kernels.outcomes.likelihood import Likelihood
from kernels.outcomes.newton import Search, advanced, rule
from kernels.rounds.shared.weighted_sums import outcome_chunks, starting
from kernels.rounds.site.site import Part, Site
from kernels.tables.targets import Classes, Outcome

HELD_OUT = (Part.STOPPING, Part.CALIBRATION)
SUMS = 8
"""How often the local model's sums are made: Newton's steps settle in fewer."""


@dataclass(frozen=True)
class OutcomeGain:
    """The log loss of one outcome on held-out rows, in nats per row, of both models."""

    target: Outcome
    rows: int
    local: float
    federated: float

    @property
    def log_loss(self) -> float:
        """The reduction of the log loss by the federation, in nats per row."""
        return self.local - self.federated


def outcome_gains(model: Model, site: Site) -> tuple[OutcomeGain, ...]:
    """Return the comparison for every outcome of a fitted model; none for a schema without any."""
    outcomes = model.schema.outcomes
    if not outcomes:
        return ()
    federated = known(model.outcomes, "outcomes")
    local = [_fitted(model, site, index, own) for index, own in enumerate(_at_prior(model, site))]
    rows, losses = 0, [[0.0, 0.0] for _ in outcomes]
    for phi, columns in _chunks(model, site, *HELD_OUT):
        rows += len(phi)
        for index, outcome in enumerate(outcomes):
            for which, fitted in enumerate((local[index], federated[index])):
                at = Likelihood(outcome, fitted, inducing=model.kernel.inducing_features)
                own = at.losses(phi, columns[index])
                losses[index][which] += float(own.sum())
    return tuple(
        OutcomeGain(outcome, rows, *(loss / rows for loss in both))
        for outcome, both in zip(outcomes, losses, strict=True)
    )


def _chunks(model: Model, site: Site, *parts: Part) -> Iterator[tuple[Tensor, list[Tensor]]]:
    for part in parts:
        for phi, columns in outcome_chunks(model, site, part):
            yield phi.detach().double(), columns


def _at_prior(model: Model, site: Site) -> tuple[FittedOutcome, ...]:
    """Return every outcome at its prior, with the offsets of the site's own rows."""
    pieces = (Census.of(chunk.records) for chunk in site.chunks(Part.TRAINING, model))
    own = starting(replace(model, census=reduce(add, pieces, Census.zero(model.schema))))
    theirs = known(model.outcomes, "outcomes")
    return tuple(
        replace(each, dispersion=other.dispersion) for each, other in zip(own, theirs, strict=True)
    )


def _fitted(model: Model, site: Site, index: int, start: FittedOutcome) -> FittedOutcome:
    """Return an outcome whose layers are fitted to the site's training rows."""
    outcome = model.schema.outcomes[index]
    search = Search(start.layers, stride=STRIDE if isinstance(outcome, Classes) else 1.0)
    for _ in range(SUMS):
        at = Likelihood(outcome, replace(start, layers=search.layers), rule(search))
        sums = (
            at.sums(phi, columns[index]) for phi, columns in _chunks(model, site, Part.TRAINING)
        )
        totals = reduce(lambda one, other: tuple(map(add, one, other)), sums)
        search = advanced(search, totals)
    return replace(start, layers=search.kept or search.layers)
