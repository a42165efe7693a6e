"""Expectations over f ~ N(m, v) by the trapezoid rule.

For functions that are analytic near the real line the rule converges geometrically: with s = √v and
a pole of σ(f) at ±iπ, nodes m + sz at distance h in z leave an error of about exp(−2π²/(sh)).
Gauss–Hermite nodes thin out with s, and lose several digits at s = 3; these keep 14 up to s = 5 and
7 at s = 10. The range |z| ≤ 8.5 leaves 2·10⁻¹⁷ outside.
"""

import math
from collections.abc import Callable

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


def _points(mean: Tensor, variance: Tensor, z: Tensor) -> Tensor:
    return mean.unsqueeze(1) + variance.clamp_min(0.0).sqrt().unsqueeze(1) * z
