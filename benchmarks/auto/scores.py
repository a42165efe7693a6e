"""What a prediction of the test rows is worth, by the kind of outcome: plain functions of arrays.

`nll`, natural logarithms per row, is the one score that all kinds have:

    real     −log of the predictive density, per unit of the target
    yes/no   −log p of what came (log loss)
    count    −log of the predictive probability of the count
    time     −log[S(e_{j−1}) − S(e_j)] of an event in interval j, −log S(e_s) of whoever survived s
             intervals and then left; those of whom nothing is known are left out

`coverage_90`: the share of outcomes in their 90 % intervals (real numbers, counts) or sets
(yes/no); there is none of times. `ece`: of real numbers over ten levels, of a yes/no in ten bins.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import nbinom

from benchmarks.outcomes.dataset import TimeToEvent
from benchmarks.outcomes.scores import Matrix, Vector, of_counts, of_times, of_yes_no
from kernels.scores.evaluation import score
from kernels.scores.student_t import StudentT

Scored = dict[str, float]

GAUSSIAN = StudentT()

LEVEL = 0.9
_SMALLEST = 1e-15


@dataclass(frozen=True, eq=False)
class Real:
    """Means and variances v, each (n,), and the law of (y − mean)/√v; by default N(mean, v)."""

    mean: Vector
    variance: Vector
    law: StudentT = GAUSSIAN


def of_real(y: Vector, predicted: Real) -> Scored:
    """Score a law; beside its NLL that of the Gaussian of the same mean and variance."""
    unit = float(np.std(y)) or 1.0
    residuals = torch.from_numpy((y - predicted.mean) / unit)[:, None]
    variance = torch.from_numpy(predicted.variance / unit**2)[:, None]
    own = score([predicted.law], residuals, variance)
    gaussian = score([GAUSSIAN], residuals, variance * predicted.law.variance)
    half = predicted.law.half_width(LEVEL) * np.sqrt(predicted.variance)
    return {
        "nll": float(own.nll()) + math.log(unit),
        "nll_gaussian": float(gaussian.nll()) + math.log(unit),
        "rmse": float(np.sqrt(np.mean((y - predicted.mean) ** 2))),
        "ece": float(own.ece()),
        **interval(y, predicted.mean - half, predicted.mean + half),
    }


def interval(y: Vector, lower: Vector, upper: Vector) -> Scored:
    """Score 90 % intervals, which may be infinite."""
    found = {"coverage_90": float(np.mean((lower <= y) & (y <= upper)))}
    width = float(np.mean(upper - lower))
    return {**found, "width_90": width} if math.isfinite(width) else found


def of_binary(y: Vector, p: Vector) -> Scored:
    """Score probabilities of the event."""
    scores = dict(of_yes_no(y, p))
    return {"nll": scores.pop("logloss"), **scores}


def in_sets(y: Vector, sets: Matrix) -> Scored:
    """Score 90 % sets, (n, 2) of bool: whether "no" and whether the event is in them."""
    inside = sets[np.arange(len(y)), y.astype(np.int64)]
    return {"coverage_90": float(np.mean(inside)), "set_size_90": float(sets.sum(1).mean())}


def of_count(y: Vector, mean: Vector, log_density: Vector) -> Scored:
    """Score expected counts, and the logarithm of each count's probability."""
    return {"nll": float(-np.mean(log_density)), **of_counts(y, mean)}


def of_negative_binomial(y: Vector, mean: Vector, dispersion: float) -> Scored:
    """Score the negative binomial of these means, whose variance is μ + μ²/r."""
    law = nbinom(dispersion, dispersion / (dispersion + mean))
    lower, upper = law.ppf((1 - LEVEL) / 2), law.ppf((1 + LEVEL) / 2)
    return {**of_count(y, mean, law.logpmf(y)), **interval(y, lower, upper)}


def of_survival(time: Vector, event: Vector, survival: Matrix, outcome: TimeToEvent) -> Scored:
    """Score S at the edges, (n, J)."""
    edges = np.array(outcome.edges)
    return {
        "nll": time_log_loss(time, event, survival, edges),
        **of_times(time, event, survival, edges),
    }


def time_log_loss(time: Vector, event: Vector, survival: Matrix, edges: Vector) -> float:
    """Return the mean of −log of what is known of each patient.

    >>> survival, edges = np.array([[0.8, 0.5]] * 3), np.array([1.0, 2.0])
    >>> time, event = np.array([0.5, 9.0, 0.5]), np.array([1.0, 1.0, 0.0])
    >>> found = time_log_loss(time, event, survival, edges)
    >>> math.isclose(found, -(math.log(0.2) + math.log(0.5)) / 2)
    True
    """
    curve = np.column_stack([np.ones(len(survival)), survival])
    rows = np.arange(len(time))
    interval_of = np.searchsorted(edges, time, side="left")  # an event at e_j is of interval j
    happened = (event == 1) & (interval_of < len(edges))
    reached = np.minimum(np.searchsorted(edges, time, side="right"), len(edges))
    ends = np.minimum(interval_of + 1, len(edges))
    died = curve[rows, interval_of] - curve[rows, ends]
    chance = np.where(happened, died, curve[rows, reached])
    some = happened | (reached > 0)
    return float(-np.log(np.clip(chance[some], _SMALLEST, 1)).mean())
