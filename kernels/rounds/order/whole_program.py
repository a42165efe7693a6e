"""Whether a program is one for a session: whole, from the columns' scale to a model of each target.

A program may also end with a kernel that hospitals trained on their rows (pFedGP, avg+local and
kd+local): then there is no global model, and each fits a personal one at home.

A program is also a part of one, in a simulation or in a run that starts from a model; what every
program must be is checked when it is made (`kernels.rounds.program`). A session's program is
checked by this too, before hospitals contribute to any sum: by the coordinator when the session is
created, by who drafts it, and again by each hospital that reads it. It uses what each algorithm
declares.
"""

from collections.abc import Iterator, Sequence

from kernels.ensembles.distilled import Method
from kernels.errors import ProgramError
from kernels.rounds.columns import moments
from kernels.rounds.declaration import Made, layers_of
from kernels.rounds.order.stage_order import WORDS, Step, left, makers, unmet
from kernels.rounds.plan import declared
from kernels.rounds.program import Program
from kernels.rounds.registry import ALGORITHMS
from kernels.tables.targets import Binary, Classes


def check(program: Program) -> None:
    """Refuse a program that would stop in the middle or produce no model; all problems at once."""
    found = [*problems(program)]
    if found:
        raise found[0] if len(found) == 1 else ProgramError("; ".join(map(str, found)))


def problems(program: Program) -> Iterator[ProgramError]:
    """Yield what keeps a program from being a session's."""
    steps = program.steps()
    yield from (ProgramError(str(each)) for each in unmet(steps))
    yield from _unchosen(program, steps)
    networks = Made.NETWORKS in left(steps) and not program.schema.outcomes
    without = networks or kernel_alone(program)
    yield from _without_layer(steps, frozenset() if without else layers_of(program.schema))
    yield from _of_students(program, steps)
    yield from _unscored(steps)


def kernel_alone(program: Program) -> bool:
    """Return whether a program is for a kernel that each hospital fits a layer of its own to.

    Its sums are of kernels that hospitals have trained on their rows, and none is of a layer. After
    an exact training, whose sums have had the layer at every step, leaving it out saves nothing, so
    that is taken for a mistake.
    """
    steps = program.steps()
    made = {made for step in steps for made in step.makes}
    trained = [own for own in declared(program) if Made.KERNEL in own.makes]
    at_sites = bool(trained) and all(own.local_passes > 0 for own in trained)
    return at_sites and made <= {Made.STANDARDISER, Made.KERNEL} and Made.KERNEL in left(steps)


def problems_of_names(names: Sequence[str]) -> Iterator[ProgramError]:
    """Yield what can be told by names alone, for stages with invalid parameters."""
    steps = [
        Step(index, name, ALGORITHMS[name].NEEDS, ALGORITHMS[name].MAKES)
        for index, name in enumerate(names)
        if name in ALGORITHMS
    ]
    yield from (ProgramError(str(each)) for each in unmet(steps))
    some_layer = any(step.makes & {Made.LAYER, Made.OUTCOMES, Made.NETWORKS} for step in steps)
    if len(steps) == len(names) and not some_layer:
        yield from _without_layer(steps, frozenset({Made.LAYER}))


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


def _unchosen(program: Program, steps: Sequence[Step]) -> Iterator[ProgramError]:
    """Refuse kernels to choose from that no stage chooses from."""
    if program.choices and not any(Made.CHOICE in step.makes for step in steps):
        yield ProgramError(
            f"{len(program.choices)} kernels are stated as choices, and no stage chooses one: add "
            f"the stage {makers(Made.CHOICE)}, or state one kernel"
        )


def _without_layer(steps: Sequence[Step], layers: frozenset[Made]) -> Iterator[ProgramError]:
    """Refuse stages after which a target has no layer: without it a run produces no model."""
    for layer in sorted(layers - left(steps)):
        dropped = next((step for step in reversed(steps) if layer in step.drops), None)
        made = any(layer in step.makes for step in steps)
        if dropped is not None and made:
            yield ProgramError(
                f"{dropped} drops {WORDS[layer]}, without which a run produces no model: put the "
                f"stage {makers(layer)} after it"
            )
        else:
            yield ProgramError(
                f"no stage makes {WORDS[layer]}, without which a run produces no model: add the "
                f"stage {makers(layer)}"
            )


def _of_students(program: Program, steps: Sequence[Step]) -> Iterator[ProgramError]:
    """Refuse a stage that needs student networks or held-out rows that do not exist."""
    taught: frozenset[str] | None = None
    for step, own in zip(steps, declared(program), strict=True):
        without = own.needs_students - (taught or own.needs_students)
        if without:
            yield ProgramError(
                f"{step} needs student networks of {' and '.join(sorted(own.needs_students))}, "
                f"but the stage before it has none of {' or '.join(sorted(without))}: add "
                f"{' and '.join(sorted(without))} to that stage's methods"
            )
        if own.needs_held_out and not program.held_out:
            yield ProgramError(f"{step} needs held-out rows: held_out must be above 0")
        taught = own.students & frozenset(Method) or None


def _unscored(steps: Sequence[Step]) -> Iterator[ProgramError]:
    """Refuse methods that are made after the last evaluation."""
    scored = [step for step in steps if Made.SCORES in step.makes]
    taught = [step for step in steps if step.makes & {Made.STUDENTS, Made.NETWORKS}]
    if scored and taught and scored[-1].index < taught[-1].index:
        yield ProgramError(
            f"{taught[-1]} comes after the evaluation, so what it makes would not be scored: "
            "put the evaluation last"
        )
