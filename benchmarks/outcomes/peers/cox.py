"""Proportional hazards of lifelines, with a small ridge.

At its usual step (.95) its Newton iteration diverges on flchain's seeds 0 and 2, to concordances of
.38 and .34, with no more than a warning. At STEP it converges on all seeds, to what statsmodels'
PHReg finds by BFGS (.792 and .790); a fit that is less likely than no model at all is refused.
"""

import warnings

import numpy as np
import pandas as pd
from lifelines import CoxPHFitter

from benchmarks.outcomes.dataset import Dataset, Table, TimeToEvent
from benchmarks.outcomes.peers.convergence import NotConverged
from benchmarks.outcomes.peers.design import Design
from benchmarks.outcomes.scores import Prediction

RIDGE = 1e-3
"""On standardised inputs; a hospital alone needs one where a column is nearly constant."""
STEP = 0.25


def cox(dataset: Dataset, training: Table, test: Table) -> Prediction:
    """Return survival at the edges."""
    outcome = dataset.outcome
    if not isinstance(outcome, TimeToEvent):
        raise TypeError(f"Cox regression is of times; {dataset.name} has {outcome}")
    design = Design.fit(dataset, training, first_level=False)
    x = design.of(training)
    varied = x.std(axis=0) > 0
    frame = pd.DataFrame(x[:, varied])
    frame.columns = [f"x{number}" for number in range(frame.shape[1])]
    frame = frame.assign(time=training[outcome.name], event=training[outcome.event])
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # of its own calls of pandas, and of columns that hardly vary
        model = CoxPHFitter(penalizer=RIDGE)
        model.fit(frame, "time", "event", fit_options={"step_size": STEP})
        if not model.log_likelihood_ratio_test().test_statistic >= 0:
            raise NotConverged(f"Cox regression on {dataset.name} is less likely than no model")
        tested = pd.DataFrame(design.of(test)[:, varied], columns=frame.columns[:-2])
        curves = model.predict_survival_function(tested, times=list(outcome.edges))
    return np.asarray(curves.to_numpy().T)
