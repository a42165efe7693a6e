"""The recalibration of a hospital's own layers, by its own rows.

What a run's recalibration is to all sites together (`kernels.rounds.judging.recalibration`), here
of one site's counts, which are summed with nobody's. A hospital has few held-out rows, so the law
of residuals is mostly that of its training rows, each predicted without its patient's rows, moved
to the scale of the held-out ones; with few rows the prior keeps its scale near 1. So a law is
fitted to any number of rows. Conformal intervals, which are served from 500 held-out rows for
calibration on, are infinite until these are enough.
"""

from dataclasses import replace
from typing import Any

import torch

from kernels.model.model import Model, known
from kernels.outcomes.scored.kinds import kind_of
from kernels.rounds.algorithm import Contribution
from kernels.rounds.judging import recalibration
from kernels.rounds.judging.outcome_sums import name_of
from kernels.rounds.site.site import Site
from kernels.scores.recalibration import Recalibration


def calibrated(model: Model, site: Site) -> Model:
    """Return a model whose layers are a site's own with the recalibration by the site's rows."""
    counted = recalibration.contribute(
        recalibration.initial(recalibration.Spec(min_rows=1), model), site
    )
    laws = _laws(counted) if model.schema.real else ()
    found = tuple(_of_outcome(model, index, counted) for index in range(len(model.schema.outcomes)))
    return replace(model, recalibration=laws, calibrations=found)


def _laws(counted: Contribution) -> tuple[Recalibration, ...]:
    each = [torch.as_tensor(counted[name]) for name in ("residuals", "stopping", "training")]
    return tuple(
        Recalibration.of(counts, stopping=stopping, training=training, min_rows=0)
        for counts, stopping, training in zip(*each, strict=True)
    )


def _of_outcome(model: Model, index: int, counted: Contribution) -> Any:
    target = model.schema.outcomes[index]
    kind, name = kind_of(target), name_of(index, "held")
    totals = {
        own.name: torch.as_tensor(counted[f"{name}.{own.name}"]) for own in kind.held.blocks(target)
    }
    dispersion = known(model.judged.outcomes, "outcomes")[index].dispersion
    return kind.calibration.of(target, kind.held.of_totals(target, totals), dispersion=dispersion)
