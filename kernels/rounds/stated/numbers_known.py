"""How many exact numbers a run makes known, as plain data and in words.

`kernels.rounds.known` counts them.
"""

from dataclasses import dataclass


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
