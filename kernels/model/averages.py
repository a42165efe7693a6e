"""Predictions of groups of rows, and how uncertain a model is about the average of each group.

An average of predictions is less uncertain than each of them, but not as if they were independent:
all follow from the same weights w. With q(w) = N(μ, V) and p_r the prediction of row r,

    real target      mean_r p_r = φ̄ᵀw with φ̄ = mean_r φ_r: its variance φ̄ᵀVφ̄ is exact
    other targets    p_r is replaced by a line in the latent φᵀw, so that the average is ψᵀw plus a
                     constant with ψ = mean_r s_rφ_r, and has the variance ψᵀVψ

s_r is the slope at which the line has the variance of the prediction of row r, which is exact and
recalibrated. Of classes there is a ψ for each latent function, with slopes in proportion to those
of the softmax, p_k(δ_kj − p_j). Of a time to an event the line is in the mean logit of the hazards
until the horizon.

Of two kernels, the average is a mixture of both averages, as predictions are
(`kernels.model.second`).

What inducing features leave out of the process (`kernels.features.inducing`) is not known from w.
Reference rows are far apart, so it is taken to be independent between the rows of a group.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernels.features.inducing import left_out
from kernels.model.model import Model, known
from kernels.model.prediction import predict_outcomes
from kernels.outcomes.fitted import FittedOutcome
from kernels.outcomes.predictions import OutcomePrediction
from kernels.tables.chunks import CHUNK_ROWS, chunks
from kernels.tables.targets import Classes, Target, TimeToEvent


@dataclass(frozen=True, eq=False)
class Averaged:
    """One target's predictions in its unit: of n rows, (n, K), and of G groups of them.

    K is 1, or the number of classes. deviation: of the groups' averages, (G, K), under q.
    """

    values: Tensor
    deviation: Tensor


def averaged(model: Model, x: Tensor, groups: int) -> tuple[Averaged, ...]:
    """Return each target's predictions, in the order of the schema.

    x: (n, p), standardised rows; n/groups consecutive rows are a group.
    """
    phi = _features(model, x)
    of_other = () if model.other is None else (_features(model.other, x),)
    real = iter(_real(model, (phi, *of_other), groups))
    outcomes = iter(_outcomes(model, phi, groups))
    return tuple(
        next(real if isinstance(target, Target) else outcomes) for target in model.schema.targets
    )


def _features(model: Model, x: Tensor) -> Tensor:
    pieces = chunks(len(x), model.kernel.rows_at_a_time(CHUNK_ROWS))
    return torch.cat([model.features(x[rows]).double() for rows in pieces])


def _real(model: Model, features: Sequence[Tensor], groups: int) -> list[Averaged]:
    """Return averages from the features of each kernel."""
    if not model.schema.real:
        return []
    mean, scale = known(model.standardiser, "moments").target_columns
    found = [
        (weight, *_standardised(own, phi, groups))
        for (own, weight), phi in zip(model.members, features, strict=True)
    ]
    values = torch.stack([weight * own for weight, own, _ in found]).sum(0)
    grouped = values.reshape(groups, -1, model.targets).mean(1)
    latent = torch.stack(
        [
            weight * (variance + (own.reshape(groups, -1, model.targets).mean(1) - grouped) ** 2)
            for weight, own, variance in found
        ]
    ).sum(0)
    values, deviation = values * scale + mean, (latent * model.inflation).sqrt() * scale
    return [
        Averaged(values[:, index : index + 1], deviation[:, index : index + 1])
        for index in range(model.targets)
    ]


def _standardised(model: Model, phi: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Return φᵀw̄ of n rows, (n, T), and the latent variance of the groups' averages, (G, T)."""
    posterior, grouped = model.posterior, phi.reshape(groups, -1, phi.shape[1])
    latent = replace(posterior, inducing=0).predict(grouped.mean(1)).latent_variance
    rest = _left_out(model, grouped).mean(1, keepdim=True) / grouped.shape[1]
    return phi @ posterior.weights, latent + rest * posterior.hyperparameters.prior_variance


def _outcomes(model: Model, phi: Tensor, groups: int) -> list[Averaged]:
    if not model.schema.outcomes:
        return []
    found = []
    predicted = predict_outcomes(model, phi, {})
    for own, fitted in zip(predicted, known(model.outcomes, "outcomes"), strict=True):
        # A row that is certain has no slope: 0/0 is 0.
        slopes = _slopes(own, fitted, phi, model.kernel.inducing_features).nan_to_num(
            nan=0.0, posinf=0.0
        )
        variance = torch.zeros(groups, slopes.shape[1], dtype=torch.float64)
        grouped = phi.reshape(groups, -1, phi.shape[1])
        for index, layer in enumerate(fitted.layers):
            of_layer = slopes[:, :, index].reshape(groups, -1, slopes.shape[1])
            psi = of_layer.mT @ grouped / grouped.shape[1]  # (G, K, M)
            # The indicators of a time's intervals, of which a row has the mean until the horizon.
            constant = of_layer.mean(1).unsqueeze(2) * _beside(own)
            wide = torch.cat([psi, constant], 2).flatten(0, 1)
            variance += layer.latent(wide)[1].reshape(variance.shape)
            rest = (of_layer.square() * _left_out(model, grouped).unsqueeze(2)).mean(1)
            variance += layer.prior_variance * rest / grouped.shape[1]
        mean = own.mean if own.mean.ndim == 2 else own.mean.unsqueeze(1)
        found.append(Averaged(mean, variance.sqrt()))
    return found


def _left_out(model: Model, grouped: Tensor) -> Tensor:
    """Return the share of λ² that inducing features leave out at rows (G, R, M), (G, R)."""
    inducing = model.kernel.inducing_features
    return left_out(grouped, inducing) if inducing else torch.zeros(grouped.shape[:2]).double()


def _slopes(own: OutcomePrediction, fitted: FittedOutcome, phi: Tensor, inducing: int) -> Tensor:
    """Return the slopes of n predictions (n, K) on L latent functions, (n, K, L)."""
    variance = own.variance if own.expectation_variance is None else own.expectation_variance
    if isinstance(own.target, Classes):
        p = own.mean
        softmax = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
        said = (softmax.square() @ own.latent_variance.unsqueeze(2)).squeeze(2)
        return softmax * (variance / said).sqrt().unsqueeze(2)
    latent = own.latent_variance[:, 0]
    beside = _beside(own)
    if len(beside):
        wide = torch.cat([phi, beside.expand(len(phi), -1)], 1)
        latent = fitted.layers[0].latent(wide, inducing=inducing)[1]
    return (variance / latent).sqrt().reshape(-1, 1, 1)


def _beside(own: OutcomePrediction) -> Tensor:
    """Return the mean of the intervals' indicators until the horizon, (J,), or nothing, (0,)."""
    if not isinstance(own.target, TimeToEvent):
        return torch.zeros(0, dtype=torch.float64)
    starts = torch.tensor([0.0, *own.target.intervals[:-1]], dtype=torch.float64)
    reached = (starts < own.target.risk_at).double()
    return reached / reached.sum()
