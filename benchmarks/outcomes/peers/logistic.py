"""Logistic regression of scikit-learn with a ridge chosen by cross-validation; Poisson likewise."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegressionCV, PoissonRegressor
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold

from benchmarks.outcomes.dataset import Classes, Dataset, Table, YesNo, size
from benchmarks.outcomes.peers.design import Design
from benchmarks.outcomes.scores import Prediction

FOLDS = 5
INVERSE_RIDGES = np.logspace(-3, 2, 11)
"""scikit-learn's C, by the least log loss over the folds."""
SHUFFLED: Mapping[str, Any] = {"shuffle": True, "random_state": 0}
"""Pooled rows come member by member: folds of neighbours would be folds of hospitals."""


def logistic(dataset: Dataset, training: Table, test: Table) -> Prediction:
    """Return probabilities; with one patient of a class or none, the classes' shares."""
    outcome = dataset.outcome
    y = training[outcome.name].astype(np.int64)
    counts = np.bincount(y, minlength=len(outcome.levels) if isinstance(outcome, Classes) else 2)
    if counts.min() < 2:
        shares = (counts + 1) / (counts + 1).sum()
        return _shaped(dataset, np.tile(shares, (size(test), 1)))
    design = Design.fit(dataset, training)
    model = LogisticRegressionCV(
        Cs=INVERSE_RIDGES,
        cv=StratifiedKFold(int(min(FOLDS, counts.min())), **SHUFFLED),
        scoring="neg_log_loss",
        l1_ratios=(0.0,),
        max_iter=500,
        use_legacy_attributes=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the largest C of separated classes
        model.fit(design.of(training), y)
    return _shaped(dataset, model.predict_proba(design.of(test)))


def poisson(dataset: Dataset, training: Table, test: Table) -> Prediction:
    """Return means of a log-linear model, for rows too few for a second parameter."""
    y = training[dataset.outcome.name]
    design = Design.fit(dataset, training)
    ridges = 1 / (INVERSE_RIDGES * size(training))
    model = GridSearchCV(
        PoissonRegressor(max_iter=500),
        {"alpha": ridges},
        cv=KFold(FOLDS, **SHUFFLED),
        scoring="neg_mean_poisson_deviance",
    )
    model.fit(design.of(training), y)
    return np.asarray(model.predict(design.of(test)))


def _shaped(dataset: Dataset, p: Prediction) -> Prediction:
    return p[:, 1] if isinstance(dataset.outcome, YesNo) else p
