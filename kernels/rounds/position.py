"""A run's position in its program: a pure function of the program, a model and the totals so far.

    start → (a sum's total → the position after it)* → the last stage's model

The coordinator, the simulation and every hospital that replays a run use this module, so all of
them hold the same state. Two of them compare states by `Position.digest`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from kernels import storage
from kernels.errors import FewerRowsThanStated
from kernels.model.model import Model
from kernels.rounds.algorithm import Algorithm
from kernels.rounds.program import Program
from kernels.rounds.registry import algorithm_of
from privacy.layout import SecureTotal

Metrics = Mapping[str, Any]
"""Metrics of one step of an algorithm, over all sites together."""

_LABEL = b"veilgp/position/1"


@dataclass(frozen=True, eq=False)
class Position:
    """The index of a stage of the program, the number of sums so far, and the stage's state.

    sum_index: counted over the whole run, from 0; only sums whose total was used are counted.
    """

    program: Program
    stage: int
    sum_index: int
    state: Any

    @property
    def algorithm(self) -> Algorithm:
        """The stage's algorithm."""
        return algorithm_of(self.program.stages[self.stage])

    @property
    def stage_finished(self) -> bool:
        """Whether the stage needs no further sum."""
        return self.algorithm.finished(self.state)

    @property
    def finished(self) -> bool:
        """Whether the program is finished; `state.model` is then its result."""
        return self.stage_finished and self.stage + 1 == len(self.program.stages)

    @cached_property
    def encoded(self) -> bytes:
        """The full state's bytes, as they are stored and hashed."""
        return storage.encode(self.state)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the stage, the sum index and the full state, with what is never broadcast.

        It must not leave a member as it is: whoever can guess the totals can guess the digest.
        """
        place = b"".join(number.to_bytes(8, "big") for number in (self.stage, self.sum_index))
        return hashlib.sha256(_LABEL + place + self.encoded).digest()


def start(program: Program, model: Model | None) -> Position:
    """Return the position before the first sum, from an earlier model if the program needs one."""
    return settled(begin(program, model))


def after(position: Position, total: SecureTotal) -> tuple[Position, tuple[Metrics, ...]]:
    """Return the position after a sum's total, and the metrics of the step, if any.

    `sum` is the number of sums of the run by then, whatever stage they belong to.
    """
    then = updated(position, total)
    known = len(_history(position.state))
    told = tuple(
        {
            "stage": position.stage,
            "algorithm": position.algorithm.NAME,
            "sum": then.sum_index,
            **asdict(each),
        }
        for each in _history(then.state)[known:]
    )
    return settled(then), told


def begin(program: Program, model: Model | None) -> Position:
    """Return the position at the program's first stage, even if that stage needs no sum."""
    if model is None:
        program.check_start()
    algorithm, spec = next(program.algorithms())
    return Position(program, 0, 0, algorithm.initial(spec, program.start(model)))


def updated(position: Position, total: SecureTotal) -> Position:
    """Return the position after a sum's total, in the same stage even if that is finished."""
    _check_rows(position, total)
    state = position.algorithm.update(position.state, total)
    return replace(position, sum_index=position.sum_index + 1, state=state)


def _check_rows(position: Position, total: SecureTotal) -> None:
    """Stop if a total has fewer training rows than the program states.

    What sites allow to become known is in proportion to the stated number. With differential
    privacy the number is noisy, and noise protects the rows, however few there are.
    """
    program = position.program
    if program.privacy is not None:
        return
    block = program.row_counts[position.stage]
    if block is not None and any(own.name == block for own in total.layout.blocks):
        rows = round(float(total[block]))
        if rows < program.least_rows:
            raise FewerRowsThanStated(
                f"all sites together have {rows} training rows, but the program states at least "
                f"{program.least_rows}: create a session that states fewer, which every site must "
                "approve again"
            )


def next_stage(position: Position) -> Position:
    """Return the position at the start of the next stage, from the model of this one."""
    stage = position.stage + 1
    spec = position.program.stages[stage]
    state = algorithm_of(spec).initial(spec, position.state.model)
    return replace(position, stage=stage, state=state)


def settled(position: Position) -> Position:
    """Return the position in the next stage that needs a sum, or at the end of the program."""
    while position.stage_finished and not position.finished:
        position = next_stage(position)
    return position


def _history(state: Any) -> Sequence[Any]:
    return getattr(state, "history", None) or ()
