"""The noise with which a plan costs what may be spent.

The stages of a run request sums over parts of the tables. Different parts contain different units,
so each part may spend the whole (ε, δ); the stages within a part divide it. For Gaussian noise
(ε, δ) is equivalent to one number, μ, and μ² is what is divided: with shares a_i and n_i sums in
stage i,

    1/z_i² = μ²·(a_i/Σa)/(n_i·runs).

A stage over all rows has an empty part and belongs to every part: its cost is taken from each.

Sums over Poisson samples have no such number, and parts with such sums are accounted for at one
Rényi order, which allows a smaller μ than Gaussian sums alone. Each of these stages starts from the
z at which it alone costs what a Gaussian with its share of μ² would cost. Then the z of all these
stages are multiplied by one factor, with which the parts that contain them cost ε.

The cost is that of the ledger's filter (`privacy.accounting.filters`) for this budget.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import final

from privacy.accounting import gaussian
from privacy.accounting.events import Release
from privacy.accounting.filters import Filter
from privacy.errors import AccountingError, NoSuchPlan

_RESERVE = 2.0**-12
"""The fraction of μ, or of ε, that is reserved for what an encoding's integers add to a plan."""
_DIGITS = Context(prec=4, rounding=ROUND_CEILING)
_MOST = 1e6
"""The largest multiplier that an encoding accepts."""
_DEALING = b"planned"
_SEARCHED = 2.0**-10
_SECANTS = 8
_MOST_TRIES = 40


@final
@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of a plan: `sums` sums over `part`, and its `share` of what that part may spend.

    part: empty for a stage over all rows.
    """

    part: str
    sums: int = 1
    share: float = 1.0
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        if type(self.part) is not str:
            raise AccountingError("a stage's `part` must be a string, empty for all rows")
        if type(self.sums) is not int or not 1 <= self.sums <= 10**6:
            raise AccountingError(
                f"a stage's `sums` must be an integer from 1 to 10⁶, not {self.sums!r:.40}"
            )
        if type(self.share) not in (int, float) or not 1e-9 <= self.share <= 1e9:
            raise AccountingError(
                f"a stage's `share` must be a number from 1e-9 to 1e9, not {self.share!r:.40}"
            )
        rate = self.sampling_rate
        if type(rate) not in (int, float) or not 1e-12 <= rate <= 1:
            raise AccountingError(
                f"a stage's `sampling_rate` must be a number from 1e-12 to 1, not {rate!r:.40}"
            )


def multipliers(
    stages: Sequence[Stage], *, epsilon: float, delta: float, runs: int = 1
) -> tuple[float, ...]:
    """Return, for each stage, the multiplier z of its sums, rounded up to four digits.

    `runs` runs together cost at most (ε, δ), and the most expensive part costs nearly that.

    >>> multipliers([Stage(part="training")], epsilon=1.0, delta=1e-5)
    (3.797,)
    """
    if type(epsilon) not in (int, float) or not 1e-6 <= epsilon <= 1e3:
        raise AccountingError(f"ε must be a number from 1e-6 to 1000, not {epsilon!r:.40}")
    if type(delta) is not float or not 1e-15 <= delta < 1:
        raise AccountingError(f"δ must be a float from 1e-15 to below 1, not {delta!r:.40}")
    if type(runs) is not int or not 1 <= runs <= 10**6:
        raise AccountingError(f"`runs` must be an integer from 1 to 10⁶, not {runs!r:.40}")
    if not stages:
        return ()
    budget = Filter(float(epsilon), delta)
    parts = _with_samples(stages)
    found = [
        _alone(
            stage,
            (budget.most_renyi_mu if stage.part in parts else budget.most_mu)
            * (1 - _RESERVE)
            * math.sqrt(fraction / runs),
            budget,
        )
        for stage, fraction in zip(stages, _fractions(stages), strict=True)
    ]
    if parts:
        factor = _factor(stages, found, budget, runs=runs)
        found = _moved(stages, found, factor)
    rounded = tuple(float(_DIGITS.create_decimal(Decimal(z))) for z in found)
    if max(rounded) > _MOST:
        raise NoSuchPlan(
            f"these stages need a noise multiplier of {max(rounded):g} to stay within ε = "
            f"{epsilon:g} and δ = {delta:g}, but the largest possible is {_MOST:g}: request fewer "
            "sums, or increase the budget"
        )
    return rounded


def _with_samples(stages: Sequence[Stage]) -> set[str]:
    """Return the parts whose units pay for sums over samples, with "" for sums that all pay for."""
    sampled = {stage.part for stage in stages if stage.sampling_rate < 1}
    if "" in sampled:
        sampled |= {stage.part for stage in stages}
    return sampled and {"", *sampled}


def _fractions(stages: Sequence[Stage]) -> list[float]:
    """Return each stage's fraction of μ²."""
    shares: dict[str, float] = defaultdict(float)
    for stage in stages:
        shares[stage.part] += stage.share
    every = shares.pop("", 0.0)
    whole = every + max(shares.values(), default=0.0)
    left = 1 - every / whole
    return [
        stage.share / shares[stage.part] * left if stage.part else stage.share / whole
        for stage in stages
    ]


