"""L-BFGS [LiuNocedal89] that takes the same steps on every machine.

A function's gradient passes through products of matrices, whose last digits depend on the machine,
and a search amplifies them: after a hundred steps of a library's L-BFGS, two machines are far
apart. Here the gradient is rounded to a grid, GRADIENT_BITS below its largest element at the start,
and everything else is exact arithmetic (`kernels.reproducible`), so that the steps are the same
unless an element lies between two multiples, within its noise. The search ends when the value falls
by less than a share of LEAST_FALL, or when the whole gradient rounds to zero.
"""

import math
from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

GRADIENT_BITS = 20
LEAST_FALL = 2.0**-26

_MEMORY = 10
_ENOUGH = 1e-4
"""The share of the fall promised by the slope that a step must reach, else it is halved."""
_HALVINGS = 20


def minimised(
    function: Callable[[Vector], tuple[float, Vector]], start: Vector, *, iterations: int
) -> Vector:
    """Return where a differentiable function, given as value and gradient, is smallest."""
    point = start
    value, slope = function(point)
    largest = float(np.abs(slope).max(initial=0.0))
    if largest == 0:
        return point
    step = math.ldexp(1.0, math.frexp(largest)[1] - GRADIENT_BITS)
    slope = _rounded(slope, step)
    pairs: deque[tuple[Vector, Vector, float]] = deque(maxlen=_MEMORY)
    for _ in range(iterations):
        direction = _direction(slope, pairs)
        promised = dot(direction, slope)
        if promised >= 0:
            break
        size = 1.0 if pairs else min(1.0, 1 / _norm(slope))
        for _ in range(_HALVINGS):
            moved = point + size * direction
            after, steep = function(moved)
            if after <= value + _ENOUGH * size * promised:
                break
            size /= 2
        else:
            break
        steep = _rounded(steep, step)
        change, turn = moved - point, steep - slope
        curvature = dot(change, turn)
        if curvature > 0:
            pairs.append((change, turn, curvature))
        fall, point, value, slope = value - after, moved, after, steep
        if fall <= LEAST_FALL * abs(value):
            break
    return point


def dot(one: Vector, other: Vector) -> float:
    """Return the inner product, added in pairs, in the same order everywhere."""
    rest = one * other
    left = len(rest)
    while left > 1:
        half = left // 2
        rest[:half] += rest[half : 2 * half]
        if left % 2:
            rest[half] = rest[left - 1]
        left -= half
    return float(rest[0]) if left else 0.0


def _norm(vector: Vector) -> float:
    return math.sqrt(dot(vector, vector))


def _rounded(vector: Vector, step: float) -> Vector:
    found: Vector = np.round(vector / step) * step
    return found


def _direction(slope: Vector, pairs: deque[tuple[Vector, Vector, float]]) -> Vector:
    """Return minus the inverse Hessian's estimate times the gradient, by the two-loop recursion."""
    if not pairs:
        return -slope
    rest, shares = slope, list[float]()
    for change, turn, curvature in reversed(pairs):
        shares.append(dot(change, rest) / curvature)
        rest = rest - shares[-1] * turn
    _, turn, curvature = pairs[-1]
    rest = rest * (curvature / dot(turn, turn))
    for (change, turn, curvature), share in zip(pairs, reversed(shares), strict=True):
        rest = rest + (share - dot(turn, rest) / curvature) * change
    return -rest
