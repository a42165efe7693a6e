"""Predictions of a finished model, in the targets' units.

The linear layer predicts N(μ, v) with v = φᵀA⁻¹φ + σ². Recalibration replaces it by the law
μ + s√v·t_ν, whose variance is v·s²ν/(ν − 2): latent and noise variance are both scaled by this
factor, so that their sum is the variance of the calibrated predictive distribution. A model of two
kernels predicts the N(μ, v) of their mixture (`kernels.model.second`). There are three
kinds of central intervals, at any level:

    gaussian     of N(μ, v), the model's own distribution, not recalibrated
    student_t    of the calibrated law
    conformal    μ ± q√v, which contains a new row with at least the level's probability, for any
                 law of residuals

Conformal intervals are those that are served, unless there are few rows for calibration: then the
law, which training rows have a part in, covers more evenly (`Recalibration.law_is_better`). With
very few rows, recalibration leaves N(μ, v) unchanged (`Recalibration.fitted` is None), and its
conformal intervals are infinite at levels that so few rows cannot guarantee.

The other methods (`methods`) are students of the sites' committee, and networks that the sites have
trained together. A student predicts the committee's N(μ, v), where v is the variance of a new
observation. It includes the sites' uncertainty, their disagreement (if the method counts it) and
their noise, and a student cannot separate these. Networks predict the mean and the variance of
their mixture (`served_networks`). Recalibration uses the residuals of the linear layer, so it does
not apply to either: their intervals are gaussian.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.ensembles.distilled import Method
from kernels.errors import OneVariance, PredictionError
from kernels.layer.posterior import Prediction
from kernels.model.methods import FEDBNR, committee_method, method_for
from kernels.model.model import Model, known
from kernels.outcomes.predictions import OutcomePrediction, predict_outcome
from kernels.scores.gaussians import Gaussian
from kernels.scores.recalibration import Recalibration, inflation
from kernels.scores.student_t import StudentT
from kernels.tables.chunks import CHUNK_ROWS, chunks
from kernels.tables.outcome_cells import positions
from kernels.tables.records import Records, exposure_columns
from kernels.tables.targets import Count, Target

INTERVAL_KINDS = "conformal", "student_t", "gaussian"

Committee = Callable[[Method, Tensor], Gaussian]
"""A function that predicts standardised targets, (n, T), from standardised features (n, p)."""


class Interval(NamedTuple):
    """Both ends for each row and target, (n, T), in units; a conformal end may be infinite."""

    lower: Tensor
    upper: Tensor


class Divided(NamedTuple):
    """The two parts of a variance, in units: latent uncertainty, (n, T), and noise, (T,)."""

    latent: Tensor
    noise: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Predictions:
    """n predictions of T targets in their units; the repr shows none.

    mean, variance: (n, T), of a new observation; those of `fedbnr` are of the calibrated law.
    divided: the two parts of the variance; None if the method has a single variance.
    extrapolates: (n,) bool, whether a numeric cell of the row is outside the schema's bounds.
    recalibration: one for each target; None if the program has no recalibration stage, or if it
    does not apply to the method.
    outcomes: the predictions of all targets that are not real numbers, in order; empty for methods
    other than `fedbnr`.
    """

    targets: tuple[Target, ...]
    method: str
    mean: Tensor
    variance: Tensor
    divided: Divided | None
    extrapolates: Tensor
    recalibration: tuple[Recalibration, ...] | None
    outcomes: tuple[OutcomePrediction, ...] = ()

    @property
    def latent_variance(self) -> Tensor:
        """The part of the variance that is not noise, (n, T)."""
        return self._divided().latent

    @property
    def noise_variance(self) -> Tensor:
        """The part of the variance that is noise, (T,), the same for every row."""
        return self._divided().noise

    @property
    def interval_kind(self) -> str:
        """The default kind of interval: with few held-out rows that of the calibrated law."""
        if self.method != FEDBNR:
            return "gaussian"
        better = self.recalibration and all(own.law_is_better for own in self.recalibration)
        return "student_t" if better else "conformal"

    def interval(self, level: float, kind: str | None = None) -> Interval:
        """Return the interval of a kind, one of `INTERVAL_KINDS`; None for the default kind."""
        kind = self.interval_kind if kind is None else kind
        if kind not in INTERVAL_KINDS:
            raise PredictionError(
                f"kind must be one of {', '.join(INTERVAL_KINDS)}, not {kind!r:.40}"
            )
        interval: Interval = getattr(self, kind)(level)
        return interval

    def gaussian(self, level: float) -> Interval:
        """Return the central interval of N(μ, v)."""
        return self._central([StudentT().half_width(level)] * len(self.targets))

    def student_t(self, level: float) -> Interval:
        """Return the central interval of the calibrated law."""
        return self._central([each.law.half_width(level) for each in self._recalibrated()])

    def conformal(self, level: float) -> Interval:
        """Return the conformal interval."""
        return self._central([each.conformal(level) for each in self._recalibrated()])

    def _divided(self) -> Divided:
        if self.divided is None:
            raise OneVariance(
                f"the method {self.method} has a single variance, of a new observation, and no "
                f"latent and noise variance: use variance, or the method {FEDBNR}"
            )
        return self.divided

    def _recalibrated(self) -> tuple[Recalibration, ...]:
        if self.method != FEDBNR:
            raise OneVariance(
                f"the method {self.method} has only gaussian intervals: recalibrated intervals "
                f"need the method {FEDBNR}"
            )
        return known(self.recalibration, "recalibration")

    def _central(self, deviations: list[float]) -> Interval:
        half = (self.variance / inflation(self.recalibration, len(self.targets))).sqrt()
        half = half * torch.tensor(deviations, dtype=torch.float64)
        return Interval(self.mean - half, self.mean + half)

    def outcome(self, name: str) -> OutcomePrediction:
        """Return the predictions of the target with this name, which is not a real number."""
        for own in self.outcomes:
            if own.target.name == name:
                return own
        there = ", ".join(own.target.name for own in self.outcomes) or "none"
        raise PredictionError(f"there is no outcome {name!r:.40}; the outcomes are: {there}")

    def __len__(self) -> int:
        return len(self.mean)

    def __repr__(self) -> str:
        names = [t.name for t in (*self.targets, *(own.target for own in self.outcomes))]
        return f"Predictions({len(self)} rows of {', '.join(names)})"


def predict(
    model: Model,
    table: Mapping[str, object] | Records,
    *,
    method: str | None = None,
    committee: Committee | None = None,
    chunk_rows: int = CHUNK_ROWS,
) -> Predictions:
    """Return predictions for every row of a table, or of records read by the model's schema.

    method: one of `methods_of(model)`, by default the first. committee: if given, predicts the
    sites' combination instead of a student; `method` is then any `distilled.Method`. Standardised
    rows and features are computed for `chunk_rows` rows at a time.
    """
    known(model.standardiser, "moments")
    method = method_for(model, method) if committee is None else committee_method(method)
    pieces, extrapolates, records = _read(model, table, chunk_rows)
    if method != FEDBNR:
        if committee is None:
            said = partial(predict_otherwise, model, method)
        else:
            said = partial(committee, Method(method))
        mean, variance = _in_units(model, said, pieces)
        return Predictions(model.schema.real, method, mean, variance, None, extrapolates, None)
    pieces = list(pieces)
    outcomes = _outcomes(model, pieces, _exposures(model, records), chunk_rows)
    if not model.targets:
        nothing = torch.zeros(len(extrapolates), 0, dtype=torch.float64)
        return Predictions((), method, nothing, nothing, None, extrapolates, None, outcomes)
    predicted = _joined(
        model, (predict_standardised(model, x, chunk_rows=chunk_rows) for x in pieces)
    )
    mean, latent = known(model.standardiser, "moments").in_units(
        predicted.mean, predicted.latent_variance * model.inflation
    )
    return Predictions(
        model.schema.real,
        method,
        mean,
        latent + model.noise_variance,
        Divided(latent, model.noise_variance),
        extrapolates,
        model.recalibration,
        outcomes,
    )


def _outcomes(
    model: Model,
    pieces: Iterable[Tensor],
    exposures: Mapping[str, Tensor],
    chunk_rows: int,
) -> tuple[OutcomePrediction, ...]:
    """Return the predictions of every outcome for standardised features in pieces."""
    if not model.schema.outcomes:
        return ()
    first, found = 0, []
    for x in pieces:
        for rows in chunks(len(x), model.kernel.rows_at_a_time(chunk_rows)):
            phi = model.features(x[rows]).double()
            own = {name: all_of[first : first + len(phi)] for name, all_of in exposures.items()}
            found.append(predict_outcomes(model, phi, own))
            first += len(phi)
    if not found:
        nothing = torch.zeros(0, model.kernel.features, dtype=torch.float64)
        return predict_outcomes(model, nothing, {})
    return tuple(OutcomePrediction.joined(parts) for parts in zip(*found, strict=True))


def predict_outcomes(
    model: Model, features: Tensor, exposures: Mapping[str, Tensor]
) -> tuple[OutcomePrediction, ...]:
    """Return the predictions of every outcome for rows of the kernel's features, (n, M)."""
    fitted = known(model.outcomes, "outcomes")
    calibrations = model.calibrations or (None,) * len(fitted)
    return tuple(
        predict_outcome(
            outcome,
            own,
            features,
            exposure=exposures.get(outcome.name),
            calibration=calibration,
            inducing=model.kernel.inducing_features,
        )
        for outcome, own, calibration in zip(
            model.schema.outcomes, fitted, calibrations, strict=True
        )
    )


