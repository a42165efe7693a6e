"""Which stages a program needs, and in which order; checked when a session is created.

A program that would stop in the middle is refused before hospitals contribute to any sum. The check
uses what each algorithm declares that it needs and makes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernels.ensembles.distilled import Method
from kernels.errors import ProgramError
from kernels.rounds.columns import moments
from kernels.rounds.declaration import Made
from kernels.rounds.plan import declared
from kernels.rounds.program import Program
from kernels.rounds.registry import ALGORITHMS
from kernels.tables.schema import Schema
from kernels.tables.targets import Binary, Classes
from service.errors import SessionRefused


def check(program: Program) -> None:
    """Refuse stages that run before what they need, and programs that produce no model."""
    stages = [
        Stage(index, algorithm.NAME, own.needs, own.makes)
        for index, ((algorithm, _), own) in enumerate(
            zip(program.algorithms(), declared(program), strict=True)
        )
    ]
    _refuse(
        [
            *_misplaced(stages),
            *_unchosen(program, stages),
            *_without_layer(stages, _layers(program.schema)),
            *_of_students(program, stages),
            *_unscored(stages),
        ]
    )


def check_names(names: Sequence[str]) -> None:
    """Make the checks that need only names, for programs with invalid parameters."""
    stages = [
        Stage(index, name, ALGORITHMS[name].NEEDS, ALGORITHMS[name].MAKES)
        for index, name in enumerate(names)
        if name in ALGORITHMS
    ]
    some_layer = any(stage.makes & {Made.LAYER, Made.OUTCOMES} for stage in stages)
    complete = len(stages) == len(names)
    missing = [Made.LAYER] if complete and not some_layer else []
    _refuse([*_misplaced(stages), *_without_layer(stages, missing)])


def check_min_sites(program: Program, *, min_cohort: int) -> None:
    """Refuse a census from which fewer than `min_cohort` sites with a level could be told.

    The sums of outcomes are sums over the sites that have a level: if the others have no such row,
    a sum over the whole cohort is one over those few. With differential privacy the noise covers
    it.
    """
    levels = [own for own in program.schema.outcomes if isinstance(own, Binary | Classes)]
    if not levels or program.privacy is not None:
        return
    for index, stage in enumerate(program.stages):
        if isinstance(stage, moments.Spec) and stage.min_sites < min_cohort:
            names = " and ".join(own.name for own in levels)
            raise ProgramError(
                f"stages[{index}], {moments.NAME}, lets a run go on if {stage.min_sites} sites "
                f"have a level of {names}, and the session's min_cohort is {min_cohort}: set "
                f"parameters.min_sites to at least {min_cohort}, or lower privacy.min_cohort"
            )


@dataclass(frozen=True)
class Stage:
    """One stage of a program, with its index."""

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
            yield ProgramError(f"{stage} needs an earlier stage {makers}")
        made |= stage.makes


def _unchosen(program: Program, stages: Sequence[Stage]) -> Iterator[ProgramError]:
    """Refuse kernels to choose from that no stage chooses from."""
    if program.choices and not any(Made.CHOICE in stage.makes for stage in stages):
        yield ProgramError(
            f"{len(program.choices)} kernels are stated as choices, and no stage chooses one: add "
            f"the stage {_makers(Made.CHOICE)}, or state one kernel"
        )


def _layers(schema: Schema) -> Sequence[Made]:
    """Return what the targets of a schema need in order to be predicted."""
    real = [Made.LAYER] if schema.real else []
    return [*real, Made.OUTCOMES] if schema.outcomes else real


def _without_layer(stages: Sequence[Stage], layers: Sequence[Made]) -> Iterator[ProgramError]:
    for layer in layers:
        if not any(layer in stage.makes for stage in stages):
            yield ProgramError(f"stages must include {_makers(layer)}: {_WITHOUT[layer]}")


_WITHOUT = {
    Made.LAYER: "without it a run produces no model",
    Made.OUTCOMES: "without it a run produces no model of targets that are not real numbers",
}


def _of_students(program: Program, stages: Sequence[Stage]) -> Iterator[ProgramError]:
    """Refuse a stage that needs student networks or held-out rows that do not exist."""
    taught: frozenset[Method] | None = None
    for stage, own in zip(stages, declared(program), strict=True):
        without = own.needs_students - (taught or own.needs_students)
        if without:
            yield ProgramError(
                f"{stage} needs student networks of {' and '.join(sorted(own.needs_students))}, "
                f"but the stage before it has none of {' or '.join(sorted(without))}: add "
                f"{' and '.join(sorted(without))} to that stage's methods"
            )
        if own.needs_held_out and not program.held_out:
            yield ProgramError(f"{stage} needs held-out rows: held_out must be above 0")
        taught = own.students or None


def _unscored(stages: Sequence[Stage]) -> Iterator[ProgramError]:
    """Refuse student networks that are trained after the last evaluation."""
    scored = [stage for stage in stages if Made.SCORES in stage.makes]
    taught = [stage for stage in stages if Made.STUDENTS in stage.makes]
    if scored and taught and scored[-1].index < taught[-1].index:
        yield ProgramError(
            f"{taught[-1]} comes after the evaluation, so its student networks would not be "
            "scored: put the evaluation last"
        )


def _makers(made: Made) -> str:
    """Return the names of the algorithms that make something without needing it themselves."""
    found = (name for name, own in ALGORITHMS.items() if made in own.MAKES - own.NEEDS)
    return " or ".join(found)
