"""The noise of a program, planned from a budget: by the coordinator, and in a simulation.

What a plan costs is counted by an accountant in another package, so it is an argument here: a
function from what the stages release to their multipliers (`planned_noise` of the accounting).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from kernels.errors import ProgramError
from kernels.model.noise_plan import NoisePlan
from kernels.rounds.plan import Planned, planned
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind, adds_stage, program_of


class Noise(Protocol):
    """An accountant that knows what may be spent."""

    def __call__(
        self, stages: Sequence[Planned], *, shares: Sequence[float] | None = None
    ) -> tuple[float, ...]:
        """Return the multiplier of every stage with which all of them cost what may be spent."""


def with_noise(
    program: Program,
    noise: Noise,
    *,
    max_rows_per_patient: int = 1,
    target_clip: float = NoisePlan.target_clip,
    shares: Sequence[float] | None = None,
) -> Program:
    """Return a program with planned noise; refuse one with a stage that has no private form.

    Whether a stage has a private form does not depend on the noise, so it is checked first, with a
    multiplier of 1 for every stage.

    shares: how stages over the same part divide the budget; by default as they declare it.
    """
    privacy = NoisePlan(
        multipliers=(1.0,) * len(program.stages),
        max_rows_per_patient=max_rows_per_patient,
        target_clip=target_clip,
    )
    stages = planned(replace(program, privacy=privacy))
    privacy = replace(privacy, multipliers=noise(stages, shares=shares))
    return replace(program, privacy=_with_added_stages(program, privacy, noise))


def _with_added_stages(program: Program, privacy: NoisePlan, noise: Noise) -> NoisePlan:
    """Return the noise plan with the noise of stages that only later runs have.

    Such a stage has the noise it would have if the whole budget were spent on it in the planned
    number of runs. Without a private form there is no such run.
    """
    draft = replace(program, privacy=replace(privacy, evaluate=1.0, update=1.0))
    for kind in (Kind.EVALUATE, Kind.UPDATE):
        if not adds_stage(kind, draft):
            continue
        try:
            first, *_ = planned(program_of(kind, draft))
        except ProgramError:
            continue
        (multiplier,) = noise([first])
        if kind is Kind.EVALUATE:
            privacy = replace(privacy, evaluate=multiplier)
        else:
            privacy = replace(privacy, update=multiplier)
    return privacy
