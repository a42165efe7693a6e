"""Each hospital alone: its own model of its own rows, on the test rows of all of them."""

import numpy as np

from benchmarks.outcomes.dataset import Count, Split, TimeToEvent
from benchmarks.outcomes.peers.cox import cox
from benchmarks.outcomes.peers.logistic import logistic, poisson
from benchmarks.outcomes.scores import Scores, scores_of


def alone(split: Split) -> Scores:
    """Return the mean over members of their models' scores; each member counts the same."""
    outcome = split.dataset.outcome
    fit = logistic
    if isinstance(outcome, Count):
        fit = poisson
    elif isinstance(outcome, TimeToEvent):
        fit = cox
    found = [
        scores_of(outcome, split.test, fit(split.dataset, member, split.test))
        for member in split.members
    ]
    return {name: float(np.mean([each[name] for each in found])) for name in found[0]}
