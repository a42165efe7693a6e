"""Recalibration: summed histograms of residuals of unseen rows, and the intervals they imply.

z = (y − μ)/√v on the held-out rows, and on training rows predicted without themselves
(`kernels.layer.leave_one_out`). `kernels.scores.recalibration` computes from the histograms of |z|
a Student-t law (ν > 2, scale), by its exact likelihood, and conformal quantiles.

broadcast  the whole model: standardiser, kernel, weights, posterior
local      for each target, rows by bin of |z|: of calibration rows by fold, of stopping and of
           training rows
sum        the histograms of all sites' rows together: whole numbers, so exact
update     ν and scale, or N(0, 1) unchanged if there are fewer than `min_rows` held-out rows

A row's fold is drawn with the site's secret from its patient, or from the row itself if the schema
names no patient (`kernels.rounds.site.dealing`). A patient's training rows are predicted without
any of them. That needs a patient's rows together, so of a table that is too large for memory and
names patients no training rows are counted: it has held-out rows enough.

The same sum has what the recalibration of outcomes follows from, histograms of log odds by outcome
for example (`kernels.outcomes.scored.recalibration`), over the calibration rows. With few rows
these change little, rather than nothing: their two numbers have a prior around the identity.

With differential privacy the histogram has few bins and no folds, and is of calibration rows alone
(`kernels.noisy.recalibration`): training rows would be charged for a second time. A row is in one
bin of each of T targets, so a unit of k rows changes the histogram by at most k√T.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels.layer.leave_one_out import predict_without_own
from kernels.layer.posterior import Prediction
from kernels.model.model import Model, check_fitted, known
from kernels.model.prediction import mixed, predict_each, predict_standardised
from kernels.noisy import recalibration as noisy_recalibration
from kernels.outcomes.scored.kinds import kind_of
from kernels.outcomes.scored.summed import SumBlock
from kernels.parameter_checks import check_whole
from kernels.rounds.algorithm import Contribution, accepted
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows, layers_of
from kernels.rounds.judging.outcome_sums import (
    add_to,
    blocks_of,
    calibration_grids,
    judged_rows,
    name_of,
    noise_of,
    nothing_of,
    totals_of,
)
from kernels.rounds.replay import LEAST_BUDGET, Bits, Replay, Step
from kernels.rounds.site.site import Part, Site
from kernels.scores.recalibration import BINS, FOLDS, LAW_BITS, Recalibration, histograms
from kernels.tables.chunks import CHUNK_ROWS
from privacy.layout import Block, Layout, SecureTotal

NAME = "recalibration"
VERSION = 3
NEEDS: frozenset[Made] = frozenset()
MAKES = frozenset({Made.RECALIBRATION})


@dataclass(frozen=True, kw_only=True)
class Spec:
    """`min_rows`: with fewer held-out rows in total, no law is fitted and N(μ, v) is kept."""

    STORED_AS: ClassVar[str] = "recalibration.spec"

    min_rows: int = 100

    def __post_init__(self) -> None:
        check_whole(1, min_rows=self.min_rows)


@dataclass(frozen=True, eq=False)
class State:
    """The model; the one sum has been made when it has a recalibration."""

    STORED_AS: ClassVar[str] = "recalibration.state"

    model: Model
    spec: Spec


def layout(state: State) -> Layout:
    """Return the histograms; one row is in one bin of each target."""
    model, rows = state.model, float(state.model.max_rows)
    blocks = [
        block
        for index in range(len(model.schema.outcomes))
        for block in blocks_of(model, name_of(index, "held"), _described(model, index))
    ]
    if not model.targets:
        return Layout(tuple(blocks))
    if model.privacy is not None:
        sensitivity = model.privacy.max_rows_per_patient * math.sqrt(model.targets)
        shape = (model.targets, noisy_recalibration.BINS)
        return Layout((Block("residuals", shape, rows, 1.0, sensitivity), *blocks))
    residuals = [
        Block("residuals", (model.targets, FOLDS, BINS), rows, 1.0),
        *(Block(name, (model.targets, BINS), rows, 1.0) for name in ("stopping", "training")),
    ]
    return Layout((*residuals, *blocks))


def initial(spec: Spec, model: Model) -> State:
    """Start from a model with a posterior, without any earlier recalibration."""
    check_fitted(model)
    return State(model.advanced(recalibration=None, calibrations=None), spec)


def contribute(state: State, site: Site) -> Contribution:
    """Count the site's unseen rows by |z|, and sum what outcomes need."""
    model = state.model.judged
    return {**_of_outcomes(model, site), **(_residuals(model, site) if model.targets else {})}


def update(state: State, total: SecureTotal) -> State:
    """Fit each target's law, and each outcome's recalibration."""
    total = accepted(total, layout(state))
    laws = _laws(state, total) if state.model.targets else ()
    calibrations = tuple(
        _calibration(state.model, index, total) for index in range(len(state.model.schema.outcomes))
    )
    model = replace(state.model, recalibration=laws, calibrations=calibrations)
    return replace(state, model=model)


def finished(state: State) -> bool:
    """Return whether the one sum has been made."""
    return state.model.recalibration is not None


def check_private(spec: Spec, model: Model) -> None:
    """Refuse nothing: every histogram has a private form."""


REPLAY = Replay(
    grids={
        "model.recalibration.fitted.freedom": Bits(LAW_BITS),
        "model.recalibration.fitted.scale": Bits(LAW_BITS),
        "model.recalibration.counts": Step(noisy_recalibration.COUNT_STEP),
        **calibration_grids("model.calibrations"),
    },
    budget=LEAST_BUDGET,
)


