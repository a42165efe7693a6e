"""What a run of each kind computes, given the session's program.

    train      the session's program
    linear     its linear layer and the stages that evaluate it, using a model's kernel
    evaluate   its evaluation, applied to a model
    update     adding rows to and removing rows from a model, and the stages that evaluate it

The coordinator and the hospitals both use this module to derive a run's program from the session's,
so a coordinator has no choice: a hospital compares what it receives with what it derived itself.

With differential privacy, each run has its own noise multipliers, whose cost is recorded in both
ledgers; all other privacy settings are the session's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from kernels.errors import ProgramError
from kernels.rounds.declaration import Made
from kernels.rounds.judging import evaluation
from kernels.rounds.layer import update
from kernels.rounds.plan import declared
from kernels.rounds.program import Program


class Kind(StrEnum):
    """What a run is for."""

    TRAIN = "train"
    LINEAR = "linear"
    EVALUATE = "evaluate"
    UPDATE = "update"


@dataclass(frozen=True)
class RunProgram:
    """A run's program, and for each of its stages the index of the session's stage, or None."""

    program: Program
    origins: tuple[int | None, ...]


def program_of(kind: Kind, session: Program) -> RunProgram:
    """Return the program for a kind of run, using the session's own stages where they exist.

    With differential privacy, the multipliers are the session's, or 1 for a stage that the session
    does not have.
    """
    if kind is Kind.TRAIN:
        return RunProgram(session, tuple(range(len(session.stages))))
    stages = _stages(session)
    judging = [each for each in stages if each.makes & {Made.RECALIBRATION, Made.SCORES}]
    match kind:
        case Kind.LINEAR:
            chosen = [each for each in stages if Made.LAYER in each.makes - each.needs]
            if not chosen:
                raise ProgramError("the session's program has no linear layer to run alone")
            chosen += judging
        case Kind.EVALUATE:
            chosen = [each for each in stages if Made.SCORES in each.makes]
            if not chosen:
                recalibrated = any(Made.RECALIBRATION in each.makes for each in stages)
                chosen = [_Stage(None, evaluation.Spec(recalibrated=recalibrated))]
        case Kind.UPDATE:
            chosen = [each for each in stages if Made.LAYER in each.makes & each.needs]
            chosen = (chosen or [_Stage(None, update.Spec())]) + judging
    return _program(session, chosen)


def besides_noise(program: Program) -> Program:
    """Return the program with all noise multipliers set to 1, to compare everything else."""
    if program.privacy is None:
        return program
    same = (1.0,) * len(program.stages)
    return replace(program, privacy=replace(program.privacy, multipliers=same))


@dataclass(frozen=True)
class _Stage:
    """A stage of a run: the session's stage at index `origin`, or another if `origin` is None."""

    origin: int | None
    spec: Any
    needs: frozenset[Made] = frozenset()
    makes: frozenset[Made] = frozenset()


def _stages(session: Program) -> list[_Stage]:
    return [
        _Stage(index, spec, own.needs, own.makes)
        for index, (spec, own) in enumerate(zip(session.stages, declared(session), strict=True))
    ]


def _program(session: Program, chosen: Sequence[_Stage]) -> RunProgram:
    privacy = session.privacy
    if privacy is not None:
        noise = (
            1.0 if each.origin is None else privacy.multipliers[each.origin] for each in chosen
        )
        privacy = replace(privacy, multipliers=tuple(noise))
    program = replace(session, stages=tuple(each.spec for each in chosen), privacy=privacy)
    return RunProgram(program, tuple(each.origin for each in chosen))
