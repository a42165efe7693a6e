"""A site's own gain for targets that are not real numbers: the log loss of both models.

The local model of an outcome has the federation's kernel and scales, and layers that were fitted to
the site's own training rows alone, from the site's own census: the same search as the federation's
(`kernels.outcomes.newton`), over one table. The dispersion of a count is the federation's. Both
models are scored by −log p of the site's held-out rows, before recalibration. A level that the site
does not have is no error: the federation knows more about it than the site does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import torch
from torch import Tensor

from client_sdk.model.paired import standard_error
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
    """The log loss of one outcome on held-out rows, in nats per row, of both models.

    error: the standard error of `log_loss`; NaN if there is only one patient.
    """

    target: Outcome
    rows: int
    local: float
    federated: float
    error: float

    @property
    def log_loss(self) -> float:
        """The reduction of the log loss by the federation, in nats per row."""
        return self.local - self.federated


def own_outcomes(model: Model, federated: Model, site: Site) -> tuple[FittedOutcome, ...]:
    """Return the outcomes' layers of a site's own training rows.

    model: the kernel; with differential privacy it reads few rows of a patient. federated: has the
    dispersions of counts, if it has layers; without them a count has dispersion 1.
    """
    start = _at_prior(model, federated.outcomes, site)
    return tuple(_fitted(model, site, index, own) for index, own in enumerate(start))


def outcome_gains(
    local: Model, model: Model, site: Site, patients: Sequence[bytes]
) -> tuple[OutcomeGain, ...]:
    """Return the comparison for every outcome of a fitted model; none for a schema without any.

    local: a model of the same kernel. patients: a key for each held-out row, equal for the rows of
    one patient.
    """
    outcomes = model.schema.outcomes
    if not outcomes:
        return ()
    federated, own_layers = known(model.outcomes, "outcomes"), known(local.outcomes, "outcomes")
    losses: list[list[Tensor]] = [[] for _ in outcomes]
    for phi, columns in _chunks(model, site, *HELD_OUT):
        for index, outcome in enumerate(outcomes):
            both = [
                Likelihood(outcome, fitted, inducing=model.kernel.inducing_features).losses(
                    phi, columns[index]
                )
                for fitted in (own_layers[index], federated[index])
            ]
            losses[index].append(torch.stack(both, 1))
    return tuple(
        _compared(outcome, torch.cat(own), patients)
        for outcome, own in zip(outcomes, losses, strict=True)
    )


def _compared(outcome: Outcome, losses: Tensor, patients: Sequence[bytes]) -> OutcomeGain:
    """Return the gain from each row's log losses by both models, (n, 2)."""
    local, federated = losses.mean(0).tolist()
    error = standard_error((losses[:, 0] - losses[:, 1])[:, None], patients)
    return OutcomeGain(outcome, len(losses), local, federated, float(error))


def _chunks(model: Model, site: Site, *parts: Part) -> Iterator[tuple[Tensor, list[Tensor]]]:
    for part in parts:
        for phi, columns in outcome_chunks(model, site, part):
            yield phi.detach().double(), columns


def _at_prior(
    model: Model, theirs: Sequence[FittedOutcome] | None, site: Site
) -> tuple[FittedOutcome, ...]:
    """Return every outcome at its prior, with the offsets of the site's own rows."""
    pieces = (Census.of(chunk.records) for chunk in site.chunks(Part.TRAINING, model))
    own = starting(replace(model, census=reduce(add, pieces, Census.zero(model.schema))))
    if theirs is None:
        return own
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
