"""A rising map of log odds, fitted to a histogram of held-out log odds by outcome and fold.

**Two numbers** [Platt99]: l → a·l + b, by the likelihood of the histogram with a Gaussian prior,

    Σ_b [n₁ log s(a·c_b + b) + n₀ log s(−a·c_b − b)] − (a − 1)²/2τ² − b²/2τ²,    τ = ¼

with c_b the centre of bin b. It is strictly concave: the optimum is one, and finite also if the
outcomes are separated or all alike. The prior weighs as much as some sixty rows, so with few rows
the map is nearly the identity, and with hundreds the prior no longer matters. a is at least 1/16:
the map rises, and recalibration never turns the order of rows around.

**Knots**, with many rows: the histogram in up to 20 groups of as many rows, the share of events in
each (with one row more, of the two numbers' opinion), made to rise by pooling adjacent violators
[Zadrozny02]. Pooled groups are one knot, and between knots the map is linear in log odds, so it
rises everywhere and the order of rows is kept; beyond the outermost knots it has the slope a. The
knots are used only if they beat the two numbers by more than 1 nat when each is fitted to one fold
and judged on the other.

**With noise** of deviation s in every count there are the two numbers alone. The slope of the
likelihood in bin b, c_b·[(1 − p)n₁ − p·n₀], is linear in counts, so it has the right expectation
with noisy counts as they are, negative ones included. In units of c_b² its variance is
n·p(1 − p) + s²(p² + (1 − p)²), where the likelihood supposes the first part alone. So each bin has
as its weight the first part's share, with p of the centre and n from the nearest valid histogram:
the weighted likelihood is then as sharp as it should be, and empty bins at high log odds, whose
noise would have a long lever, have next to no weight.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from kernels.errors import StateError
from kernels.noisy.counts import repaired
from kernels.outcomes.scored.logit_bins import COARSE, FINE
from kernels.outcomes.scored.reliability import merged
from kernels.reproducible import near, to_bits
from kernels.scores.recalibration import FOLDS

_PRIOR = 0.25
_LEAST_SLOPE = 1 / 16
_MOST = 64.0
"""The largest slope, intercept and knot."""
_KNOT_ROWS = 2000
_KNOTS = 20
_GAIN = 1.0
_STEP = 2.0**-16
"""The grid of slopes, intercepts and knots: the same from every machine's search."""
_KNOT_BITS = 24
_MOST_STEPS = 200
_LEAST = 1e-300


@dataclass(frozen=True, eq=False)
class LogitMap:
    """l → slope·l + intercept, or through knots (2, k): log odds before, rising, and after."""

    STORED_AS: ClassVar[str] = "outcome.logit_map"

    slope: float = 1.0
    intercept: float = 0.0
    knots: Tensor | None = None

    def __post_init__(self) -> None:
        if not (
            _LEAST_SLOPE <= self.slope <= _MOST
            and -_MOST <= self.intercept <= _MOST
            and (self.knots is None or _rise(self.knots))
        ):
            raise StateError(
                f"a map of log odds must have a slope from {_LEAST_SLOPE} to {_MOST}, an intercept "
                f"of at most {_MOST} either way, and knots that rise, (2, k) float64"
            )

    @classmethod
    def from_noisy(cls, counts: Tensor, *, noise: float) -> "LogitMap":
        """Return the two numbers for counts (2, COARSE.count) with noise of this deviation."""
        chance = torch.sigmoid(COARSE.centres)
        sampled = repaired(counts.flatten()).view_as(counts).sum(0) * chance * (1 - chance)
        added = noise**2 * (chance.square() + (1 - chance).square())
        weights = sampled / (sampled + added).clamp_min(_LEAST)
        return _two_numbers(COARSE.finer(counts * weights, FINE))

    @classmethod
    def of(cls, counts: Tensor) -> "LogitMap":
        """Return the map for counts (FOLDS, 2, FINE.count) of rows by fold, outcome and bin."""
        whole = counts.sum(0)
        rows = float(whole.sum())
        plain = _two_numbers(whole)
        if rows < _KNOT_ROWS or min(float(own.sum()) for own in counts) < _KNOT_ROWS / 4:
            return plain
        gain = 0.0
        for fold in range(FOLDS):
            rest = whole - counts[fold]
            fitted = _two_numbers(rest)
            gain += _value(_with_knots(fitted, rest), counts[fold])
            gain -= _value(fitted, counts[fold])
        return _with_knots(plain, whole) if gain > _GAIN else plain

    def again(self, counts: Tensor) -> "LogitMap":
        """Return the map of the same form for other counts (FOLDS, 2, FINE.count)."""
        whole = counts.sum(0)
        plain = _two_numbers(whole)
        return plain if self.knots is None else _with_knots(plain, whole)

    def __call__(self, logits: Tensor) -> Tensor:
        """Return the recalibrated log odds."""
        if self.knots is None:
            return logits * self.slope + self.intercept
        before, after = self.knots
        inner = logits.clamp(float(before[0]), float(before[-1]))
        found: Tensor = (logits - inner) * self.slope + after[0]
        if len(before) > 1:
            right = torch.searchsorted(before, inner.contiguous()).clamp(1, len(before) - 1)
            rate = (after.diff() / before.diff())[right - 1]
            found = found + after[right - 1] - after[0] + rate * (inner - before[right - 1])
        return found


