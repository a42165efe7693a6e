"""The layers of a hospital's own rows over the global kernel, alone or helped by the others' rows.

The kernel, its weights and the columns' scales are the global model's. Only the layers are the
hospital's own:

    start="kernel"     w ~ N(0, λ²I), and the likelihood of this hospital's training rows alone
    start="posterior"  the others' likelihood to a power a as the prior (`tempered`): for the
                       weights nothing else is known of than what other hospitals' patients say

σ and λ are fitted by evidence to the sums of each, as in phase 2. The power is the one at which the
hospital's training rows are densest, each predicted without its patient's rows
(`kernels.layer.leave_one_out`), so that none of them is judged by a layer that has it. Evidence of
the own rows under the global posterior as a prior would be wrong: they are in it. Held-out rows
choose nothing, and say afterwards what the model is worth.

If the global layer has the held-out rows too (`completion`), so has the personal one in the end,
and the layer without them is kept for judging them.

Of a model of two kernels each has its own layer, with one power for both. Targets that are not real
numbers start from the kernel only: the others' likelihood of them is no sum that a power scales, as
it depends on the layers at which it was summed. With differential privacy the pooled sums have
noise, so such a model starts from the kernel as well; at home no noise is needed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from operator import add

import torch
from torch import Tensor

from client_sdk.errors import RowsNotAmong, StartUnavailable
from client_sdk.model.outcome_gain import own_outcomes
from client_sdk.model.personal.tempered import check_among, powers, tempered
from kernels.errors import EmptyTable
from kernels.layer.leave_one_out import predict_without_own
from kernels.layer.posterior import Hyperparameters, Spectrum
from kernels.layer.refit import refit
from kernels.layer.statistics import Statistics
from kernels.model.model import Model, is_fitted, known
from kernels.model.prediction import mixed
from kernels.model.withheld import Withheld
from kernels.rounds.shared.sufficient import site_statistics
from kernels.rounds.site.site import Part, Site
from kernels.tables.chunks import CHUNK_ROWS

HELD_OUT = (Part.STOPPING, Part.CALIBRATION)


class Start(StrEnum):
    """What a personal model starts from."""

    KERNEL = "kernel"
    """The global kernel alone."""
    POSTERIOR = "posterior"
    """The global kernel, and what the others' rows say of the layer's weights."""


@dataclass(frozen=True, eq=False)
class OwnLayers:
    """A model whose layers are a hospital's own, and the power of the others' rows in them."""

    model: Model
    start: Start
    power: float


def start_of(model: Model, start: str | None) -> Start:
    """Return the start that was asked for, by default `posterior` where there can be one."""
    try:
        asked = None if start is None else Start(start)
    except ValueError:
        raise StartUnavailable(
            f"start must be one of {', '.join(Start)}, not {start!r:.40}"
        ) from None
    why = _no_posterior(model)
    if asked is None:
        return Start.KERNEL if why else Start.POSTERIOR
    if asked is Start.POSTERIOR and why:
        raise StartUnavailable(f'{why}: start="kernel" needs only the kernel')
    return asked


def _no_posterior(model: Model) -> str | None:
    """Say why a personal model cannot start from the global posterior, if so."""
    if not is_fitted(model):
        return "the global model has a kernel and no layer to start from"
    if model.schema.outcomes:
        names = ", ".join(own.name for own in model.schema.outcomes)
        return f"the global posterior of {names}, no real number, is no sum that can be weighed"
    if any(known(own.statistics, "linear").noise is not None for own, _ in model.members):
        return "the sums behind the global posterior have the noise of differential privacy"
    return None


def own_layers(
    model: Model, site: Site, *, start: Start = Start.KERNEL, took_part: bool = True
) -> OwnLayers:
    """Return the model with layers of this site's own rows.

    took_part: whether the site's rows are among those that the global layer was trained on.
    """
    if site.count(Part.TRAINING) == 0:
        raise EmptyTable("this site has no training rows, so it has no model of its own")
    completed = model.withheld is not None and not model.schema.outcomes
    home = replace(_without_results(model), privacy=None, centre=None)
    outcomes = own_outcomes(home, model, site) if model.schema.outcomes else None
    if not model.schema.real:
        return OwnLayers(replace(home, outcomes=outcomes), Start.KERNEL, 0.0)
    sums = _Sums.of(model, home, site, completed=completed)
    if start is Start.KERNEL:
        power = 0.0
    else:
        if took_part:
            sums.check_among()
        power = _best_power(home, sums, site, took_part=took_part)
    layers = sums.layers(power, took_part=took_part)
    return OwnLayers(replace(_assembled(home, layers), outcomes=outcomes), start, power)


@dataclass(frozen=True, eq=False)
class _Sums:
    """Own and pooled statistics of each kernel, of training rows and of all rows.

    own_all, pooled_all: None unless the global layer is complete. pooled: without the held-out
    rows; None without a global layer.
    """

    own: Sequence[Statistics]
    pooled: Sequence[Statistics | None]
    own_all: Sequence[Statistics] | None
    pooled_all: Sequence[Statistics | None] | None
    inducing: Sequence[int]

    @classmethod
    def of(cls, model: Model, home: Model, site: Site, *, completed: bool) -> "_Sums":
        kernels = [own for own, _ in home.members]
        own = [site_statistics(each, site, Part.TRAINING) for each in kernels]
        own_all = None
        if completed:
            held_out = [[site_statistics(each, site, p) for p in HELD_OUT] for each in kernels]
            own_all = [reduce(add, more, one) for one, more in zip(own, held_out, strict=True)]
        pooled = [each.statistics for each, _ in model.judged.members]
        pooled_all = [each.statistics for each, _ in model.members] if completed else None
        inducing = [each.kernel.inducing_features for each in kernels]
        return cls(own, pooled, own_all, pooled_all, inducing)

    def check_among(self) -> None:
        """Refuse own rows that cannot be among the pooled ones."""
        for own, pooled in zip(self.own, self.pooled, strict=True):
            if own.count > known(pooled, "linear").count:
                raise RowsNotAmong(
                    f"this table has {own.count} training rows, and the model was trained on "
                    f"{known(pooled, 'linear').count} in all: pass the table that took part, or "
                    "say that it did not (took_part=False)"
                )
            check_among(own, known(pooled, "linear"))

    def others(self, *, took_part: bool) -> int:
        """Return the number of the others' training rows."""
        pooled = known(self.pooled[0], "linear").count
        return pooled - self.own[0].count if took_part else pooled

    def layers(self, power: float, *, took_part: bool) -> list["_Layer"]:
        """Return the layer of each kernel at a power of the others' rows."""
        found = []
        for index, inducing in enumerate(self.inducing):
            training = _mixture(self.own[index], self.pooled[index], power, among=took_part)
            scales = refit(Spectrum.of(training, inducing=inducing))
            complete = None
            if self.own_all is not None and self.pooled_all is not None:
                complete = _mixture(
                    self.own_all[index], self.pooled_all[index], power, among=took_part
                )
            found.append(_Layer(training, scales, complete))
        return found


