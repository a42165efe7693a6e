"""Where a run is in its program, and the next sum that it asks for; all of it pure, and slow.

    start → (a sum's total → the state after it)* → the last stage's model

The numbers are those of `client_sdk.simulate`: the same functions in the same order.
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
"""Octets of a broadcast that goes with the task, which spares each member a request."""

Metrics = Mapping[str, Any]
"""One step of an algorithm in numbers, of all sites together."""


@dataclass(frozen=True, eq=False)
class Position:
    """A stage of the program by its index, and the state of its algorithm.

    Only at the end of the last stage is that state a finished one.
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
        """Whether the program is: then `state.model` is its result."""
        return self.algorithm.finished(self.state)


@dataclass(frozen=True)
class SumPlan:
    """What a task says of a sum, but for who takes part; with noise, what it is charged as."""

    statistic: str
    parameters: bytes
    encoding: bytes
    length: int
    broadcast: "Broadcast"
    release: Release | None


@dataclass(frozen=True)
class Broadcast:
    """What hospitals see of a state."""

    data: bytes = b""

    @cached_property
    def address(self) -> str:
        """The name under which it is fetched: its SHA-256."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def text(self) -> str | None:
        """All of it in base64, to go with a task; None if it is large, and is fetched."""
        return base64.b64encode(self.data).decode() if len(self.data) <= MOST_WITH_A_TASK else None


def start(program: Program, model: Model | None) -> Position:
    """Begin the program, from an earlier one's model where it needs one."""
    algorithm, spec = next(program.algorithms())
    return _settled(Position(program, 0, algorithm.initial(spec, program.start(model))))


def after(position: Position, total: SecureTotal) -> tuple[Position, tuple[Metrics, ...]]:
    """Take a sum's total into account; give also what the algorithm tells of its step, if any."""
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
    """Give the next sum, as every member can work it out again from the program and the state.

    program: the SHA-256 of the run's program text. honest: whose noise must suffice, if any.
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
    """Go on to the stage that has a sum to ask for, or to the end."""
    program = position.program
    while position.finished and position.stage + 1 < len(program.stages):
        stage = position.stage + 1
        spec = program.stages[stage]
        state = algorithm_of(spec).initial(spec, position.state.model)
        position = Position(program, stage, state)
    return position
