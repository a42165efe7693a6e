"""Which stages a program needs, and in which order: asked when a session is made.

A program that would stop in the middle is refused before hospitals have given any sum for it, by
what its algorithms declare that they need and make.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernels.ensembles.distilled import Method
from kernels.errors import ProgramError
from kernels.rounds.declaration import Made
from kernels.rounds.plan import declared
from kernels.rounds.program import Program
from kernels.rounds.registry import ALGORITHMS
from service.errors import SessionRefused


def check(program: Program) -> None:
    """Refuse stages in an order in which one lacks what another makes, or that give no model."""
    stages = [
        Stage(index, algorithm.NAME, own.needs, own.makes)
        for index, ((algorithm, _), own) in enumerate(
            zip(program.algorithms(), declared(program), strict=True)
        )
    ]
    _refuse(
        [
            *_misplaced(stages),
            *_without_layer(stages),
            *_of_students(program, stages),
            *_unscored(stages),
        ]
    )


def check_names(names: Sequence[str]) -> None:
    """Refuse the same as far as names alone tell, where a stage's parameters cannot be read."""
    stages = [
        Stage(index, name, ALGORITHMS[name].NEEDS, ALGORITHMS[name].MAKES)
        for index, name in enumerate(names)
        if name in ALGORITHMS
    ]
    complete = len(stages) == len(names)
    _refuse([*_misplaced(stages), *(_without_layer(stages) if complete else ())])


@dataclass(frozen=True)
class Stage:
    """One stage of a program, by its place."""

    index: int
    name: str
    needs: frozenset[Made]
    makes: frozenset[Made]

    def __str__(self) -> str:
        return f"stages[{self.index}], {self.name},"


def _refuse(problems: Sequence[ProgramError]) -> None:
    if problems:
        raise SessionRefused(list(problems))


def _misplaced(stages: Sequence[Stage]) -> Iterator[ProgramError]:
    made: frozenset[Made] = frozenset()
    for stage in stages:
        if missing := sorted(stage.needs - made):
            makers = " and ".join(map(_makers, missing))
            yield ProgramError(f"{stage} needs the stage {makers} before it")
        made |= stage.makes


def _without_layer(stages: Sequence[Stage]) -> Iterator[ProgramError]:
    if not any(Made.LAYER in stage.makes for stage in stages):
        yield ProgramError(
            f"no stage of the program is {_makers(Made.LAYER)}: without one a run gives no model"
        )


def _of_students(program: Program, stages: Sequence[Stage]) -> Iterator[ProgramError]:
    """Refuse a stage whose students, or held-out rows, there are none of."""
    taught: frozenset[Method] | None = None
    for stage, own in zip(stages, declared(program), strict=True):
        without = own.needs_students - (taught or own.needs_students)
        if without:
            yield ProgramError(
                f"{stage} needs students of {' and '.join(sorted(own.needs_students))}, and the "
                f"stage before it has none of {' or '.join(sorted(without))}: add it to its methods"
            )
        if own.needs_held_out and not program.held_out:
            yield ProgramError(f"{stage} is found on held-out rows, and held_out is 0")
        taught = own.students or None


def _unscored(stages: Sequence[Stage]) -> Iterator[ProgramError]:
    """Refuse students that come after the only evaluation."""
    scored = [stage for stage in stages if Made.SCORES in stage.makes]
    taught = [stage for stage in stages if Made.STUDENTS in stage.makes]
    if scored and taught and scored[-1].index < taught[-1].index:
        yield ProgramError(
            f"{taught[-1]} comes after the evaluation, whose scores would not be of its students: "
            "put the evaluation last"
        )


def _makers(made: Made) -> str:
    """Name the algorithms that make something without needing it themselves."""
    found = (name for name, own in ALGORITHMS.items() if made in own.MAKES - own.NEEDS)
    return " or ".join(found)
