"""Expectations over f ~ N(m, v): by the trapezoid rule for one f, over a lattice for several.

For functions that are analytic near the real line the rule converges geometrically: with s = √v and
a pole of σ(f) at ±iπ, nodes m + sz at distance h in z leave an error of about exp(−2π²/(sh)).
Gauss–Hermite nodes thin out with s, and lose several digits at s = 3; these keep 14 up to s = 5 and
7 at s = 10. The range |z| ≤ 8.5 leaves 2·10⁻¹⁷ outside.

Several latent functions are averaged over the points of a lattice, the same for everyone, whose
first, second and third moments are those of N(0, I): exact for cubic functions, and near 10⁻³ for
probabilities.
"""

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

_REACH = 8.5
_NODES = 137
"""A step of an eighth of a deviation."""


def nodes(count: int = _NODES) -> tuple[Tensor, Tensor]:
    """Return z and the weights, which add up to 1, for f ~ N(0, 1), each (count,)."""
    z = torch.linspace(-_REACH, _REACH, count, dtype=torch.float64)
    weights = (-z.square() / 2).exp()
    return z, weights / weights.sum()


def expected(
    function: Callable[[Tensor], Tensor], mean: Tensor, variance: Tensor, *, count: int = _NODES
) -> Tensor:
    """Return E[function(f)] of each row, (rows,), for f ~ N(mean, variance), each (rows,)."""
    z, weights = nodes(count)
    return function(_points(mean, variance, z)) @ weights


def log_expected(
    log_function: Callable[[Tensor], Tensor],
    mean: Tensor,
    variance: Tensor,
    *,
    curvature: float = 1.0,
) -> Tensor:
    """Return log E[exp(log_function(f))] of each row, (rows,).

    curvature: the greatest −(log_function)″; nodes are as close as a function so sharp needs.
    """
    widest = math.sqrt(max(1e-300, float(variance.max()))) if len(variance) else 0.0
    finer = min(32, math.ceil(max(1.0, widest * math.sqrt(curvature) / 4)))
    z, weights = nodes((_NODES - 1) * finer + 1)
    return torch.logsumexp(log_function(_points(mean, variance, z)) + weights.log(), 1)


@cache
def points(dimensions: int, count: int = 512) -> Tensor:
    """Return points of N(0, I), (count, dimensions): a lattice, its mirror image, unit variance.

    The lattice's steps are powers of the root of g^{d+1} = g + 1, which fill the cube evenly.
    """
    root = 2.0
    for _ in range(64):
        root = (1 + root) ** (1 / (dimensions + 1))
    steps = root ** -torch.arange(1, dimensions + 1, dtype=torch.float64)
    index = torch.arange(1, count // 2 + 1, dtype=torch.float64)
    half = torch.special.ndtri((index.unsqueeze(1) * steps + 0.5) % 1.0)
    factor = torch.linalg.cholesky(half.mT @ half / len(half))
    half = torch.linalg.solve_triangular(factor, half.mT, upper=False).mT
    return torch.cat([half, -half])


def _points(mean: Tensor, variance: Tensor, z: Tensor) -> Tensor:
    return mean.unsqueeze(1) + variance.clamp_min(0.0).sqrt().unsqueeze(1) * z
