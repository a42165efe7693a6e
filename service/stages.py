"""Where a run is in its program, and the next sum that it asks for; all of it pure, and slow.

    start → (a sum's total → the state after it)* → the last stage's model

The numbers are those of `client_sdk.simulate`: the same functions in the same order.
"""

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

from kernels.plain import encode_json
from kernels.rounds import storage
from kernels.rounds.algorithm import Algorithm
from kernels.rounds.model import Model
from kernels.rounds.program import Program
from kernels.rounds.registry import algorithm_of
from privacy.encoding import Encoding
from privacy.layout import SecureTotal


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

    @property
    def history(self) -> tuple[dict[str, Any], ...]:
        """What the algorithm tells of each step so far, of all sites together."""
        return tuple(asdict(each) for each in getattr(self.state, "history", None) or ())


@dataclass(frozen=True)
class SumPlan:
    """What a task says of a sum, but for who takes part."""

    statistic: str
    parameters: bytes
    encoding: bytes
    length: int
    broadcast: bytes

    @property
    def address(self) -> str:
        """Where the broadcast is found: its SHA-256."""
        return address(self.broadcast)


def start(program: Program, model: Model | None) -> Position:
    """Begin the program, from an earlier one's model where it needs one."""
    algorithm, spec = next(program.algorithms())
    return _settled(Position(program, 0, algorithm.initial(spec, model or program.start())))


def after(position: Position, total: SecureTotal) -> Position:
    """Take a sum's total into account."""
    state = position.algorithm.update(position.state, total)
    return _settled(Position(position.program, position.stage, state))


def sum_plan(position: Position, *, run_kind: str, seed: int, members: int) -> SumPlan:
    """Give the next sum, as every member can work it out again from the program and the state."""
    algorithm = position.algorithm
    encoding = Encoding.finest(algorithm.layout(position.state), max_clients=members)
    parameters = {
        "program": hashlib.sha256(position.program.to_json().encode()).hexdigest(),
        "run_kind": run_kind,
        "seed": seed,
        "stage": position.stage,
    }
    return SumPlan(
        statistic=f"{algorithm.NAME}/{algorithm.VERSION}",
        parameters=encode_json(parameters).encode(),
        encoding=encoding.to_bytes(),
        length=encoding.layout.length,
        broadcast=storage.encode(position.state, broadcast=True),
    )


def address(broadcast: bytes) -> str:
    """Give the name under which a broadcast is fetched."""
    return hashlib.sha256(broadcast).hexdigest()


def _settled(position: Position) -> Position:
    """Go on to the stage that has a sum to ask for, or to the end."""
    program = position.program
    while position.finished and position.stage + 1 < len(program.stages):
        stage = position.stage + 1
        spec = program.stages[stage]
        state = algorithm_of(spec).initial(spec, position.state.model)
        position = Position(program, stage, state)
    return position