def declare(spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    return Declaration(
        needs=layers_of(before.model.schema),
        needs_students=frozenset(),
        needs_held_out=False,
        makes=MAKES,
        answers=Answers.ALL,
        students=before.students,
        words="counts of rows by the size of their prediction error, and by what was predicted and "
        "what was so",
        sums=1,
        numbers=layout(State(before.model, spec)).length,
        numbers_in_all=layout(State(before.model, spec)).length,
        leaves=layout(State(before.model, spec)).length,
        row_count=None,
        local_passes=0,
        rate_times_steps=0.0,
        reads=_read(before.model),
        summed_together=frozenset(),
        sampling_rate=1.0,
        noise_share=1.0,
        public_rows=PublicRows.NONE,
        public_set=None,
        needs_consent=False,
        includes=frozenset(),
        replay=REPLAY,
    )


STORED = (Spec, State)


def _read(model: Model) -> frozenset[Part]:
    real = model.targets and model.privacy is None
    unseen = {Part.STOPPING, Part.TRAINING} if real else set()
    return frozenset({Part.CALIBRATION, *unseen})


def _described(model: Model, index: int) -> tuple[SumBlock, ...]:
    """Return what is summed of an outcome."""
    target = model.schema.outcomes[index]
    held = kind_of(target).held
    return held.blocks(target) if model.privacy is None else held.few_blocks(target)


def _of_outcomes(model: Model, site: Site) -> dict[str, NDArray[np.float64]]:
    sums: dict[str, NDArray[np.float64]] = {}
    for index in range(len(model.schema.outcomes)):
        sums |= nothing_of(name_of(index, "held"), _described(model, index))
    for index, target, columns, said, folds in judged_rows(
        model, site, Part.CALIBRATION, folds=FOLDS
    ):
        held = kind_of(target).held
        if model.privacy is None:
            found = held.of(target, columns, said, folds).named()
        else:
            found = held.few(target, columns, said)
        add_to(sums, name_of(index, "held"), found)
    return sums


def _residuals(model: Model, site: Site) -> dict[str, NDArray[np.float64]]:
    """Count the rows by target and |z|: of each kind, those for calibration by fold."""
    if model.privacy is not None:
        return {"residuals": _few_bins(model, site).numpy()}
    counts = torch.zeros(model.targets, FOLDS, BINS, dtype=torch.float64)
    for (x, y, _), fold in site.chunks_in_folds(Part.CALIBRATION, model, folds=FOLDS):
        sizes = _sizes(predict_standardised(model, x), y)
        for f in range(FOLDS):
            counts[:, f] += histograms(sizes[fold == f])
    stopping, training = torch.zeros(2, model.targets, BINS, dtype=torch.float64)
    for x, y, _ in site.chunks(Part.STOPPING, model):
        stopping += histograms(_sizes(predict_standardised(model, x), y))
    for said, y in _without_themselves(model, site):
        training += histograms(_sizes(said, y))
    return {
        "residuals": counts.numpy(),
        "stopping": stopping.numpy(),
        "training": training.numpy(),
    }


def _without_themselves(model: Model, site: Site) -> Iterator[tuple[Prediction, Tensor]]:
    """Yield predictions of the training rows by layers without their units, and their targets."""
    if model.schema.patient is not None and not site.in_memory(Part.TRAINING):
        return
    models, weights = zip(*model.members, strict=True)
    rows = min(own.kernel.rows_at_a_time(CHUNK_ROWS) for own in models)
    for x, y, unit in site.units(Part.TRAINING, model, rows=rows):
        said = [predict_without_own(own.posterior, own.features(x), y, unit) for own in models]
        yield mixed(said, weights), y


def _sizes(said: Prediction, y: Tensor) -> Tensor:
    return (y - said.mean) / said.variance.sqrt()


def _calibration(model: Model, index: int, total: SecureTotal) -> Any:
    target, described = model.schema.outcomes[index], _described(model, index)
    kind, name = kind_of(target), name_of(index, "held")
    dispersion = known(model.judged.outcomes, "outcomes")[index].dispersion
    totals = totals_of(total, name, described)
    if model.privacy is None:
        held = kind.held.of_totals(target, totals)
        return kind.calibration.of(target, held, dispersion=dispersion)
    noise = noise_of(total, name, described)
    return kind.calibration.from_noisy(target, totals, noise, dispersion=dispersion)


def _laws(state: State, total: SecureTotal) -> tuple[Recalibration, ...]:
    if state.model.privacy is not None:
        noise = total.noise("residuals")
        return tuple(
            noisy_recalibration.from_noisy(own, noise=noise, min_rows=state.spec.min_rows)
            for own in torch.tensor(total["residuals"])
        )
    counted = [
        torch.tensor(total[name]).round().clamp_min(0.0)
        for name in ("residuals", "stopping", "training")
    ]
    return tuple(
        Recalibration.of(counts, stopping=stopping, training=training, min_rows=state.spec.min_rows)
        for counts, stopping, training in zip(*counted, strict=True)
    )


def _few_bins(model: Model, site: Site) -> Tensor:
    counts = torch.zeros(model.targets, noisy_recalibration.BINS, dtype=torch.float64)
    for x, y, _ in site.chunks(Part.CALIBRATION, model):
        mean, variance, computed = predict_each(model, x)
        z = ((y - mean) / variance.sqrt())[computed]
        counts += torch.stack([noisy_recalibration.histogram(own) for own in z.mT])
    return counts