def _exposures(model: Model, records: Records | None) -> dict[str, Tensor]:
    """Return the exposures of counts that records state, by the name of the target."""
    if records is None:
        return {}
    columns = exposure_columns(model.schema)
    found = {}
    for outcome, where in zip(model.schema.outcomes, positions(model.schema.outcomes), strict=True):
        if not isinstance(outcome, Count) or outcome.exposure is None:
            continue
        if records.outcomes is not None:
            found[outcome.name] = records.outcomes[:, where][:, 1]
        elif records.exposures is not None:
            found[outcome.name] = records.exposures[:, columns.index(outcome.exposure)]
    return found


def _read(
    model: Model, table: Mapping[str, object] | Records, chunk_rows: int
) -> tuple[Iterable[Tensor], Tensor, Records | None]:
    """Return standardised features in pieces, and a mask of rows outside the bounds.

    Also the records, unless they are few and have nothing but features.
    """
    if not isinstance(table, Records) and not any(
        name in table for name in exposure_columns(model.schema)
    ):
        few = model.few_rows.read(table)
        if few is not None:
            return [few.features], few.extrapolates, None
    records = table if isinstance(table, Records) else Records.for_prediction(model.schema, table)
    if records.schema != model.schema:
        raise PredictionError(
            "these records were read with another schema: read them with model.schema"
        )
    return _standardised(model, records, chunk_rows), records.outside.any(1), records


