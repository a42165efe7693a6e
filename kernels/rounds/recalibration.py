"""Recalibration: a summed histogram of held-out residuals, and the intervals that it implies.

z = (y − μ)/√v on the rows kept for calibration; `kernels.recalibration` says what the histogram of
|z| gives: a Student-t law (ν > 2, scale) by its exact likelihood, and conformal quantiles.

broadcast  the whole model: standardiser, kernel, weights, posterior
local      rows by fold and by bin of |z|, for each target, over the calibration rows
sum        the histogram of all sites' rows together: whole numbers, so exact
update     ν and scale, or N(0, 1) as it is where there are fewer than `min_rows` rows

A row is in the fold that a hash of its patient says, or of itself where the schema names none.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernels.recalibration import BINS, FOLDS, Recalibration, histogram
from kernels.records import Records
from kernels.rounds.algorithm import Contribution, accepted
from kernels.rounds.model import Model, known
from kernels.rounds.parameters import check_whole
from kernels.rounds.prediction import predict_standardised
from kernels.rounds.site import Part, Site
from kernels.row_hashes import row_keys
from privacy.layout import Block, Layout, SecureTotal

NAME = "recalibration"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Spec:
    """`min_rows`: with fewer calibration rows in all no law is fitted, and N(μ, v) stays."""

    min_rows: int = 100

    def __post_init__(self) -> None:
        check_whole(1, min_rows=self.min_rows)


@dataclass(frozen=True, eq=False)
class State:
    """Done with its one sum when the model has a recalibration."""

    model: Model
    spec: Spec


def layout(state: State) -> Layout:
    """Return the histogram; one row is in one bin of each target."""
    targets = state.model.targets
    # Of a patient with several rows the number of rows is not known here.
    sensitivity = math.sqrt(targets) if state.model.schema.patient is None else None
    shape = (targets, FOLDS, BINS)
    return Layout((Block("residuals", shape, float(state.model.max_rows), 1.0, sensitivity),))


def initial(spec: Spec, model: Model) -> State:
    """Start from a model with a posterior, without any earlier recalibration."""
    known(model.statistics, "linear")
    return State(replace(model, recalibration=None, scores=None), spec)


def contribute(state: State, site: Site) -> Contribution:
    """Count the site's calibration rows by fold and |z|."""
    model = state.model
    counts = torch.zeros(model.targets, FOLDS, BINS, dtype=torch.float64)
    for x, y, records in site.chunks(Part.CALIBRATION, model):
        predicted = predict_standardised(model, x)
        z = (y - predicted.mean) / predicted.variance.sqrt()
        fold = folds(records)
        for f in range(FOLDS):
            counts[:, f] += torch.stack([histogram(own[fold == f]) for own in z.mT])
    return {"residuals": counts.numpy()}


def update(state: State, total: SecureTotal) -> State:
    """Fit each target's law."""
    total = accepted(total, layout(state))
    counts = torch.tensor(total["residuals"]).round().clamp_min(0.0)
    fitted = tuple(Recalibration.of(own, min_rows=state.spec.min_rows) for own in counts)
    return replace(state, model=replace(state.model, recalibration=fitted))


def finished(state: State) -> bool:
    """One sum suffices."""
    return state.model.recalibration is not None


def folds(records: Records) -> Tensor:
    """Return the fold of each row, (n,); the same whatever the order of rows."""
    return torch.tensor([key[0] % FOLDS for key in row_keys(records)], dtype=torch.int64)
