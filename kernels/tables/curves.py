"""Curves for columns with heavy tails: monotone, piecewise linear, towards a normal distribution.

z = (x − mean)/scale is enough for most columns. Of a column with a few very large values, a
laboratory value or a cost, the mean and the scale describe those few: most of its rows get almost
the same z, and the largest are all cut off at ±5. Such a column gets a curve: z is moved towards
the normal score s·Φ⁻¹((r − ½)/n) of its rank r. s is the deviation of most rows in z (that of a
normal column with the same 5 % and 95 % quantiles), but at least ½ and at most 1: most rows of a
column with a few outliers stay as far from each other as they were.

Ranks are not sums, but counts of rows in fixed intervals of z are (`edges`). Their edges follow
from mean and scale, which are public by then: they are equally spaced in asinh(4z), so that they
are close together around the mean and a fixed ratio apart far from it, and, because a heavy tail
moves the mean away from most rows, also a fixed ratio apart from x = 0 on the side of the mean.

`curve_of` decides by the counts alone. A column gets a curve if it has rows farther than REACH from
its mean, where the clip would cut them, in at least LEAST_INTERVALS intervals: two levels or a few
stay as they are, and so does a normal column (one row in two million is that far out). A knot
stands for LEAST_ROWS rows or more, so that no knot is one patient. Beyond the outermost knots every
doubling of the distance from the middle adds STEP·s: a value twice as large as any in training is a
little more extreme, not five deviations.

The curve increases, so the order of values is kept until the clip. Counts are whole numbers, and
values are rounded to multiples of 2⁻⁸: the same rows, however they are divided among sites, give
the same curve on every machine.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from statistics import NormalDist
from typing import ClassVar

import torch
from torch import Tensor

from kernels.errors import StandardiserError
from kernels.reproducible import near
from kernels.strict_json import is_number, is_text

_AROUND_MEAN = 32
_AROUND_ZERO = range(-18, 3)
INTERVALS = 2 * _AROUND_MEAN + 1 + 2 * len(_AROUND_ZERO) + 1 + 1
"""The number of intervals of z: one more than there are edges."""
REACH = 5.0
LEAST_INTERVALS = 6
LEAST_ROWS = 10
SPACING = 0.25
"""The least difference of the scores of two knots."""
STEP = 0.25
LEAST_SPREAD = 0.5
_MOST = 0.05, 0.95
DOUBLINGS = 6
MOST_KNOTS = 80
"""Scores of at most 2⁴⁰ rows are within ±7.1, a SPACING apart; then the DOUBLINGS on both sides."""
_NARROWEST = 2.0**-30
_VALUE = 2.0**-8
_MEAN_EDGES = tuple(round(2**8 * math.sinh(step / 4)) / 2**10 for step in range(_AROUND_MEAN + 1))
"""sinh(k/4)/4, rounded to multiples of 2⁻¹⁰: at most 372."""
_ZERO_EDGES = (0.0, *(part * 2.0**power for power in _AROUND_ZERO for part in (1.0, 1.5)))


def edges(mean: float, scale: float) -> tuple[float, ...]:
    """Return the edges of the intervals of z, in increasing order, for a column's mean and scale.

    >>> own = edges(3.0, 2.0)
    >>> len(own) == INTERVALS - 1, list(own) == sorted(own)
    (True, True)
    """
    zero, side = -mean / scale, -1.0 if mean < 0 else 1.0
    around_mean = (*(-own for own in _MEAN_EDGES[1:]), *_MEAN_EDGES)
    return tuple(sorted((*around_mean, *(zero + side * own for own in _ZERO_EDGES))))


def count_in_intervals(z: Tensor, own: Sequence[float]) -> Tensor:
    """Return how many elements of z, (n,), are in each interval [edge, next edge); float64."""
    where = torch.bucketize(z.contiguous(), torch.tensor(own, dtype=torch.float64), right=True)
    return torch.bincount(where, minlength=len(own) + 1).double()


@dataclass(frozen=True)
class Curve:
    """An increasing function of z, linear between its knots and beyond the outermost.

    >>> curve = Curve("lactate", at=(-1.0, 0.0, 4.0), to=(-2.0, 0.0, 1.0))
    >>> [curve.of(z) for z in (-2.0, -0.5, 2.0, 12.0)]
    [-4.0, -1.0, 0.5, 3.0]
    """

    STORED_AS: ClassVar[str] = "curve"

    name: str
    """The column's."""
    at: tuple[float, ...]
    """The knots' z."""
    to: tuple[float, ...]
    """The value of the curve at each knot."""

    def __post_init__(self) -> None:
        if problem := _problem(self):
            raise StandardiserError(f"the curve of column {self.name!r:.80} needs {problem}")

    def of(self, z: float) -> float:
        """Return the curve's value at z: `apply` for one number, to the same last bit."""
        piece = min(max(bisect_right(self.at, z) - 1, 0), len(self.at) - 2)
        value = self.to[piece] + (z - self.at[piece]) * self._slopes[piece]
        # Rounding must not move a value past the next knot's: order would be lost.
        return min(value, self.to[piece + 1]) if z <= self.at[piece + 1] else value

    def apply(self, z: Tensor) -> Tensor:
        """Return the curve's values at z, (n,)."""
        at, to, slopes = self._tensors
        piece = (torch.bucketize(z.contiguous(), at, right=True) - 1).clamp(0, len(slopes) - 1)
        value = to[piece] + (z - at[piece]) * slopes[piece]
        return torch.where(z <= at[piece + 1], torch.minimum(value, to[piece + 1]), value)

    @cached_property
    def _slopes(self) -> tuple[float, ...]:
        knots = pairwise(zip(self.at, self.to, strict=True))
        return tuple((to - own) / (at - here) for (here, own), (at, to) in knots)

    @cached_property
    def _tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        at, to, slopes = (
            torch.tensor(own, dtype=torch.float64) for own in (self.at, self.to, self._slopes)
        )
        return at, to, slopes


