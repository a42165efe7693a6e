"""Which stages a program needs, and in which order: asked when a session is made.

A program that would stop in the middle is refused before hospitals have given any sum for it.
"""

from collections.abc import Iterator, Sequence

from kernels.ensembles.distilled import Method
from kernels.errors import ProgramError
from kernels.rounds.ensemble import beta, predictive
from kernels.rounds.judging import evaluation
from kernels.rounds.program import Program
from kernels.rounds.registry import ALGORITHMS, algorithm_of
from service.errors import SessionRefused

_LAYERS = ("linear", "linear_two_sums")
_NEEDS: dict[str, tuple[str, ...]] = {
    "moments": (),
    "beta": ("predictive",),
    "recalibration": _LAYERS,
    "evaluation": _LAYERS,
    "update": _LAYERS,
}


def check(names: Sequence[str]) -> None:
    """Refuse algorithms in an order in which one lacks what another makes."""
    _refuse(_misplaced(names))


def check_students(program: Program) -> None:
    """Refuse ensembles that would have no rows, no ends or no scores."""
    _refuse(_of_students(program))


def _misplaced(names: Sequence[str]) -> Iterator[ProgramError]:
    for index, name in enumerate(names):
        needs = _NEEDS.get(name, ("moments",))
        if name in ALGORITHMS and needs and not set(needs) & set(names[:index]):
            yield ProgramError(
                f"stages[{index}], {name}, needs the stage {' or '.join(needs)} before it"
            )
    if set(names) <= ALGORITHMS.keys() and not set(_LAYERS) & set(names):
        yield ProgramError(
            f"no stage of the program is {' or '.join(_LAYERS)}: without one a run gives no model"
        )


def _of_students(program: Program) -> Iterator[ProgramError]:
    taught: tuple[Method, ...] = ()
    for index, spec in enumerate(program.stages):
        where = f"stages[{index}], {algorithm_of(spec).NAME},"
        names = [algorithm_of(each).NAME for each in program.stages[:index]]
        if isinstance(spec, predictive.Spec):
            taught = spec.methods
            if spec.expert is predictive.Expert.LINEAR and not set(_LAYERS) & set(names):
                yield ProgramError(
                    f"{where} has linear experts, and needs the stage {' or '.join(_LAYERS)} "
                    "before it, for their σ and λ"
                )
        elif isinstance(spec, beta.Spec):
            ends = [end for end in (Method.PRODUCT, Method.MIXTURE) if end not in taught]
            if ends and "predictive" in names:
                yield ProgramError(
                    f"{where} is between product and mixture, and predictive has no student of "
                    f"{' or '.join(ends)}: add it to its methods"
                )
            if not program.held_out:
                yield ProgramError(f"{where} is found on held-out rows, and held_out is 0")
    kinds = [type(spec) for spec in program.stages]
    last = max((i for i, kind in enumerate(kinds) if kind in _STUDENTS), default=0)
    if evaluation.Spec in kinds[:last] and evaluation.Spec not in kinds[last:]:
        yield ProgramError(
            f"stages[{last}], {algorithm_of(program.stages[last]).NAME}, comes after the "
            "evaluation, whose scores would not be of its students: put the evaluation last"
        )


_STUDENTS = (predictive.Spec, beta.Spec)


def _refuse(problems: Iterator[ProgramError]) -> None:
    found = list(problems)
    if found:
        raise SessionRefused(found)
