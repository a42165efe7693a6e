"""Negative binomial regression (NB2) of statsmodels, by maximum likelihood."""

import numpy as np
from statsmodels.discrete.discrete_model import NegativeBinomial

from benchmarks.outcomes.dataset import Dataset, Table
from benchmarks.outcomes.peers.convergence import NotConverged
from benchmarks.outcomes.peers.design import Design
from benchmarks.outcomes.scores import Prediction


def negative_binomial(dataset: Dataset, training: Table, test: Table) -> Prediction:
    """Return means."""
    design = Design.fit(dataset, training, first_level=False)

    def rows(table: Table) -> Prediction:
        x = design.of(table)
        return np.column_stack([np.ones(len(x)), x])

    model = NegativeBinomial(training[dataset.outcome.name], rows(training))
    fitted = model.fit(method="bfgs", maxiter=500, disp=False)
    if not fitted.mle_retvals["converged"]:
        raise NotConverged(f"negative binomial regression on {dataset.name} did not converge")
    return np.asarray(model.predict(fitted.params, rows(test)))