def curve_of(name: str, own: Sequence[float], counts: Sequence[int]) -> Curve | None:
    """Return the curve of a column, or None if it is to stay linear.

    own: the `edges`. counts: the number of rows in each interval, over all sites.
    """
    occupied = [place for place, count in enumerate(counts) if count]
    if len(occupied) < LEAST_INTERVALS or not _reaches(own, occupied[0], occupied[-1]):
        return None
    knots = list(_knots(own, counts))
    if len(knots) < 2:
        return None
    middle = min(range(len(knots)), key=lambda place: abs(knots[place][1]))
    before = _beyond(knots, max(middle, 1), 0)
    after = _beyond(knots, min(middle, len(knots) - 2), len(knots) - 1)
    at, scores = zip(*reversed(before), *knots, *after, strict=True)
    share = spread(own, counts)
    return Curve(name, at, tuple(near(share * score, _VALUE) for score in scores))


def spread(own: Sequence[float], counts: Sequence[int]) -> float:
    """Return s: the deviation of most rows, from ½ to 1."""
    low, high = (_centre(own, _interval_of(counts, sum(counts) * each)) for each in _MOST)
    normal = NormalDist()
    most = (high - low) / (normal.inv_cdf(_MOST[1]) - normal.inv_cdf(_MOST[0]))
    return near(min(max(most, LEAST_SPREAD), 1.0), _VALUE)


def _interval_of(counts: Sequence[int], rank: float) -> int:
    """Return the interval that the row of a rank is in."""
    summed = accumulate(counts)
    return next(place for place, seen in enumerate(summed) if seen >= rank)


def _reaches(own: Sequence[float], first: int, last: int) -> bool:
    """Return whether all of an outermost interval that has rows is farther out than REACH."""
    below = own[first] if first < len(own) else math.inf
    above = own[last - 1] if last > 0 else -math.inf
    return below <= -REACH or above >= REACH


_Knot = tuple[float, float]


def _knots(own: Sequence[float], counts: Sequence[int]) -> Iterator[_Knot]:
    """Yield a knot for each group of neighbouring intervals with LEAST_ROWS rows or more.

    Its z is the middle of the interval that the group's middle row is in, its value the score of
    that row's rank.
    """
    rows, seen, last = sum(counts), 0, (-math.inf, -math.inf)
    for first, end in _groups(counts):
        inside = sum(counts[first:end])
        rank = seen + inside / 2
        seen += inside
        score, z = NormalDist().inv_cdf(rank / rows), _centre(own, _interval_of(counts, rank))
        if z >= last[0] + _NARROWEST and score >= last[1] + SPACING:
            last = z, score
            yield last


def _groups(counts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield [first, end) of neighbouring intervals with LEAST_ROWS rows or more, covering all."""
    rest, first, inside = sum(counts), 0, 0
    for place, count in enumerate(counts):
        inside, rest = inside + count, rest - count
        if inside >= LEAST_ROWS and rest >= LEAST_ROWS:
            yield first, place + 1
            first, inside = place + 1, 0
    yield first, len(counts)


def _centre(own: Sequence[float], place: int) -> float:
    lower = own[max(place - 1, 0)]
    return (lower + own[min(place, len(own) - 1)]) / 2


def _beyond(knots: Sequence[_Knot], inner: int, end: int) -> list[_Knot]:
    """Return the knots beyond the outermost one: twice, four times, … as far from the inner one."""
    (middle, _), (at, to) = knots[inner], knots[end]
    sign = math.copysign(1.0, at - middle)
    return [
        (middle + (at - middle) * 2.0**doubled, to + sign * STEP * doubled)
        for doubled in range(1, DOUBLINGS + 1)
    ]


def _problem(curve: Curve) -> str | None:
    if not is_text(curve.name):
        return "the name of a column"
    if not all(isinstance(own, tuple) and all(map(is_number, own)) for own in (curve.at, curve.to)):
        return "finite numbers"
    if not 2 <= len(curve.at) == len(curve.to) <= MOST_KNOTS:
        return f"2 to {MOST_KNOTS} knots, each with a value"
    # Narrower pieces, or steeper ones, would amplify the last bit of z.
    narrow = any(after - here < _NARROWEST for here, after in pairwise(curve.at))
    if narrow or any(after <= here for here, after in pairwise(curve.to)):
        return "knots and values that increase"
    return None
