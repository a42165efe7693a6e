"""The density of held-out rows under a finished model, from sums over them.

Both halves of them judge targets that are real numbers: the rows for calibration, and those for
stopping, which have chosen the kernel's weights. A kernel with more weights to choose is favoured
by the latter, which its handicap is for; but where rows are few, twice as many choose better.
Outcomes are judged by the rows for calibration alone: training was stopped by the very loss that
would be judged.

Residuals are judged by the law that recalibration would give them, fitted to one half of the rows
for the other half (`kernels.scores.recalibration`): a kernel's own variance is not what is served.

local      a histogram of |z| in two folds, Σ log √v, Σ −log p of outcomes and the number of rows
total      −log density per row, of all targets added
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels.errors import ProgramError
from kernels.layer.posterior import Prediction
from kernels.model.model import Model
from kernels.model.prediction import predict_standardised
from kernels.outcomes.likelihood import MOST_LOSS
from kernels.reproducible import near
from kernels.rounds.shared.weighted_sums import likelihoods_at, outcome_chunks
from kernels.rounds.site.site import Part, Site
from kernels.scores.recalibration import BINS, EDGES, FOLDS, fit, histograms
from privacy.layout import Block, SecureTotal

DENSITY_STEP = 2.0**-12
"""The grid of the held-out log density per row, in nats."""
_LOG_DEVIATION_BOUND = 64.0
_LOG_RESOLUTION = 2.0**-30


def _parts(model: Model) -> tuple[Part, ...]:
    """Return the parts whose rows judge."""
    return (Part.CALIBRATION,) if model.schema.outcomes else (Part.STOPPING, Part.CALIBRATION)


class Residuals:
    """Sums over the residuals of the targets that are real numbers, to which rows are added."""

    def __init__(self, targets: int) -> None:
        """Start without rows."""
        self._counts = torch.zeros(targets, FOLDS, BINS, dtype=torch.float64)
        self._deviations = torch.zeros(targets, dtype=torch.float64)

    def add(self, said: Prediction, y: Tensor, fold: Tensor) -> None:
        """Add the rows with targets y, (n, T), that are in these folds, (n,)."""
        z = (y - said.mean) / said.variance.sqrt()
        for f in range(FOLDS):
            self._counts[:, f] += histograms(z[fold == f])
        self._deviations += said.variance.log().clamp(-60, 60).sum(0) / 2

    def blocks(self) -> dict[str, NDArray[np.float64]]:
        """Return the sums by name."""
        return {"residuals": self._counts.numpy(), "log_deviations": self._deviations.numpy()}


def density_blocks(model: Model) -> list[Block]:
    """Return the blocks of the densities of held-out rows under one model."""
    rows, real, others = float(model.max_rows), model.targets, len(model.schema.outcomes)
    blocks = [Block("held_out", (), rows, 1.0)]
    if real:
        blocks += [
            Block("residuals", (real, FOLDS, BINS), rows, 1.0),
            Block("log_deviations", (real,), rows * _LOG_DEVIATION_BOUND, _LOG_RESOLUTION),
        ]
    if others:
        blocks.append(Block("losses", (others,), rows * MOST_LOSS, _LOG_RESOLUTION))
    return blocks


def held_out_rows(model: Model, site: Site) -> NDArray[np.float64]:
    """Return the block with the number of rows that models are judged by."""
    return np.array(float(sum(map(site.count, _parts(model)))))


def held_out_chunks(model: Model, site: Site) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield features, targets and folds of these rows, standardised."""
    for part in _parts(model):
        for (x, y, _), fold in site.chunks_in_folds(part, model, folds=FOLDS):
            yield x, y, fold


def judged(model: Model, site: Site) -> dict[str, NDArray[np.float64]]:
    """Sum what the densities of a site's held-out rows follow from."""
    blocks = {"held_out": held_out_rows(model, site)}
    if model.targets:
        residuals = Residuals(model.targets)
        for x, y, fold in held_out_chunks(model, site):
            residuals.add(predict_standardised(model, x), y, fold)
        blocks |= residuals.blocks()
    likelihoods = likelihoods_at(model, model.outcomes or ())
    if likelihoods:
        losses = torch.zeros(len(model.schema.outcomes), dtype=torch.float64)
        for phi, columns in outcome_chunks(model, site, Part.CALIBRATION):
            for index, (at, own) in enumerate(zip(likelihoods, columns, strict=True)):
                losses[index] += at.losses(phi, own).sum()
        blocks["losses"] = losses.numpy()
    return blocks


def rows_judged(total: SecureTotal) -> int:
    """Return the number of held-out rows of all sites, which must be at least 1."""
    rows = round(float(total["held_out"]))
    if rows < 1:
        raise ProgramError(
            "a search chooses by held-out rows, and no site has any: set the program's held_out "
            "above 0"
        )
    return rows


def loss(model: Model, total: SecureTotal, handicap: float) -> float:
    """Return −log density per held-out row, with a handicap on all of them, rounded."""
    rows = rows_judged(total)
    found = handicap / rows
    if model.targets:
        counts = torch.tensor(total["residuals"]).round().clamp_min(0.0)
        found += sum(_residual_loss(own) for own in counts) / rows
        found += float(torch.tensor(total["log_deviations"]).sum()) / rows
    if model.schema.outcomes:
        found += float(torch.tensor(total["losses"]).sum()) / rows
    return near(found, DENSITY_STEP)


def _residual_loss(counts: Tensor) -> float:
    """Return −Σ log p(z) of the rows of each fold (FOLDS, BINS) under the law of the others."""
    ends = torch.cat([EDGES.new_zeros(1), EDGES])
    middles = torch.cat([(ends[1:] + ends[:-1]) / 2, EDGES[-1:]])
    found = 0.0
    for fold in range(FOLDS):
        law = fit(counts.sum(0) - counts[fold])
        found -= float(counts[fold] @ law.log_density(middles))
    return found
