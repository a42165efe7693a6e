"""Predictions of a finished model, in the targets' units.

N(μ, v) with v = φᵀA⁻¹φ + σ² is what the linear layer predicts. Recalibration replaces it by the law
μ + s√v·t_ν, whose variance is v·s²ν/(ν − 2): latent and noise variance are both scaled by that
factor, so that their sum is the variance of the calibrated predictive distribution. Three kinds of
central intervals, at any level:

    gaussian     of N(μ, v), the model's own word, not recalibrated
    student_t    of the calibrated law
    conformal    μ ± q√v, inside with at least the level's probability whatever the law of residuals

A recalibration of few rows is N(μ, v) as it is (`Recalibration.fitted` is None), and its conformal
intervals are infinite at levels that so few rows cannot promise.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.chunks import CHUNK_ROWS, chunks
from kernels.errors import PredictionError
from kernels.linear import Prediction
from kernels.recalibration import Recalibration
from kernels.records import Records
from kernels.rounds.model import Model, known
from kernels.schema import Target
from kernels.student import StudentT

INTERVAL_KINDS = "conformal", "student_t", "gaussian"


class Interval(NamedTuple):
    """Both ends for each row and target, (n, T), in units; conformal ones may be infinite."""

    lower: Tensor
    upper: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Predictions:
    """n predictions of T targets in their units; its repr shows none.

    mean, latent_variance: (n, T). noise_variance: (T,). Variances are of the calibrated law.
    extrapolates: (n,) bool, a numeric cell of the row is outside the schema's bounds.
    recalibration: one for each target, or None where the program had no such stage.
    """

    targets: tuple[Target, ...]
    mean: Tensor
    latent_variance: Tensor
    noise_variance: Tensor
    extrapolates: Tensor
    recalibration: tuple[Recalibration, ...] | None

    @property
    def variance(self) -> Tensor:
        """The variance of the calibrated predictive distribution, (n, T)."""
        return self.latent_variance + self.noise_variance

    def interval(self, level: float, kind: str) -> Interval:
        """Return the interval of a kind that is given by name, one of `INTERVAL_KINDS`."""
        if kind not in INTERVAL_KINDS:
            raise PredictionError(
                f"an interval's kind is one of {', '.join(INTERVAL_KINDS)}, not {kind!r:.40}"
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

    def _recalibrated(self) -> tuple[Recalibration, ...]:
        return known(self.recalibration, "recalibration")

    def _central(self, deviations: list[float]) -> Interval:
        half = (self.variance / _inflation(self.recalibration, len(self.targets))).sqrt()
        half = half * torch.tensor(deviations, dtype=torch.float64)
        return Interval(self.mean - half, self.mean + half)

    def __len__(self) -> int:
        return len(self.mean)

    def __repr__(self) -> str:
        return f"Predictions({len(self)} rows of {', '.join(t.name for t in self.targets)})"


def predict(
    model: Model, table: Mapping[str, object] | Records, *, chunk_rows: int = CHUNK_ROWS
) -> Predictions:
    """Predict every row of a table, or of records read by the model's schema.

    Standardised rows and features exist for `chunk_rows` rows at a time only.
    """
    standardiser = known(model.standardiser, "moments")
    known(model.statistics, "linear")
    records = table if isinstance(table, Records) else Records.for_prediction(model.schema, table)
    if records.schema != model.schema:
        raise PredictionError(
            "these records were read by another schema than the model's: read them by model.schema"
        )
    predicted = _joined(
        model,
        (
            predict_standardised(
                model, standardiser.apply(records.between(rows)).features, chunk_rows=chunk_rows
            )
            for rows in chunks(len(records), chunk_rows)
        ),
    )
    inflation = _inflation(model.recalibration, model.targets)
    mean, latent = standardiser.in_units(predicted.mean, predicted.latent_variance * inflation)
    _, scale = standardiser.target_columns
    return Predictions(
        model.schema.targets,
        mean,
        latent,
        predicted.noise_variance * inflation * scale.square(),
        records.outside.any(1),
        model.recalibration,
    )


def predict_standardised(
    model: Model, features: Tensor, *, chunk_rows: int = CHUNK_ROWS
) -> Prediction:
    """Predict standardised targets from standardised features (n, p); n may be 0."""
    posterior = model.posterior
    in_chunks = model.urk.features_in_chunks(features, chunk_rows=chunk_rows)
    return _joined(model, (posterior.predict(phi) for _, phi in in_chunks))


def predict_each(model: Model, features: Tensor) -> tuple[Tensor, Tensor]:
    """Return means and variances, (n, T), with each row's a function of that row alone, and finite.

    For statistics with differential privacy. In a batch the last bit of a row's prediction may
    depend on which other rows are in it, and where a count depends on that bit, one row more could
    move others. And a hostile broadcast could make the prediction of some rows no number, so that
    whether a site fails would say whether it has such rows: those get mean 0 and variance 1.
    """
    posterior, shape = model.posterior, (len(features), model.targets)
    mean, variance = torch.zeros(shape).double(), torch.ones(shape).double()
    for row, (_, phi) in enumerate(model.urk.features_in_chunks(features, chunk_rows=1)):
        predicted = posterior.predict(phi.nan_to_num(nan=0.0))
        mean[row], variance[row] = predicted.mean[0], predicted.variance[0]
    valid = mean.isfinite() & variance.isfinite() & (variance > 0)
    return torch.where(valid, mean, 0.0), torch.where(valid, variance, 1.0)


def _joined(model: Model, parts: Iterable[Prediction]) -> Prediction:
    """Return predictions of consecutive rows, possibly none, as one."""
    parts = list(parts)
    if len(parts) == 1:  # as where one row is asked for, and each operation counts
        return parts[0]
    nothing = torch.zeros(0, model.targets, dtype=torch.float64)
    pairs = [(nothing, nothing), *((part.mean, part.latent_variance) for part in parts)]
    mean, latent_variance = map(torch.cat, zip(*pairs, strict=True))
    return Prediction(mean, latent_variance, model.posterior.hyperparameters.noise_variance)


def _inflation(recalibration: tuple[Recalibration, ...] | None, targets: int) -> Tensor:
    """Return the variance of each target's law of z, (T,)."""
    laws = [StudentT()] * targets if recalibration is None else [r.law for r in recalibration]
    return torch.tensor([law.variance for law in laws], dtype=torch.float64)
