"""The next sum of a run, which follows from its position (`kernels.rounds.position`)."""

from dataclasses import dataclass

from kernels.rounds.plan import release_plan
from kernels.rounds.position import Position
from kernels.rounds.task import noise_multiplier, statistic_of, task_parameters
from privacy.accounting.events import Release
from privacy.accounting.promises import released
from privacy.encoding import Encoding


@dataclass(frozen=True)
class SumPlan:
    """The task of a sum without its participants; with noise, also the release that is charged.

    state, encoding: the digests of the state and of the encoding, which every member derives.
    """

    statistic: str
    parameters: bytes
    state: bytes
    encoding: bytes
    length: int
    release: Release | None


def encoding_of(position: Position, *, members: int, honest: int) -> Encoding:
    """Return the encoding of the sum at a position, which every member derives in the same way."""
    return Encoding.of_sum(
        position.algorithm.layout(position.state),
        multiplier=noise_multiplier(position.program, position.stage),
        honest=honest,
        members=members,
    )


def sum_plan(
    position: Position,
    *,
    program: str,
    run_kind: str,
    parent: str | None,
    members: int,
    honest: int,
) -> SumPlan:
    """Return the next sum, which every member can derive itself from the program and the state.

    program: the SHA-256 of the run's program text. parent: the id of the model that the run starts
    from. honest: the number of members whose noise must
    suffice, if there is noise.
    """
    run = position.program
    encoding = encoding_of(position, members=members, honest=honest)
    release = None
    if run.privacy is not None:
        plan = release_plan(run)
        release = released(plan, encoding, stage=position.stage, honest=honest)
    parameters = task_parameters(
        program=program,
        run_kind=run_kind,
        parent=parent,
        stage=position.stage,
        sum_index=position.sum_index,
    )
    return SumPlan(
        statistic=statistic_of(position.algorithm),
        parameters=parameters,
        state=position.digest,
        encoding=encoding.digest(),
        length=encoding.layout.length,
        release=release,
    )
