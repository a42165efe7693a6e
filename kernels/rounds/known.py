"""How many exact numbers a run makes known, compared with the cells that they come from.

Everyone who receives a total knows its numbers, and the final model contains further ones. How a
run ended is one number more: a run that fails says something about the cohort. This is the one
count of what disclosure, policy, ledger and card call *known*; `numbers_in_sums` are those that a
hospital sends.

A run that makes known more numbers than there are rows no longer hides who is among them: with a
list of candidates, their membership can be tested (docs/threats.md, A27). With differential privacy
the noise protects them, and numbers are not counted.
"""

from kernels.rounds.declaration import Made
from kernels.rounds.plan import declared
from kernels.rounds.program import Program
from kernels.rounds.stated.numbers_known import Known

_ENDING = 1
_ROWS = 1
"""The number of training rows, which is released beside the scores (`kernels.model.results`)."""


def known(program: Program, *, members: int, blind: bool, members_only: bool = False) -> Known:
    """Return what a run of a program over at least `members` members makes known, at most.

    blind: the coordinator cannot read totals. members_only: nor does it get the model.
    """
    return Known(
        coordinator=known_to_coordinator(program, blind=blind, members_only=members_only),
        hospitals=known_to_hospitals(program),
        rows=program.least_rows * (1 - 1 / members),
        columns=len(program.schema.columns) - (program.schema.patient is not None),
    )


def known_to_coordinator(program: Program, *, blind: bool, members_only: bool) -> int:
    """Return how many numbers become known to the coordinator: all totals, or the model's.

    If the model is for members only, what is released are its scores, as many as are summed, and
    the number of training rows.
    """
    if not blind:
        return known_to_hospitals(program)
    stages = declared(program)
    if members_only:
        scores = sum(stage.leaves for stage in stages if stage.makes == {Made.SCORES})
        return scores + _ROWS * (scores > 0) + _ENDING
    return sum(stage.leaves for stage in stages) + _ENDING


def known_to_hospitals(program: Program) -> int:
    """Return how many numbers become known to each hospital: those of all totals."""
    return numbers_in_sums(program) + _ENDING


def numbers_in_sums(program: Program) -> int:
    """Return how many numbers a hospital sends at most, masked, in all sums together."""
    return sum(stage.numbers_in_all for stage in declared(program))