def _standardised(model: Model, records: Records, chunk_rows: int) -> Iterator[Tensor]:
    standardiser = known(model.standardiser, "moments")
    for rows in chunks(len(records), chunk_rows):
        yield standardiser.apply(records.between(rows)).features


def predict_otherwise(model: Model, method: str, features: Tensor) -> Gaussian:
    """Return what a method other than `fedbnr` predicts of standardised targets, (n, T).

    features: standardised, (n, p).
    """
    networks = model.networks_of(method)
    if networks is not None:
        return networks.predict(features)
    return known(model.distilled, "predictive").predict(Method(method), features)


def _in_units(
    model: Model, said_by: Callable[[Tensor], Gaussian], pieces: Iterable[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return means and variances, each (n, T), in units."""
    nothing = torch.zeros(0, model.targets, dtype=torch.float64)
    pairs = [(nothing, nothing)]
    for x in pieces:
        said = said_by(x)
        pairs.append((said.mean, said.variance))
    mean, variance = map(torch.cat, zip(*pairs, strict=True))
    return known(model.standardiser, "moments").in_units(mean, variance)


def predict_standardised(
    model: Model, features: Tensor, *, chunk_rows: int = CHUNK_ROWS
) -> Prediction:
    """Return predictions of standardised targets from standardised features (n, p); n may be 0."""
    if model.second is not None:
        models, weights = zip(*model.members, strict=True)
        return mixed(
            [predict_standardised(own, features, chunk_rows=chunk_rows) for own in models], weights
        )
    pieces = chunks(len(features), model.kernel.rows_at_a_time(chunk_rows))
    return _joined(
        model, (model.posterior.predict(model.features(features[rows])) for rows in pieces)
    )


def mixed(said: Sequence[Prediction], weights: Sequence[float]) -> Prediction:
    """Return the Gaussians with the mean and the variance of mixtures of these (`Second`)."""
    pairs = list(zip(said, weights, strict=True))
    mean = torch.stack([weight * own.mean for own, weight in pairs]).sum(0)
    latent = [weight * (own.latent_variance + (own.mean - mean).square()) for own, weight in pairs]
    noise = [weight * own.noise_variance for own, weight in pairs]
    return Prediction(mean, torch.stack(latent).sum(0), torch.stack(noise).sum(0))


def predict_each(model: Model, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return means and variances, (n, T), each of its own row alone, and which are known.

    For statistics with differential privacy. In a batch, the last bit of a row's prediction may
    depend on the other rows, and if a count depends on that bit, adding one row could change how
    others are counted. Also, a hostile broadcast could make the predictions of some rows NaN, so
    that a site's failure would reveal that it has such rows: they are False in the third tensor,
    (n,), and contribute nothing.
    """
    posterior, shape = model.posterior, (len(features), model.targets)
    mean, variance = torch.zeros(shape).double(), torch.ones(shape).double()
    for row, (_, phi) in enumerate(model.urk.features_in_chunks(features, chunk_rows=1)):
        predicted = posterior.predict(phi.nan_to_num(nan=0.0))
        mean[row], variance[row] = predicted.mean[0], predicted.variance[0]
    known_rows = (mean.isfinite() & variance.isfinite() & (variance > 0)).all(1)
    return mean, variance, known_rows


def _joined(model: Model, parts: Iterable[Prediction]) -> Prediction:
    """Return the predictions of consecutive rows, possibly none, as one."""
    parts = list(parts)
    if len(parts) == 1:  # as for a request of one row, where every operation counts
        return parts[0]
    nothing = torch.zeros(0, model.targets, dtype=torch.float64)
    pairs = [(nothing, nothing), *((part.mean, part.latent_variance) for part in parts)]
    mean, latent_variance = map(torch.cat, zip(*pairs, strict=True))
    return Prediction(mean, latent_variance, model.standardised_noise)
