"""Newton steps to the optimum that a search has come near.

A search that compares values finds an optimum to only half of float64's digits, and where it stops
depends on the last bit of its input; federated training would amplify that, and two machines would
not agree on the result even after rounding it. Newton's steps to the zero of the gradient find all
digits but the last few.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_STEPS = 6
_DIFFERENCE = 1e-4


def polished(
    gradient: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    point: NDArray[np.float64],
    bounds: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Take Newton steps to the zero of the gradient, along coordinates inside their bounds."""
    for _ in range(_STEPS):
        slope = gradient(point)
        free = (point > bounds[:, 0]) & (point < bounds[:, 1])
        shifts = _DIFFERENCE * np.eye(len(point))
        curvature = np.stack([gradient(point + h) - gradient(point - h) for h in shifts])
        curvature = (curvature / (2 * _DIFFERENCE))[np.ix_(free, free)]
        if not free.any() or np.linalg.eigvalsh((curvature + curvature.T) / 2)[0] <= 0:
            break
        step = np.zeros_like(point)
        step[free] = np.linalg.solve(curvature, slope[free])
        moved = np.clip(point - step, bounds[:, 0], bounds[:, 1])
        if np.abs(gradient(moved)[free]).max() >= np.abs(slope[free]).max():
            break
        point = moved
    return point
