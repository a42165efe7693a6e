"""A16: why a caller without variances gets no latent mean of an outcome either.

The probability is E[s(f)], f ~ N(m, v). Whoever has it and m solves for v.
"""

import numpy as np
import torch

from kernels.model.prediction import predict
from service.prediction.outcome_parts import parts_of
from tests.kernels.rounds import every_kind

_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(60)


def probability(mean: float, variance: float) -> float:
    values = 1 / (1 + np.exp(-(mean + np.sqrt(variance) * _POINTS)))
    return float(values @ _WEIGHTS / _WEIGHTS.sum())


def solved(probability_of: float, mean: float) -> float:
    """Return the variance that moves s(mean) to a probability, by bisection."""
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        nearer_half = abs(probability(mean, middle) - 0.5) < abs(probability_of - 0.5)
        low, high = (low, middle) if nearer_half else (middle, high)
    return (low + high) / 2


def test_a_mean_and_a_latent_mean_are_a_variance_and_only_one_of_them_is_answered() -> None:
    rows = every_kind.table(40, seed=9)
    own = predict(every_kind.artifact().model, rows).outcome("readmitted")
    far = (own.latent_mean[:, 0].abs() > 0.3).nonzero()[:, 0].tolist()
    found = [solved(float(own.mean[row]), float(own.latent_mean[row, 0])) for row in far]
    expected = own.latent_variance[far, 0]
    torch.testing.assert_close(torch.tensor(found).double(), expected, rtol=0.02, atol=0)
    assert [part.name for part in parts_of(own, withheld=True)] == ["mean", "probabilities"]