@dataclass(frozen=True, eq=False)
class _Layer:
    """The layer of one kernel: of the training rows, and if it is complete of all rows."""

    training: Statistics
    scales: Hyperparameters
    complete: Statistics | None

    @property
    def withheld(self) -> Withheld | None:
        return None if self.complete is None else Withheld(self.training, self.scales, None)

    @property
    def statistics(self) -> Statistics:
        return self.training if self.complete is None else self.complete


def _mixture(
    own: Statistics, pooled: Statistics | None, power: float, *, among: bool
) -> Statistics:
    if pooled is None or power == 0:
        return own
    return tempered(own, pooled, power=power, among=among)


def _without_results(model: Model) -> Model:
    """Return the kernel with its scales, and none of what depends on a layer."""
    second = None if model.second is None else model.second.without_sums
    return replace(
        model,
        distilled=None,
        networks=None,
        statistics=None,
        hyperparameters=None,
        outcomes=None,
        withheld=None,
        second=second,
        recalibration=None,
        calibrations=None,
        scores=None,
        outcome_scores=None,
    )


def _assembled(home: Model, layers: Sequence[_Layer]) -> Model:
    """Return the model of one or two kernels with their layers."""
    first, *more = layers
    second = home.second
    if second is not None:
        (other,) = more
        second = replace(
            second,
            statistics=other.statistics,
            hyperparameters=other.scales,
            withheld=other.withheld,
        )
    return replace(
        home,
        statistics=first.statistics,
        hyperparameters=first.scales,
        withheld=first.withheld,
        second=second,
    )


def _best_power(home: Model, sums: _Sums, site: Site, *, took_part: bool) -> float:
    """Return the power at which training rows are densest, each predicted without its patient."""
    tried = powers(sums.others(took_part=took_part))
    models = []
    for power in tried:
        layers = sums.layers(power, took_part=took_part)
        training = [replace(own, complete=None) for own in layers]
        models.append(_assembled(home, training))
    losses = _losses_without_own(models, site)
    return tried[losses.index(min(losses))]


def _losses_without_own(models: Sequence[Model], site: Site) -> list[float]:
    """Return the sum of −log densities of training rows by each of models of the same kernels."""
    losses = [0.0] * len(models)
    kernels = [own for own, _ in models[0].members]
    posteriors = [[own.posterior for own, _ in model.members] for model in models]
    weights = [weight for _, weight in models[0].members]
    rows = min(own.kernel.rows_at_a_time(CHUNK_ROWS) for own in kernels)
    for x, y, unit in site.units(Part.TRAINING, models[0], rows=rows):
        features = [own.features(x).double() for own in kernels]
        for index, each in enumerate(posteriors):
            said = [
                predict_without_own(posterior, phi, y, unit)
                for posterior, phi in zip(each, features, strict=True)
            ]
            predicted = mixed(said, weights)
            losses[index] += float(_loss(y - predicted.mean, predicted.variance).sum())
    return losses


def _loss(residuals: Tensor, variance: Tensor) -> Tensor:
    return (torch.log(2 * math.pi * variance) + residuals.square() / variance) / 2
