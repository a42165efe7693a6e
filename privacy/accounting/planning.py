"""How much noise makes a plan cost what may be spent.

A run's stages ask for sums over parts of the tables. Each part has units of its own, so each may
spend the whole (ε, δ); the stages within a part divide it. In Gaussian terms (ε, δ) is one number,
μ, and what is divided is μ²: with shares a_i of stages of n_i sums,

    1/z_i² = μ²·(a_i/Σa)/(n_i·runs).

A stage over all rows, whose part is empty, is in every part: what it spends is taken from each.

Sums over Poisson samples have no such number. Each such stage starts from the z at which it alone
costs what a Gaussian with its part of μ² would; then the z of all such stages are moved together to
where the parts that have them cost ε.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import final

from privacy.accounting import gaussian
from privacy.accounting.cost import cost
from privacy.accounting.events import Release
from privacy.errors import AccountingError, NoSuchPlan

_RESERVE = 2.0**-12
"""The part of ε and δ that is left for the gap between integer shares and a Gaussian."""
_DIGITS = Context(prec=4, rounding=ROUND_CEILING)
_MOST = 1e6
"""The greatest multiplier that an encoding takes."""
_DEALING = b"planned"
_SEARCHED = 2.0**-10
_SECANTS = 8
_MOST_TRIES = 40


@final
@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of a plan: `sums` sums over `part`, and its share of what that part may spend.

    part: empty for a stage over all rows.
    """

    part: str
    sums: int = 1
    share: float = 1.0
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        if type(self.part) is not str:
            raise AccountingError("a stage's part is a text, empty for all rows")
        if type(self.sums) is not int or not 1 <= self.sums <= 10**6:
            raise AccountingError(f"a stage has 1 to 10⁶ sums, not {self.sums!r:.40}")
        if type(self.share) not in (int, float) or not 1e-9 <= self.share <= 1e9:
            raise AccountingError(f"a stage's share is a positive number, not {self.share!r:.40}")
        rate = self.sampling_rate
        if type(rate) not in (int, float) or not 1e-12 <= rate <= 1:
            raise AccountingError(f"a sampling rate is from 0 to 1, not {rate!r:.40}")


def multipliers(
    stages: Sequence[Stage], *, epsilon: float, delta: float, runs: int = 1
) -> tuple[float, ...]:
    """Return z of every sum of each stage, rounded up to four digits.

    `runs` such runs together cost at most (ε, δ), and the dearest part of a run nearly that.

    >>> multipliers([Stage(part="training")], epsilon=1.0, delta=1e-5)
    (3.732,)
    """
    if type(epsilon) not in (int, float) or not 1e-6 <= epsilon <= 1e3:
        raise AccountingError(f"ε is a number from 1e-6 to 1000, not {epsilon!r:.40}")
    if type(delta) is not float or not 1e-15 <= delta < 1:
        raise AccountingError(f"δ is a number from 1e-15 to 1, not {delta!r:.40}")
    if type(runs) is not int or not 1 <= runs <= 10**6:
        raise AccountingError(f"a budget is for 1 to 10⁶ runs, not {runs!r:.40}")
    if not stages:
        return ()
    target, usable = epsilon * (1 - _RESERVE), delta * (1 - _RESERVE)
    whole = gaussian.most_mu(target, usable) / math.sqrt(runs)
    found = [
        _alone(stage, whole * math.sqrt(fraction), delta=usable)
        for stage, fraction in zip(stages, _fractions(stages), strict=True)
    ]
    if any(stage.sampling_rate < 1 for stage in stages):
        factor = _factor(stages, found, epsilon=target, delta=usable, runs=runs)
        found = _moved(stages, found, factor)
    rounded = tuple(float(_DIGITS.create_decimal(Decimal(z))) for z in found)
    if max(rounded) > _MOST:
        raise NoSuchPlan(
            f"these stages need a noise multiplier of {max(rounded):g} to stay within ε = "
            f"{epsilon:g} and δ = {delta:g}, and {_MOST:g} is the most: ask for fewer sums, or "
            "spend more"
        )
    return rounded


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


def _alone(stage: Stage, mu: float, *, delta: float) -> float:
    """Return z at which a stage alone costs what μ-Gaussian privacy does."""
    plain = math.sqrt(stage.sums) / mu
    if stage.sampling_rate == 1:
        return plain
    # A hundredth is a start: less than that the numerical accountant cannot tell apart.
    target = max(gaussian.epsilon(mu, delta), 0.01)
    # Many sums over small samples are nearly Gaussian, with q/z in the place of 1/z.
    near = plain * max(stage.sampling_rate, 2.0**-6)
    return _least(lambda z: _planned([stage], [z], runs=1, delta=delta), target, near)


def _factor(
    stages: Sequence[Stage], found: Sequence[float], *, epsilon: float, delta: float, runs: int
) -> float:
    """Return by how much the z of sampled stages are to be multiplied."""
    parts = {"", *(stage.part for stage in stages if stage.sampling_rate < 1)}
    if any(stage.sampling_rate < 1 and not stage.part for stage in stages):
        parts |= {stage.part for stage in stages}
    affected = [i for i, stage in enumerate(stages) if stage.part in parts]

    def spent(factor: float) -> float:
        moved = _moved(stages, found, factor)
        chosen = [stages[i] for i in affected], [moved[i] for i in affected]
        return _planned(*chosen, runs=runs, delta=delta)

    return _least(spent, epsilon, 1.0)


def _moved(stages: Sequence[Stage], found: Sequence[float], factor: float) -> list[float]:
    return [
        z * factor if stage.sampling_rate < 1 else z for stage, z in zip(stages, found, strict=True)
    ]


def _least(spent: Callable[[float], float], target: float, near: float) -> float:
    """Return where a decreasing function comes to the target, or hardly below, by secants.

    On logarithmic scales it is nearly a straight line: ε is about proportional to 1/z. Where it is
    not, as other stages spend most, large steps and halving come to an end too.
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
    raise NoSuchPlan("no noise on its sums over samples keeps this plan within its budget")


def _planned(
    stages: Sequence[Stage], multipliers: Sequence[float], *, runs: int, delta: float
) -> float:
    """Return ε of a plan with Gaussian noise: shares as fine as integers can be."""
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
    return cost(releases, delta=delta).epsilon
