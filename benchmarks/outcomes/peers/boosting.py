"""Gradient boosting of scikit-learn: log loss, Poisson deviance, squares, or hazards by period.

Trees take missing cells and levels as they are. SETTINGS are one for all sets; what else was tried
is listed there. The number of trees is that with the least loss on held-out tenths of the rows.
"""

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from benchmarks.outcomes.dataset import Count, Dataset, Real, Table, TimeToEvent, YesNo, size
from benchmarks.outcomes.peers.design import trees
from benchmarks.outcomes.peers.person_periods import every_interval, person_periods, survival
from benchmarks.outcomes.scores import Prediction

SETTINGS = {
    "learning_rate": 0.05,
    "max_iter": 500,
    "max_leaf_nodes": 8,
    "min_samples_leaf": 20,
    "l2_regularization": 1.0,
    "early_stopping": True,
    "validation_fraction": 0.15,
    "n_iter_no_change": 20,
    "random_state": 0,
}


def boosting(dataset: Dataset, training: Table, test: Table) -> Prediction:
    """Return probabilities, means or survival, as the outcome is."""
    outcome = dataset.outcome
    x, categorical = trees(dataset, training)
    tested, _ = trees(dataset, test)
    if isinstance(outcome, TimeToEvent):
        periods = person_periods(outcome, training)
        model = HistGradientBoostingClassifier(
            categorical_features=[*categorical, False], **SETTINGS
        )
        model.fit(np.column_stack([x[periods.patient], periods.interval]), periods.event)
        patient, interval = every_interval(size(test), len(outcome.edges))
        hazard = model.predict_proba(np.column_stack([tested[patient], interval]))[:, 1]
        return survival(hazard, len(outcome.edges))
    y = training[outcome.name]
    if isinstance(outcome, Count | Real):
        loss = "poisson" if isinstance(outcome, Count) else "squared_error"
        regressor = HistGradientBoostingRegressor(
            loss=loss, categorical_features=categorical, **SETTINGS
        )
        return np.asarray(regressor.fit(x, y).predict(tested))
    model = HistGradientBoostingClassifier(categorical_features=categorical, **SETTINGS)
    p = model.fit(x, y).predict_proba(tested)
    return np.asarray(p[:, 1] if isinstance(outcome, YesNo) else p)
