"""What a run of each kind computes, given the program of its session.

    train      the session's program
    linear     its linear layer and what judges it, from a model's kernel
    evaluate   its evaluation, of a model
    update     rows added to and removed from a model, and what judges it

Coordinator and hospital both derive a run's program from the session's here, so that a coordinator
has nothing to choose: a hospital compares what it is sent with what it has derived itself.

With differential privacy each run has noise multipliers of its own, whose cost both ledgers know;
all else that privacy means is the session's.
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
    """A run's program, and of each of its stages which of the session's it is, if any."""

    program: Program
    origins: tuple[int | None, ...]


def program_of(kind: Kind, session: Program) -> RunProgram:
    """Return the program of a run of a kind: the session's own stages, as far as it has them.

    With differential privacy the multipliers are the session's, and 1 where it has no such stage.
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
    """Return a program as it is but for how much noise its sums have."""
    if program.privacy is None:
        return program
    same = (1.0,) * len(program.stages)
    return replace(program, privacy=replace(program.privacy, multipliers=same))


@dataclass(frozen=True)
class _Stage:
    """A stage of a run: the session's at an index, with what it needs and makes, or another."""

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
