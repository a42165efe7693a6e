"""Gradient boosting of the pooled rows, with a law around its means from cross-fitted residuals.

The settings are those of `benchmarks.outcomes.peers.boosting`, one for all sets; the number of
trees is that of the least loss on held-out rows. For a real number the law is Gaussian: each of
FOLDS of the rows (of the patients, if they have several) is predicted by boosting of the others,
and the variance is the mean square of these residuals, one for all rows. For a count it is negative
binomial, its dispersion of the greatest likelihood at such means.
"""

import math

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import nbinom

from benchmarks.auto import scores
from benchmarks.auto.scores import Scored
from benchmarks.outcomes.dataset import (
    Count,
    Real,
    Split,
    TimeToEvent,
    YesNo,
    size,
    take,
)
from benchmarks.outcomes.members import dealt
from benchmarks.outcomes.peers.boosting import boosting as fitted
from benchmarks.outcomes.scores import Vector

FOLDS = 5
_LEAST_MEAN = 1e-9
_LOG_DISPERSIONS = math.log(1e-3), math.log(1e4)


def boosting(split: Split) -> Scored:
    """Score boosting on the test rows."""
    outcome, test = split.dataset.outcome, split.test
    predicted = fitted(split.dataset, split.pooled, test)
    y = test[outcome.name]
    match outcome:
        case Real():
            residuals = split.pooled[outcome.name] - _cross_fitted(split)
            variance = np.full(len(y), np.mean(residuals**2))
            return scores.of_real(y, scores.Real(predicted, variance))
        case YesNo():
            return scores.of_binary(y, predicted)
        case Count():
            dispersion = likeliest(split.pooled[outcome.name], _cross_fitted(split))
            return scores.of_negative_binomial(y, predicted, dispersion)
        case TimeToEvent():
            return scores.of_survival(y, test[outcome.event], predicted, outcome)
    raise TypeError(f"{split.dataset.name}: {outcome} is not of this benchmark")


def likeliest(y: Vector, mean: Vector) -> float:
    """Return the dispersion r of the greatest likelihood of counts at these means."""
    mean = np.maximum(mean, _LEAST_MEAN)

    def loss(log: float) -> float:
        r = math.exp(log)
        return float(-nbinom.logpmf(y, r, r / (r + mean)).mean())

    return math.exp(minimize_scalar(loss, bounds=_LOG_DISPERSIONS, method="bounded").x)


def _cross_fitted(split: Split) -> Vector:
    """Return for each pooled row what boosting of the other folds predicts."""
    dataset, pooled = split.dataset, split.pooled
    patients = np.arange(size(pooled)) if dataset.patient is None else pooled[dataset.patient]
    folds = dealt(patients, FOLDS, np.random.default_rng([split.seed, 2027]))
    found = np.empty(size(pooled))
    for fold in range(FOLDS):
        own = np.flatnonzero(folds == fold)
        others = np.flatnonzero(folds != fold)
        found[own] = fitted(dataset, take(pooled, others), take(pooled, own))
    return found
