"""Predictions whose variance is an average over patients: the same for every row.

A row's own variance tells how close the training rows are, and so may tell who they are
(`kernels.model.exposure`). Its average over patients does not depend on the row, so predictions
with it tell nothing that their means do not. They are calibrated on average: too narrow where the
model has seen few patients and too wide where it has seen many.

With d effective features and n rows, the mean of φᵀA⁻¹φ over the training rows is σ²h, h = d/n. A
row that is not in the sums has h/(1 − h) in place of h (leave-one-out), so a new patient's variance
is on average

    σ²·h/(1 − h) + σ² = σ²/(1 − h)

and for inducing features, in addition, the mean of what they leave out, λ²(n − tr S_main)/n. Both
parts are multiplied by the recalibration's inflation, as every variance is. Intervals are those of
`Predictions` with this variance; conformal's guarantee is that of each row's own variance, so here
they contain about the level's share of patients, by the same counts and without the guarantee.
"""

from dataclasses import replace

import torch
from torch import Tensor

from kernels.layer.posterior import left_out_of
from kernels.model.exposure import effective_features
from kernels.model.model import Model, known
from kernels.model.prediction import Divided, Predictions


def with_average_variance(model: Model, predictions: Predictions) -> Predictions:
    """Return the predictions of `fedbnr` with the average variance of each real target."""
    if not model.targets:
        return predictions
    standardised = sum(
        (weight * _latent(own) for own, weight in model.members),
        torch.zeros(model.targets, dtype=torch.float64),
    )
    _, scale = known(model.standardiser, "moments").target_columns
    latent = standardised * model.inflation * scale.square()
    variance = latent + model.noise_variance
    shape = predictions.mean.shape
    return replace(
        predictions,
        variance=variance.expand(shape).clone(),
        divided=Divided(latent.expand(shape).clone(), model.noise_variance),
    )


def _latent(model: Model) -> Tensor:
    """Return the average latent variance of one kernel's standardised targets, (T,)."""
    statistics, scales = known(model.statistics, "linear"), known(model.hyperparameters, "linear")
    rows = max(statistics.count, 1)
    share = (effective_features(model.posterior) / rows).clamp_max(rows / (rows + 1))
    omitted = left_out_of(statistics, model.kernel.inducing_features) / rows
    return scales.noise_variance * share / (1 - share) + scales.prior_variance * omitted
