"""Which stages a program needs, and in which order: asked when a session is made.

A program that would stop in the middle is refused before hospitals have given any sum for it, by
what its algorithms declare that they need and make.
"""

from collections.abc import Iterator

from kernels.errors import ProgramError
from kernels.rounds.declaration import Declaration, Made
from kernels.rounds.plan import declared
from kernels.rounds.program import Program
from kernels.rounds.registry import ALGORITHMS
from service.errors import SessionRefused


def check(program: Program) -> None:
    """Refuse stages in an order in which one lacks what another makes, or that give no model."""
    found = [*_misplaced(program), *_without_layer(program), *_unscored(program)]
    if found:
        raise SessionRefused(found)


def _misplaced(program: Program) -> Iterator[ProgramError]:
    made: frozenset[Made] = frozenset()
    before: Declaration | None = None
    for where, own in _stages(program):
        for missing in sorted(own.needs - made):
            yield ProgramError(f"{where}, needs the stage {_makers(missing)} before it")
        taught = frozenset() if before is None else before.students
        without = sorted(own.needs_students - taught)
        if without and Made.STUDENTS in made:
            yield ProgramError(
                f"{where}, needs students of {' and '.join(sorted(own.needs_students))}, and no "
                f"stage before it has one of {' or '.join(without)}: add it to its methods"
            )
        if own.needs_held_out and not program.held_out:
            yield ProgramError(f"{where}, is found on held-out rows, and held_out is 0")
        made, before = made | own.makes, own


def _without_layer(program: Program) -> Iterator[ProgramError]:
    if not any(Made.LAYER in own.makes for own in declared(program)):
        yield ProgramError(
            f"no stage of the program is {_makers(Made.LAYER)}: without one a run gives no model"
        )


def _unscored(program: Program) -> Iterator[ProgramError]:
    """Refuse students that come after the only evaluation."""
    stages = list(_stages(program))
    scored = [i for i, (_, own) in enumerate(stages) if Made.SCORES in own.makes]
    taught = [i for i, (_, own) in enumerate(stages) if Made.STUDENTS in own.makes]
    if scored and taught and scored[-1] < taught[-1]:
        yield ProgramError(
            f"{stages[taught[-1]][0]}, comes after the evaluation, whose scores would not be of "
            "its students: put the evaluation last"
        )


def _stages(program: Program) -> Iterator[tuple[str, Declaration]]:
    stages = zip(program.algorithms(), declared(program), strict=True)
    for index, ((algorithm, _), own) in enumerate(stages):
        yield f"stages[{index}], {algorithm.NAME}", own


def _makers(made: Made) -> str:
    """Name the algorithms that make something without needing it themselves."""
    found = (name for name, own in ALGORITHMS.items() if made in own.MAKES - own.NEEDS)
    return " or ".join(found)
