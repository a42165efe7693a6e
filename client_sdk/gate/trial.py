"""A trial: every stage of a program is computed once over given rows, and forgotten.

    state → the site's numbers → encoded → added to those of made-up rows → the next state → …

There are two uses. Over the site's own rows, before it enters a run, a trial finds what would fail
there: afterwards no failure may be told from outside (docs/threats.md A24). Over made-up rows it
measures how long a stage takes (`answer_times`). Nothing is sent, and nothing is kept.

A trial takes as few sums as there are kinds of sums: stages are shortened to one step or round, and
students to one epoch, none of which changes what one sum costs a site. A program that starts from
an earlier model is tried with a model of made-up rows.

A program that chooses its kernel is tried with all of them: in the stage that chooses, none leaves
before the end, and the stages after it are tried with each in turn, and with the same once more
beside it where two may be mixed: no other two take longer. So are those of a run that starts from a
model whose kernel was chosen.

What fails in an update, which is the coordinator's part, ends the trial, or the trial with that
kernel: it says nothing about the site.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from kernels import storage
from kernels.errors import ComputationFailed
from kernels.model.model import Model
from kernels.model.second import Second
from kernels.rounds import position as positions
from kernels.rounds.algorithm import Rehearsed, computing, rehearsed
from kernels.rounds.broadcast import received
from kernels.rounds.columns import moments
from kernels.rounds.declaration import Before, Made
from kernels.rounds.ensemble import predictive
from kernels.rounds.judging import recalibration
from kernels.rounds.layer import linear, outcomes
from kernels.rounds.plan import declared, models_after_choice
from kernels.rounds.position import Position
from kernels.rounds.program import Program
from kernels.rounds.registry import algorithm_of
from kernels.rounds.shared.public_set import columns_of
from kernels.rounds.site.made_up import made_up_site
from kernels.rounds.site.site import Site
from kernels.rounds.task import noise_multiplier
from kernels.tables.made_up import made_up_rows
from privacy.encoding import Encoding
from privacy.layout import SecureTotal

SiteOf = Callable[[Model], Site]
"""Returns the site to try, given the model so far."""

_OTHERS = 64
"""Made-up rows in every part that are summed with the site's own, so that updates have enough."""
_PUBLIC = 8
_SHORTER: dict[str, Any] = {
    "steps": 1,
    "rounds": 1,
    "sums": 1,
    "private_sums": 1,
    "draws": 1,
    "distillation_epochs": 1,
    "distillation_steps": 1,
    "all_finish": True,
}
"""Parameters that determine how many sums or updates there are, and not what a sum costs a site."""
_GRIDS = ("penalties", "alphas")


@dataclass(frozen=True)
class TriedSum:
    """One sum of a trial. seconds: how long it took to compute it from the rows."""

    stage: int
    seconds: float


def tried(
    program: Program, site_of: SiteOf, *, clock: Callable[[], float] = time.monotonic
) -> Iterator[TriedSum]:
    """Try every stage of a program; raise `ComputationFailed` if a site could not answer a sum.

    The message names the stage. The trial ends early, without an error, if an update fails.
    """
    for part in _parts(program):
        try:
            position = positions.start(part.program, _earlier_model(part.program, part.second))
            while not position.stage_finished:
                stage = part.stages[position.stage]
                ready, site = _ready(position), site_of(position.state.model)
                began = clock()
                own = _vector(position, ready, site, stage)
                yield TriedSum(stage, clock() - began)
                position = _after(position, ready, own, part.second)
        except _UpdateFailed:
            continue


@dataclass(frozen=True)
class _TrialPart:
    """Some stages of a program, shortened.

    stages: the numbers that they have in the whole one. second: a kernel that is mixed with the
    program's in all stages after the standardiser.
    """

    program: Program
    stages: tuple[int, ...]
    second: Second | None = None


def _parts(program: Program) -> Iterator[_TrialPart]:
    """Yield programs that together have every stage with every kernel that it can meet."""
    numbers = tuple(range(len(program.stages)))
    short = replace(program, stages=tuple(map(_shortened, program.stages)))
    choosing = [n for n, own in enumerate(declared(short)) if Made.CHOICE in own.makes]
    if choosing:
        until = numbers[: choosing[0] + 1]
        yield _TrialPart(replace(short, stages=short.stages[: len(until)]), until)
        if until == numbers:
            return
        numbers = tuple(n for n in numbers if n != choosing[0])
        short = replace(short, stages=tuple(short.stages[n] for n in numbers))
    for model in tuple(models_after_choice(program)) or (program.start(),):
        yield _TrialPart(replace(short, kernel=model.kernel, choices=()), numbers, model.second)


