"""The best of a public grid of parameters, by log-likelihoods that sites have summed.

A parameter that changes every row's probability in its own way has no likelihood that a histogram
would tell. But its log-likelihood is a sum over rows at each value of the parameter, so sites sum
one number for each value of a public grid. The best value is that of the grid, moved to the top of
the parabola through it and its neighbours.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def top(grid: Sequence[float], values: Tensor) -> float:
    """Return where the values (len(grid),) at evenly spaced points of a grid are greatest.

    >>> top((0.0, 1.0, 2.0), torch.tensor([0.0, 3.0, 2.0]))
    1.25
    """
    best = int(values.argmax())
    if not 0 < best < len(grid) - 1:
        return grid[best]
    left, middle, right = (float(own) for own in values[best - 1 : best + 2])
    bend = left - 2 * middle + right
    shift = 0.5 * (left - right) / bend if bend < 0 else 0.0
    return grid[best] + shift * (grid[1] - grid[0])


def log_prior(grid: Sequence[float], *, centre: float, scale: float) -> Tensor:
    """Return log N(x; centre, scale²) at the points of a grid, without its constant."""
    away = (torch.tensor(grid, dtype=torch.float64) - centre) / scale
    return -away.square() / 2
