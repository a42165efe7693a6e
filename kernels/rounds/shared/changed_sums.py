"""Layers after a change of their sums: rows that were added or removed, or that were held out.

S, b, yᵀy and n are sums over rows, so those of other rows are added or subtracted, exactly. Targets
that are not real numbers have weighted sums at a q (`kernels.outcomes`). Those of the change are
made at the q of the layers, and one step from the changed sums gives the next q. At the optimum the
sums of the other rows would change with q only by what the step changes, so the result differs from
refitting from scratch in second order: little for a small share of rows.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from kernels.layer.posterior import Spectrum
from kernels.layer.statistics import Statistics, added
from kernels.model.model import Model
from kernels.noisy.realisable import repaired
from kernels.outcomes.classes import STRIDE
from kernels.outcomes.fitted import FittedOutcome
from kernels.outcomes.variational import updated_together
from kernels.rounds.shared.sufficient import (
    noise_of,
    rows_in,
    scatter_rounding,
    summed_cross,
    summed_scatter,
)
from kernels.rounds.shared.weighted_sums import sums_of
from privacy.layout import SecureTotal


def changed_statistics(before: Statistics, total: SecureTotal, model: Model) -> Statistics:
    """Return statistics with a summed change; refuse what cannot be those of any table."""
    squares = before.target_squares + torch.tensor(total["target_squares"])
    count = before.count + rows_in(total, model)
    if model.privacy is not None:
        squares, count = squares.clamp_min(0.0), max(1, count)
    statistics = Statistics(
        before.scatter + summed_scatter(total, model),
        before.cross + summed_cross(total, model),
        squares,
        count,
        before.rounding + scatter_rounding(total, model),
        added(before.noise, noise_of(total, model)),
    )
    statistics = repaired(statistics, model.urk)
    if statistics.noise is None:
        Spectrum.of(statistics)
    return statistics


def changed_outcomes(
    outcomes: Sequence[FittedOutcome], total: SecureTotal, model: Model, *, refit: bool
) -> tuple[FittedOutcome, ...]:
    """Return every outcome after a step from its changed sums."""
    found = []
    change = round(float(total["rows"])) if model.privacy is None else 0
    for index, own in enumerate(outcomes):
        sums = sums_of(total, model, index, own, rows=0)
        changed = [
            replace(layer.sums + each, count=max(0, layer.sums.count + change))
            for layer, each in zip(own.layers, sums, strict=True)
        ]
        share = 1.0 if len(changed) == 1 else STRIDE
        layers = updated_together(own.layers, changed, share=share, fixed_prior=not refit)
        if model.privacy is None:
            for layer in layers:
                _ = layer.spectrum  # refuses what cannot be the sums of any table
        found.append(replace(own, layers=layers))
    return tuple(found)