def _value(mapped: LogitMap, counts: Tensor) -> float:
    """Return the log-likelihood of counts (2, FINE.count)."""
    logits = mapped(FINE.centres)
    return float((counts[0] * logsigmoid(-logits) + counts[1] * logsigmoid(logits)).sum())


def _two_numbers(counts: Tensor) -> LogitMap:
    """Return the two numbers for counts (2, FINE.count), by Newton's steps with halving."""
    slope, intercept = _climbed(counts, torch.tensor([1.0, 0.0], dtype=torch.float64), fixed=False)
    if slope < _LEAST_SLOPE:
        start = torch.tensor([_LEAST_SLOPE, intercept], dtype=torch.float64)
        slope, intercept = _climbed(counts, start, fixed=True)
    return LogitMap(
        min(max(near(slope, _STEP), _LEAST_SLOPE), _MOST),
        near(min(max(intercept, -_MOST), _MOST), _STEP),
    )


def _climbed(counts: Tensor, start: Tensor, *, fixed: bool) -> tuple[float, float]:
    """Return slope and intercept at the optimum; `fixed` keeps the slope."""
    design = torch.stack([FINE.centres, torch.ones_like(FINE.centres)])
    if fixed:
        design[0] = 0.0
    shift = start[0] * FINE.centres if fixed else torch.zeros_like(FINE.centres)
    centre = torch.tensor([start[0] if fixed else 1.0, 0.0], dtype=torch.float64)
    rows = counts.sum(0)
    positive = rows.clamp_min(0.0)

    def objective(at: Tensor) -> Tensor:
        logits = shift + at @ design
        fit = counts[0] * logsigmoid(-logits) + counts[1] * logsigmoid(logits)
        return fit.sum() - (at - centre).square().sum() / (2 * _PRIOR**2)

    at, value = start, objective(start)
    for _ in range(_MOST_STEPS):
        chance = torch.sigmoid(shift + at @ design)
        slope = design @ (counts[1] - rows * chance) - (at - centre) / _PRIOR**2
        bend = (design * (positive * chance * (1 - chance))) @ design.mT
        bend += torch.eye(2, dtype=torch.float64) / _PRIOR**2
        step = torch.linalg.solve(bend, slope)
        if float(step.abs().max()) < 1e-12:
            break
        reached = objective(at + step)
        while not reached >= value and float(step.abs().max()) > 1e-12:
            step = step / 2
            reached = objective(at + step)
        at, value = at + step, reached
    return float(at[0]), float(at[1])


def _with_knots(plain: LogitMap, counts: Tensor) -> LogitMap:
    """Return a map with knots for counts (2, FINE.count), and `plain` beyond them."""
    rows = counts.sum(0)
    if not float(rows.sum()) > 0:
        return plain
    sums = merged(rows, rows, counts[1], rows * FINE.centres, groups=_KNOTS)
    own = sums[0] > 0
    n, events, places = (each[own] for each in sums)
    opinion = torch.sigmoid(plain(places / n))
    pooled: list[tuple[float, float, float]] = []
    columns = n + 1, events + opinion, places + places / n
    for group in torch.stack(columns, 1).tolist():
        pooled.append((group[0], group[1], group[2]))
        while len(pooled) > 1 and _share(pooled[-2]) >= _share(pooled[-1]):
            (n1, e1, p1), (n0, e0, p0) = pooled.pop(), pooled.pop()
            pooled.append((n0 + n1, e0 + e1, p0 + p1))
    before = torch.tensor([place / n for n, _, place in pooled], dtype=torch.float64)
    after = torch.tensor([math.log(e / (n - e)) for n, e, _ in pooled], dtype=torch.float64)
    knots = to_bits(torch.stack([before, after]), _KNOT_BITS)
    return LogitMap(plain.slope, plain.intercept, knots) if _rise(knots) else plain


def _share(group: tuple[float, float, float]) -> float:
    return group[1] / group[0]


def _rise(knots: object) -> bool:
    return (
        isinstance(knots, Tensor)
        and knots.dtype == torch.float64
        and knots.ndim == 2
        and knots.shape[0] == 2
        and knots.shape[1] >= 1
        and bool((knots.abs() <= _MOST).all())
        and bool((knots.diff() > 0).all())
    )
