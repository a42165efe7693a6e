"""How many exact numbers a run makes known, compared with the cells that they come from.

Everyone who receives a total knows its numbers, and the final model contains further ones. A run
that makes known more numbers than there are rows no longer hides who is among them: with a list of
candidates, their membership can be tested (docs/threats.md, A27). With differential privacy the
noise protects them, and numbers are not counted.
"""

from kernels.rounds.declaration import Made
from kernels.rounds.plan import declared
from kernels.rounds.program import Program
from kernels.rounds.stated.numbers_known import Known


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

    If the model is for members only, what is released are its scores, as many as are summed.
    """
    if not blind:
        return known_to_hospitals(program)
    stages = declared(program)
    if members_only:
        judged = (stage for stage in stages if stage.makes == {Made.SCORES})
        return sum(stage.leaves for stage in judged)
    return sum(stage.leaves for stage in stages)


def known_to_hospitals(program: Program) -> int:
    """Return how many numbers become known to each hospital: those of all totals."""
    return sum(stage.numbers_in_all for stage in declared(program))
