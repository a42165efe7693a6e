"""How good predictions are, the same for every method: plain functions of arrays.

y: outcomes (n,). p: probabilities of the event (n,), or of each class (n, classes). S: survival at
the edges (n, edges). The Brier score of censored times is that of [Graf99].
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from lifelines.utils import concordance_index
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.outcomes.dataset import Count, Outcome, Real, Table, TimeToEvent, YesNo

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Prediction = NDArray[np.float64]
"""Of a yes/no outcome (n,), of classes (n, classes), of counts the means (n,), of times S."""
Scores = Mapping[str, float]

BINS = 10
FLOOR_DRAWS = 200
_SMALLEST = 1e-15


def scores_of(outcome: Outcome, rows: Table, predicted: Prediction) -> Scores:
    """Return all scores that there are of this kind of outcome."""
    y = rows[outcome.name]
    if isinstance(outcome, TimeToEvent):
        return of_times(y, rows[outcome.event], predicted, np.array(outcome.edges))
    if isinstance(outcome, Count):
        return of_counts(y, predicted)
    if isinstance(outcome, Real):
        return {"rmse": float(np.sqrt(np.mean((y - predicted) ** 2)))}
    return of_yes_no(y, predicted) if isinstance(outcome, YesNo) else of_classes(y, predicted)


def of_yes_no(y: Vector, p: Vector) -> Scores:
    """Score probabilities of the event."""
    return {
        "logloss": log_loss(y, np.stack([1 - p, p], axis=1)),
        "brier": float(np.mean((p - y) ** 2)),
        "auc": float(roc_auc_score(y, p)),
        "ece": calibration_error(y, p),
        "ece_floor": calibration_error_floor(p),
        "accuracy": float(np.mean((p > 0.5) == (y == 1))),
    }


def of_classes(y: Vector, p: Matrix) -> Scores:
    """Score probabilities of classes; ECE is that of the likeliest class."""
    right = (p.argmax(axis=1) == y).astype(np.float64)
    indicator = np.eye(p.shape[1])[y.astype(np.int64)]
    return {
        "logloss": log_loss(y, p),
        "brier": float(np.mean(((p - indicator) ** 2).sum(axis=1))),
        "ece": calibration_error(right, p.max(axis=1)),
        "ece_floor": calibration_error_floor(p.max(axis=1)),
        "accuracy": float(right.mean()),
    }


def of_counts(y: Vector, mean: Vector) -> Scores:
    """Score predicted means."""
    return {
        "deviance": poisson_deviance(y, mean),
        "rmse": float(np.sqrt(np.mean((y - mean) ** 2))),
    }


def of_times(time: Vector, event: Vector, survival: Matrix, edges: Vector) -> Scores:
    """Score survival; who lives longer on average until the last edge is ranked as safer."""
    return {
        "concordance": float(concordance_index(time, mean_survival(survival, edges), event)),
        "integrated_brier": integrated_brier(time, event, survival, edges),
    }


def log_loss(y: Vector, p: Matrix) -> float:
    """Return −mean log p of the class that came, p at least 1e-15."""
    of_truth = p[np.arange(len(y)), y.astype(np.int64)]
    return float(-np.log(np.clip(of_truth, _SMALLEST, 1)).mean())


def calibration_error(y: Vector, p: Vector) -> float:
    """Return Σ (n_b / n) |mean p − mean y| over ten bins of equally many rows, sorted by p."""
    bins = np.array_split(np.argsort(p, kind="stable"), BINS)
    return float(sum(abs(np.sum(p[rows] - y[rows])) for rows in bins) / len(y))


def calibration_error_floor(p: Vector) -> float:
    """Return the mean ECE if p were exactly right: over draws of y ~ Bernoulli(p), the same always.

    Few rows in a bin leave it far above zero: an ECE near it shows no error of calibration.

    >>> round(calibration_error_floor(np.full(100, 0.5)), 2)
    0.13
    """
    random = np.random.default_rng(2026)
    drawn = random.random((FLOOR_DRAWS, len(p))) < p
    return float(np.mean([calibration_error(y.astype(np.float64), p) for y in drawn]))


def poisson_deviance(y: Vector, mean: Vector) -> float:
    """Return the mean of 2 [y log(y / μ) − y + μ]."""
    logs = np.where(y > 0, y * np.log(np.where(y > 0, y, 1) / mean), 0)
    return float(np.mean(2 * (logs - y + mean)))


def mean_survival(survival: Matrix, edges: Vector) -> Vector:
    """Return ∫ S from 0 to the last edge by the trapezoidal rule, S(0) = 1."""
    curve = np.column_stack([np.ones(len(survival)), survival])
    return np.asarray(np.trapezoid(curve, np.concatenate([[0.0], edges]), axis=1))


def integrated_brier(time: Vector, event: Vector, survival: Matrix, edges: Vector) -> float:
    """Return the mean over [e₁, e_J] of the Brier score by the trapezoidal rule.

    BS(e) = mean of S(e)² 1[t ≤ e, event] / G(t−) + (1 − S(e))² 1[t > e] / G(e)

    G: the probability of not being censored by then, by Kaplan and Meier, of the scored rows
    themselves. So whoever was censored before e counts for nothing, and those who are like them
    count for more.
    """
    after_death = 1 / uncensored(time, event, time, before=True)
    at_edges = []
    for edge, own in zip(edges, survival.T, strict=True):
        died = (time <= edge) & (event == 1)
        weight = np.where(died, after_death, 0.0)
        weight += (time > edge) / uncensored(time, event, np.array([edge]))
        at_edges.append(np.mean(weight * np.where(died, own, 1 - own) ** 2))
    return float(np.trapezoid(at_edges, edges) / (edges[-1] - edges[0]))


def uncensored(time: Vector, event: Vector, at: Vector, *, before: bool = False) -> Vector:
    """Return G(at), or with `before` its limit from the left, G(at−); deaths come before censoring.

    >>> time, event = np.array([1.0, 2.0, 2.0, 3.0]), np.array([1, 0, 1, 1])
    >>> uncensored(time, event, np.array([1.0, 2.0])).tolist()
    [1.0, 0.5]
    >>> uncensored(time, event, np.array([2.0]), before=True).tolist()
    [1.0]
    """
    ends, of_row = np.unique(time, return_inverse=True)
    censored = np.bincount(of_row, weights=event == 0)
    at_risk = len(time) - np.cumsum(np.bincount(of_row)) + censored
    factors = 1 - censored / np.maximum(at_risk, 1)
    curve = np.concatenate([[1.0], np.cumprod(factors)])
    passed: NDArray[Any] = np.searchsorted(ends, at, side="left" if before else "right")
    return np.asarray(curve[passed])
