"""How many exact numbers a run makes known, as plain data and in words.

`kernels.rounds.known` counts them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Known:
    """The maximum number of numbers that a program's run makes known, and what they come from.

    coordinator, hospitals: known to the coordinator, and to each hospital; one of them is how the
        run ended.
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


def known_to(*, coordinator: int, hospitals: int) -> str:
    """Return how many numbers become known to whom, in the same words everywhere."""
    return (
        f"Known to the coordinator: at most {coordinator:,} numbers. "
        f"Known to each hospital: at most {hospitals:,} numbers."
    )


def numbers_known(known: Known) -> str:
    """Return in words how many numbers become known to whom, and per row."""
    said = known_to(coordinator=known.coordinator, hospitals=known.hospitals)
    if known.rows < 1:
        return (
            f"{said} How many that is per row is not known beforehand, since the program states no "
            f"least number of rows (least_rows). {MEMBERSHIP}"
        )
    return (
        f"{said} That is {known.coordinator_per_row:.3g} and {known.hospitals_per_row:.3g} per row "
        f"of the other members ({known.rows:,.0f} rows, as the program states). {MEMBERSHIP}"
    )