class _UpdateFailed(Exception):
    """The coordinator's part of a trial failed."""


def _ready(position: Position) -> Rehearsed:
    """Return the state as a site gets it."""
    with _updating():
        data = storage.encode(position.state)
        seen = received(data, position.program, position.stage)
        return rehearsed(position.algorithm, seen)


def _encoding(position: Position, ready: Rehearsed) -> Encoding:
    multiplier = noise_multiplier(position.program, position.stage)
    return Encoding.of_sum(ready.layout, multiplier=multiplier, honest=2, members=2)


def _vector(position: Position, ready: Rehearsed, site: Site, stage: int | None = None) -> Any:
    failed: list[ComputationFailed] = []
    encoding = _encoding(position, ready)
    silent = np.zeros(encoding.layout.length, dtype="<i8") if encoding.share_deviations else None
    try:
        with computing("the numbers cannot be sent"):
            vector = encoding.encode(ready.contributed(site, failed.append), noise=silent)
    except ComputationFailed as error:
        failed.append(error)
    if failed:
        number = position.stage if stage is None else stage
        where = f"stage {number + 1}, {position.algorithm.NAME}"
        raise ComputationFailed(f"{where}: {failed[0]}") from failed[0]
    return vector


def _after(position: Position, ready: Rehearsed, own: Any, second: Second | None) -> Position:
    with _updating():
        others = _vector(position, ready, made_up_site(position.state.model, _OTHERS))
        total: SecureTotal = _encoding(position, ready).decode(own + others, contributors=2)
        return positions.settled(_with_second(positions.updated(position, total), second))


def _with_second(position: Position, second: Second | None) -> Position:
    """Return a position with a second kernel in its model, once there is a standardiser."""
    model, state = position.state.model, position.state
    begins = position.stage_finished and model.standardiser is not None and model.statistics is None
    if second is None or model.second is not None or not begins:
        return position
    return replace(position, state=replace(state, model=model.advanced(second=second)))


def _earlier_model(program: Program, second: Second | None) -> Model | None:
    """Return a model of made-up rows that has what the first stage needs from an earlier run."""
    before = Before(model=program.start(), students=frozenset())
    spec = program.stages[0]
    needs = algorithm_of(spec).declare(spec, before).needs
    if not needs:
        return None
    stages: list[Any] = [moments.Spec()]
    if Made.STUDENTS in needs:
        table = made_up_rows(program.schema, _PUBLIC)
        names = [column.name for column in program.schema.numeric]
        public = dict(zip(names, table.numeric.mT.tolist(), strict=True))
        for labels, codes in zip(program.schema.categorical, table.levels.mT, strict=True):
            public[labels.name] = [labels.levels[max(code, 0)] for code in codes.tolist()]
        stages.append(predictive.Spec(public=columns_of(public), distillation_epochs=1))
    if program.schema.real and needs & {Made.LAYER, Made.CENTRE, Made.RECALIBRATION}:
        stages.append(linear.Spec())
    if program.schema.outcomes and needs & {Made.LAYER, Made.OUTCOMES, Made.RECALIBRATION}:
        stages.append(outcomes.Spec(sums=1))
    if Made.RECALIBRATION in needs:
        stages.append(recalibration.Spec(min_rows=1))
    privacy = program.privacy
    if privacy is not None:
        privacy = replace(privacy, multipliers=(1.0,) * len(stages))
    with _updating():
        position = positions.start(replace(program, stages=tuple(stages), privacy=privacy), None)
    while not position.stage_finished:
        ready = _ready(position)
        with _updating():
            own = _vector(position, ready, made_up_site(position.state.model, _OTHERS))
        position = _after(position, ready, own, second)
    model: Model = position.state.model
    return model


def _shortened(spec: Any) -> Any:
    names = {field.name for field in fields(spec)}
    shorter = {name: value for name, value in _SHORTER.items() if name in names}
    for name in names:  # such as the recipes of a search
        own = getattr(spec, name)
        if isinstance(own, tuple) and own and all(is_dataclass(each) for each in own):
            shorter[name] = tuple(map(_shortened, own))
    shorter |= {name: getattr(spec, name)[:1] for name in _GRIDS if name in names}
    return replace(spec, **shorter)


@contextmanager
def _updating() -> Iterator[None]:
    """Turn any failure in the block into `_UpdateFailed`."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise _UpdateFailed from error
