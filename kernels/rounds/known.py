"""How many exact numbers a run makes known, compared with the cells that they come from.

Everyone who receives a total knows its numbers, and the final model contains further ones. A run
that makes known more numbers than there are rows no longer hides who is among them: with a list of
candidates, their membership can be tested (docs/threats.md, A27). With differential privacy the
noise protects them, and numbers are not counted.
"""

from dataclasses import dataclass

from kernels.rounds.declaration import Made
from kernels.rounds.plan import declared
from kernels.rounds.program import Program


@dataclass(frozen=True, kw_only=True)
class Known:
    """The maximum number of numbers that a program's run makes known, and what they come from.

    coordinator, hospitals: known to the coordinator, and to each hospital.
    rows: training rows of all other members, n·(1 − 1/members), with the n that the program states:
        every hospital can subtract its own.
    columns: features and targets before they are encoded.
    """

    coordinator: int
    hospitals: int
    rows: float
    columns: int

    @property
    def cells(self) -> float:
        """The number of cells of the other members' training rows."""
        return self.rows * self.columns

    @property
    def coordinator_per_row(self) -> float:
        """Numbers known to the coordinator, per row of the other members."""
        return self.coordinator / self.rows

    @property
    def hospitals_per_row(self) -> float:
        """Numbers known to each hospital, per row of the other members."""
        return self.hospitals / self.rows


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


MEMBERSHIP = (
    "Above 1 number per row, membership of listed candidates is not protected without differential "
    "privacy: someone who has the records of candidates can test which of them are in the tables."
)


def numbers_known(known: Known) -> str:
    """Return in words how many numbers become known to whom, and per row."""
    if known.rows < 1:
        return (
            f"Known to the coordinator: at most {known.coordinator:,} numbers. Known to each "
            f"hospital: at most {known.hospitals:,} numbers. How many that is per row is not known "
            "beforehand, since the program states no least number of rows (least_rows). "
            f"{MEMBERSHIP}"
        )
    return (
        f"Known to the coordinator: at most {known.coordinator:,} numbers, "
        f"{known.coordinator_per_row:.3g} per row of the other members "
        f"({known.rows:,.0f} rows, as the program states). Known to each hospital: at most "
        f"{known.hospitals:,} numbers, {known.hospitals_per_row:.3g} per row. {MEMBERSHIP}"
    )
