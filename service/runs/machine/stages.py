"""A run's position in its program, and its next sum; all functions are pure and slow.

    start → (a sum's total → the state after it)* → the last stage's model

The numbers equal those of `client_sdk.simulate`, which calls the same functions in the same order.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from kernels import storage
from kernels.model.model import Model
from kernels.rounds.algorithm import Algorithm
from kernels.rounds.plan import release_plan
from kernels.rounds.program import Program
from kernels.rounds.registry import algorithm_of
from kernels.rounds.task import noise_multiplier, statistic_of, task_parameters
from privacy.accounting.events import Release
from privacy.accounting.promises import released
from privacy.encoding import Encoding
from privacy.layout import SecureTotal

MOST_WITH_A_TASK = 1 << 20
"""Most bytes of a broadcast that is sent with the task, which saves each member a request."""

Metrics = Mapping[str, Any]
"""Metrics of one step of an algorithm, over all sites together."""


@dataclass(frozen=True, eq=False)
class Position:
    """The index of a stage of the program, and the state of its algorithm.

    The state is finished only at the end of the last stage.
    """

    program: Program
    stage: int
    state: Any

    @property
    def algorithm(self) -> Algorithm:
        """The stage's algorithm."""
        return algorithm_of(self.program.stages[self.stage])

    @property
    def finished(self) -> bool:
        """Whether the program is finished; `state.model` is then its result."""
        return self.algorithm.finished(self.state)


@dataclass(frozen=True)
class SumPlan:
    """The task of a sum without its participants; with noise, also the release that is charged."""

    statistic: str
    parameters: bytes
    encoding: bytes
    length: int
    broadcast: "Broadcast"
    release: Release | None


@dataclass(frozen=True)
class Broadcast:
    """The part of a state that hospitals receive."""

    data: bytes = b""

    @cached_property
    def address(self) -> str:
        """The SHA-256 under which it is downloaded."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def text(self) -> str | None:
        """The broadcast in base64, to be sent with a task; None if it must be downloaded."""
        return base64.b64encode(self.data).decode() if len(self.data) <= MOST_WITH_A_TASK else None


def start(program: Program, model: Model | None) -> Position:
    """Return the start of a program, from an earlier model if it needs one."""
    algorithm, spec = next(program.algorithms())
    return _settled(Position(program, 0, algorithm.initial(spec, program.start(model))))


def after(position: Position, total: SecureTotal) -> tuple[Position, tuple[Metrics, ...]]:
    """Return the position after a sum's total, and the metrics of the step, if any."""
    algorithm = position.algorithm
    known = len(_history(position.state))
    state = algorithm.update(position.state, total)
    told = tuple(
        {"stage": position.stage, "algorithm": algorithm.NAME, **asdict(each)}
        for each in _history(state)[known:]
    )
    return _settled(Position(position.program, position.stage, state)), told


def sum_plan(
    position: Position, *, program: str, run_kind: str, seed: int, members: int, honest: int
) -> SumPlan:
    """Return the next sum, which every member can derive itself from the program and the state.

    program: the SHA-256 of the run's program text. honest: the number of members whose noise must
    suffice, if there is noise.
    """
    algorithm, run = position.algorithm, position.program
    encoding = Encoding.of_sum(
        algorithm.layout(position.state),
        multiplier=noise_multiplier(run, position.stage),
        honest=honest,
        members=members,
    )
    release = None
    if run.privacy is not None:
        plan = release_plan(run, seed)
        release = released(plan, encoding, stage=position.stage, honest=honest)
    parameters = task_parameters(
        program=program, run_kind=run_kind, seed=seed, stage=position.stage
    )
    return SumPlan(
        statistic=statistic_of(algorithm),
        parameters=parameters,
        encoding=encoding.to_bytes(),
        length=encoding.layout.length,
        broadcast=Broadcast(storage.encode(position.state, broadcast=True)),
        release=release,
    )


def _history(state: Any) -> Sequence[Any]:
    return getattr(state, "history", None) or ()


def _settled(position: Position) -> Position:
    """Advance to the next stage that needs a sum, or to the end."""
    program = position.program
    while position.finished and position.stage + 1 < len(program.stages):
        stage = position.stage + 1
        spec = program.stages[stage]
        state = algorithm_of(spec).initial(spec, position.state.model)
        position = Position(program, stage, state)
    return position
