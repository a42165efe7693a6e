"""A program's stages as the accountant sees them: planned, promised before a run, released in it.

What a stage sums is declared in another package (`kernels.rounds.plan`); here only a protocol for
it is known. Coordinator and site both use these functions, so that both compute the same numbers.
"""

from collections.abc import Sequence
from typing import Protocol

from privacy.accounting.events import Release
from privacy.accounting.planning import Stage, multipliers
from privacy.encoding import Encoding
from privacy.errors import AccountingError

_FREE = 1.0
"""The multiplier of a stage that sums nothing; the value is not used."""
_DIMENSION = 1 << 16


class Planned(Protocol):
    """At most `sums` sums of at most `numbers` numbers over one part of the tables."""

    @property
    def algorithm(self) -> str:
        """The algorithm's name and version."""

    @property
    def part(self) -> str:
        """The part of the rows that it reads."""

    @property
    def dealt(self) -> bool:
        """Whether each unit is in exactly one part."""

    @property
    def sums(self) -> int:
        """The number of sums; 0 if the stage costs nothing."""

    @property
    def numbers(self) -> int:
        """The number of elements of a sum."""

    @property
    def multiplier(self) -> float:
        """The noise of a sum divided by what one unit can change in it."""

    @property
    def sampling_rate(self) -> float:
        """The probability that a unit is in a sum."""

    @property
    def noise_share(self) -> float:
        """The stage's share of what its part may spend, relative to other stages."""


class Plan(Protocol):
    """A run's stages, and 32 bytes that name how its tables are dealt into parts."""

    @property
    def stages(self) -> Sequence[Planned]:
        """In order."""

    @property
    def dealing(self) -> bytes:
        """Equal for two runs only if every unit is in the same part in both."""


def planned_noise(
    stages: Sequence[Planned],
    *,
    epsilon: float,
    delta: float,
    runs: int = 1,
    shares: Sequence[float] | None = None,
) -> tuple[float, ...]:
    """Return the multiplier of every stage with which `runs` runs cost (ε, δ).

    shares: how the stages divide what their part may spend; by default as they declare it.
    """
    if shares is None:
        shares = [stage.noise_share for stage in stages]
    if len(shares) != len(stages):
        raise AccountingError(
            f"`shares` must have one number per stage: {len(stages)}, not {len(shares)}"
        )
    costly = [
        Stage(
            part=str(stage.part) if stage.dealt else "",
            sums=stage.sums,
            share=share,
            sampling_rate=stage.sampling_rate,
        )
        for stage, share in zip(stages, shares, strict=True)
        if stage.sums
    ]
    found = iter(multipliers(costly, epsilon=epsilon, delta=delta, runs=runs))
    return tuple(next(found) if stage.sums else _FREE for stage in stages)


def promised(plan: Plan, *, honest: int) -> tuple[Release, ...]:
    """Return the most that a run by this plan releases, if no sum has to be repeated."""
    return tuple(
        Release.planned(
            multiplier=stage.multiplier,
            honest=honest,
            statistic=stage.algorithm,
            part=str(stage.part),
            sums=stage.sums,
            sampling_rate=stage.sampling_rate,
            dealing=plan.dealing if stage.dealt else b"",
            dimension=max(stage.numbers, _DIMENSION),
        )
        for stage in plan.stages
        if stage.sums
    )


def released(plan: Plan, encoding: Encoding, *, stage: int, honest: int) -> Release:
    """Return what one sum of a stage releases, with the noise that its encoding will draw."""
    own = plan.stages[stage]
    return Release.of(
        encoding,
        honest=honest,
        statistic=own.algorithm,
        part=str(own.part),
        sampling_rate=own.sampling_rate,
        dealing=plan.dealing if own.dealt else b"",
    )