def _alone(stage: Stage, mu: float, budget: Filter) -> float:
    """Return the z at which a stage alone costs as much as μ-Gaussian privacy."""
    plain = math.sqrt(stage.sums) / mu
    if stage.sampling_rate == 1:
        return plain
    # Enough to start from: one Rényi order proves no ε far below the budget's.
    target = max(gaussian.epsilon(mu, budget.delta), budget.epsilon / 4)
    # Many sums over small samples are nearly Gaussian, with q/z in place of 1/z.
    near = plain * max(stage.sampling_rate, 2.0**-6)
    return _least(lambda z: _planned([stage], [z], budget, runs=1), target, near)


def _factor(stages: Sequence[Stage], found: Sequence[float], budget: Filter, *, runs: int) -> float:
    """Return the factor by which to multiply the z of all sampled stages."""
    parts = _with_samples(stages)
    affected = [i for i, stage in enumerate(stages) if stage.part in parts]

    def spent(factor: float) -> float:
        moved = _moved(stages, found, factor)
        chosen = [stages[i] for i in affected], [moved[i] for i in affected]
        return _planned(*chosen, budget, runs=runs)

    return _least(spent, budget.epsilon * (1 - _RESERVE), 1.0)


def _moved(stages: Sequence[Stage], found: Sequence[float], factor: float) -> list[float]:
    return [
        z * factor if stage.sampling_rate < 1 else z for stage, z in zip(stages, found, strict=True)
    ]


def _least(spent: Callable[[float], float], target: float, near: float) -> float:
    """Return the z at which a decreasing function meets the target or is just below it.

    The secant method on logarithmic scales, where the function is nearly a straight line: ε is
    roughly proportional to 1/z. If it is not, because other stages spend most of ε, large steps
    and bisection find z as well.
    """
    low, high, slope = 0.0, math.inf, -1.0
    z, last = near, (0.0, 0.0)
    for attempt in range(_MOST_TRIES):
        epsilon = spent(z)
        if target * (1 - _SEARCHED) <= epsilon <= target:
            return z
        if epsilon > target:
            low = z
        else:
            high = z
        if min(epsilon, *last) > 0 and math.isfinite(epsilon) and last[0] != z:
            slope = math.log(epsilon / last[1]) / math.log(z / last[0])
            slope = min(max(slope, -4.0), -0.1)
        last = z, min(epsilon, 1e9)
        aim = target * (1 - _SEARCHED / 2) / max(epsilon, 1e-9)
        z *= min(max(aim ** (1 / slope), 1 / 8), 8.0)
        if attempt > _SECANTS and (low == 0 or high == math.inf):
            z = high / 4 if low == 0 else low * 4
        elif attempt > _SECANTS or not low < z < high:
            z = math.sqrt(low * high)
    if high < math.inf:
        return high
    raise NoSuchPlan(
        "this plan exceeds its budget whatever the noise on its sums over samples: request fewer "
        "sums, or increase the budget"
    )


def _planned(
    stages: Sequence[Stage], multipliers: Sequence[float], budget: Filter, *, runs: int
) -> float:
    """Return ε of a plan with Gaussian noise: integer steps so fine that the gap vanishes."""
    releases = [
        Release(
            statistic="planned",
            part=stage.part or "all rows",
            dealing=_DEALING if stage.part else b"",
            multiplier=z,
            sums=stage.sums * runs,
            sampling_rate=stage.sampling_rate,
            dimension=1,
            share_deviation=1 << 62,
            honest=1,
        )
        for stage, z in zip(stages, multipliers, strict=True)
    ]
    return budget.spent(releases).epsilon
