"""What a run of each kind computes, given the session's program.

    train      the session's program
    linear     its layers, of real targets and of outcomes, and the stages that evaluate them, using
               a model's kernel
    evaluate   its evaluation, applied to a model
    update     adding rows to and removing rows from a model, and the stages that evaluate it

The coordinator and the hospitals both use this module to derive a run's program from the session's,
so a coordinator has no choice: a hospital compares what it receives with what it derived itself.
With differential privacy this includes the noise: every multiplier is in the session's program.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from kernels.errors import ProgramError
from kernels.rounds.declaration import Made
from kernels.rounds.judging import evaluation
from kernels.rounds.layer import update
from kernels.rounds.order.stage_order import left
from kernels.rounds.plan import declared
from kernels.rounds.program import Program


class Kind(StrEnum):
    """What a run is for."""

    TRAIN = "train"
    LINEAR = "linear"
    EVALUATE = "evaluate"
    UPDATE = "update"


def program_of(kind: Kind, session: Program) -> Program:
    """Return the program for a kind of run, using the session's own stages where they exist."""
    if kind is Kind.TRAIN:
        return session
    stages = _stages(session)
    judging = [each for each in stages if each.makes & {Made.RECALIBRATION, Made.SCORES}]
    match kind:
        case Kind.LINEAR:
            chosen = _own(kind, stages)
            if not chosen:
                raise ProgramError("the session's program has no linear layer to run alone")
            chosen += judging
        case Kind.EVALUATE:
            chosen = _own(kind, stages)
            if not chosen:
                recalibrated = any(Made.RECALIBRATION in each.makes for each in stages)
                chosen = [_added(kind, evaluation.Spec(recalibrated=recalibrated), session)]
        case Kind.UPDATE:
            chosen = _own(kind, stages) or [_added(kind, update.Spec(), session)]
            chosen += judging
    privacy = session.privacy
    if privacy is not None:
        privacy = replace(privacy, multipliers=tuple(each.multiplier for each in chosen))
    program = replace(session, stages=tuple(each.spec for each in chosen), privacy=privacy)
    # The model that it starts from is one that this session's program has made.
    program.check_start(left(session.steps()))
    return program


def adds_stage(kind: Kind, session: Program) -> bool:
    """Return whether a run of this kind begins with a stage that the session's program lacks."""
    return kind in (Kind.EVALUATE, Kind.UPDATE) and not _own(kind, _stages(session))


@dataclass(frozen=True)
class _Stage:
    """A stage of a run, with its noise multiplier if it is private."""

    spec: Any
    multiplier: float = 1.0
    needs: frozenset[Made] = frozenset()
    makes: frozenset[Made] = frozenset()


def _stages(session: Program) -> list[_Stage]:
    privacy = session.privacy
    noise = (1.0,) * len(session.stages) if privacy is None else privacy.multipliers
    return [
        _Stage(spec, multiplier, own.needs, own.makes)
        for spec, multiplier, own in zip(session.stages, noise, declared(session), strict=True)
    ]


_LAYERS = {Made.LAYER, Made.OUTCOMES}


def _own(kind: Kind, stages: list[_Stage]) -> list[_Stage]:
    """Return the session's stages that a kind of run is for."""
    match kind:
        case Kind.LINEAR:
            makes = {*_LAYERS, Made.COMPLETION}
            return [each for each in stages if makes & (each.makes - each.needs)]
        case Kind.EVALUATE:
            return [each for each in stages if Made.SCORES in each.makes]
        case Kind.UPDATE:
            return [each for each in stages if _LAYERS & each.makes & each.needs]
        case Kind.TRAIN:
            return stages


def _added(kind: Kind, spec: Any, session: Program) -> _Stage:
    """Return the stage of a kind of run that the session's program does not have."""
    if session.privacy is None:
        return _Stage(spec)
    multiplier = session.privacy.evaluate if kind is Kind.EVALUATE else session.privacy.update
    if multiplier is None:
        raise ProgramError(
            f"the session states no noise for a run of kind {kind}: include its stage in the "
            "program of a new session"
        )
    return _Stage(spec, multiplier)
