"""A program's stages as an accountant sees them: planned, promised before a run, released in it.

What a stage sums is plain data of another room (`kernels.rounds.plan`), known here by its
shape only. Coordinator and site both go through these functions, so that both say the same.
"""

from collections.abc import Sequence
from typing import Protocol

from privacy.accounting.events import Release
from privacy.accounting.planning import Stage, multipliers
from privacy.encoding import Encoding
from privacy.errors import AccountingError

_FREE = 1.0
"""The multiplier of a stage that sums nothing: any would do."""
_DIMENSION = 1 << 16


class Planned(Protocol):
    """At most `sums` sums of at most `numbers` numbers over one part of the tables."""

    @property
    def algorithm(self) -> str:
        """Its name and version."""

    @property
    def part(self) -> str:
        """Whose rows it reads."""

    @property
    def dealt(self) -> bool:
        """Whether each unit is in one such part only."""

    @property
    def sums(self) -> int:
        """None where the stage is free."""

    @property
    def numbers(self) -> int:
        """Elements of a sum."""

    @property
    def multiplier(self) -> float:
        """Noise of a sum over what one unit can change in it."""

    @property
    def sampling_rate(self) -> float:
        """The chance of a unit to be in a sum."""

    @property
    def noise_share(self) -> float:
        """How much it asks for of what its part may spend, relative to other stages."""


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
    """Return the multiplier of every stage with which so many runs cost (ε, δ).

    shares: how stages divide what their part may spend; by default as they declare.
    """
    if shares is None:
        shares = [stage.noise_share for stage in stages]
    if len(shares) != len(stages):
        raise AccountingError(f"{len(stages)} stages need as many shares, not {len(shares)}")
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
    """Return the most that a run by this plan releases, if no sum is lost."""
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
    """Return what one sum of a stage releases, by what its encoding says will be drawn."""
    own = plan.stages[stage]
    return Release.of(
        encoding,
        honest=honest,
        statistic=own.algorithm,
        part=str(own.part),
        sampling_rate=own.sampling_rate,
        dealing=plan.dealing if own.dealt else b"",
    )
