"""AdaSSP: [WangY18] algorithm 2.

On standardised inputs and a constant, rows scaled to a norm of at most √(p + 1).
"""

import math

import numpy as np

from benchmarks.dp.pooled import Matrix, Pooled
from benchmarks.dp.routes import DELTA, TARGET_CLIP
from benchmarks.dp.scores import Score


def adassp(pooled: Pooled, epsilon: float, seed: int) -> Score:
    """AdaSSP as published: a third of ε each for the least eigenvalue, XᵀX and Xᵀy."""
    random = np.random.default_rng([seed, 1])
    bound = math.sqrt(pooled.training[0].shape[1] + 1)

    def rows(x: Matrix) -> Matrix:
        x = np.column_stack([x, np.ones(len(x))])
        shorter: Matrix = x * np.minimum(1, bound / np.linalg.norm(x, axis=1, keepdims=True))
        return shorter

    x, y = rows(pooled.training[0]), pooled.training[1].clip(-TARGET_CLIP, TARGET_CLIP)
    size, failure = x.shape[1], 0.05
    third, log_delta = epsilon / 3, math.log(6 / DELTA)
    unit = math.sqrt(log_delta) * bound**2 / third
    least = np.linalg.eigvalsh(x.T @ x)[0]
    least = max(least + unit * random.normal() - log_delta / third * bound**2, 0)
    ridge = max(
        0, math.sqrt(size * log_delta * math.log(2 * size**2 / failure)) * bound**2 / third - least
    )
    upper = np.triu(random.normal(size=(size, size)))
    scatter = x.T @ x + unit * (upper + np.triu(upper, 1).T)
    cross = x.T @ y + unit / bound * TARGET_CLIP * random.normal(size=size)
    weights = np.linalg.solve(scatter + ridge * np.eye(size), cross)
    return pooled.with_own_variance(
        rows(pooled.validation[0]) @ weights, rows(pooled.test[0]) @ weights
    )
