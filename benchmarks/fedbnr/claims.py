"""What the results must show, column by column, and whether they do."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.fedbnr import automatic
from benchmarks.fedbnr.anchors import AUTO_RMSE, MOST_RMSE, Anchors
from benchmarks.fedbnr.central import GP, RECALIBRATED_GP
from benchmarks.fedbnr.tables import COLUMNS, Results, number

MOST_ECE, MOST_MEAN_ECE = 0.035, 0.025
WITHIN = 1.1
"""Of [FedBNR]'s RMSE: it trained networks of 2,000 to 5,000 units."""
ENOUGH_COLUMNS = 5
AUTO_ECE = 0.03
OF_MEDIAN = 1.6
"""No seed's RMSE may be above so many times the median of its column."""


@dataclass(frozen=True)
class Claim:
    """A number that was to be reached: where it was, and where not with the gap.

    held, of: columns where it is, and where it was measured. open: columns yet to be measured.
    """

    name: str
    held: int
    of: int
    needed: int
    missed: tuple[str, ...]
    open: int = 0

    @property
    def verdict(self) -> str:
        """Yes or NO once the columns yet to be measured can no longer change it."""
        if self.held >= self.needed:
            return "yes"
        return "open" if self.held + self.open >= self.needed else "NO"

    def __str__(self) -> str:
        said = f"{self.verdict}: {self.name}: {self.held} of {self.of}"
        return said + (f"; not {', '.join(self.missed)}" if self.missed else "")


def claims(results: Results, anchors: Anchors) -> Iterator[Claim]:
    """Yield every claim that the measured cells can decide."""
    exact = "FedBNR exact"
    yield from _compared(
        f"{exact}, RMSE at most {', '.join(f'{k} {v:g}' for k, v in MOST_RMSE.items())}",
        {
            column: (results.mean(exact, "rmse", *column), MOST_RMSE[column[0]])
            for column in COLUMNS
        },
    )
    yield from _of_auto(results)
    calibration = {column: results.mean(exact, "ece", *column) for column in COLUMNS}
    yield from _compared(
        f"{exact}, ECE at most {MOST_ECE}",
        {column: (ece, MOST_ECE) for column, ece in calibration.items()},
    )
    known = [ece for ece in calibration.values() if ece is not None]
    if known:
        mean = float(np.mean(known))
        whole = len(known) == len(COLUMNS)
        held = int(mean <= MOST_MEAN_ECE and whole)
        name = f"{exact}, mean ECE {mean:.4f} at most {MOST_MEAN_ECE}"
        yield Claim(name, held, int(whole), 1, (), open=int(not whole))
    for gp, named in ((GP, "as it is"), (RECALIBRATED_GP, "recalibrated as well")):
        yield from _compared(
            f"{exact}, NLL no higher than the central GP's, {named}, at its seeds",
            {column: results.means(exact, gp, "nll", *column) for column in COLUMNS},
        )
    for row in ("FedBNR", "FedBNR-KD"):
        yield from _compared(
            f"{row}, RMSE within 10 % of the thesis's",
            {
                column: (
                    results.mean(row, "rmse", *column),
                    _times(WITHIN, anchors.get(("rmse", row, *column))),
                )
                for column in COLUMNS
            },
            needed=ENOUGH_COLUMNS,
        )
    yield from _compared(
        "FedBNR-KD, ECE below the thesis's",
        {
            column: (
                results.mean("FedBNR-KD", "ece", *column),
                anchors.get(("ece", "FedBNR-KD", *column)),
            )
            for column in COLUMNS
        },
    )


def _of_auto(results: Results) -> Iterator[Claim]:
    bounds = ", ".join(f"{name} {most:g}" for name, most in AUTO_RMSE.items())
    for metric, most_of, said in (
        ("rmse", AUTO_RMSE, f"RMSE at most {bounds}"),
        ("ece", dict.fromkeys(AUTO_RMSE, AUTO_ECE), f"ECE at most {AUTO_ECE}"),
    ):
        yield from _compared(
            f"{automatic.ROW}, {said}",
            {
                column: (results.mean(automatic.ROW, metric, *column), most_of[column[0]])
                for column in COLUMNS
            },
        )
    worst: dict[tuple[str, int], tuple[float | None, float | None]] = {}
    for column in COLUMNS:
        seeds = list(results.by_seed(automatic.ROW, "rmse", *column).values())
        if seeds:
            worst[column] = max(seeds), OF_MEDIAN * float(np.median(seeds))
        else:
            worst[column] = None, None
    yield from _compared(
        f"{automatic.ROW}, no seed's RMSE above {OF_MEDIAN} times the median of its column", worst
    )


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None else factor * value


def _compared(
    name: str,
    pairs: dict[tuple[str, int], tuple[float | None, float | None]],
    needed: int = len(COLUMNS),
) -> Iterator[Claim]:
    decided = {
        column: (value, most)
        for column, (value, most) in pairs.items()
        if value is not None and most is not None
    }
    missed = tuple(
        f"{dataset} {clients} ({number(value)} > {number(most)})"
        for (dataset, clients), (value, most) in decided.items()
        if value > most
    )
    if decided:
        held, still = len(decided) - len(missed), len(pairs) - len(decided)
        yield Claim(name, held, len(decided), needed, missed, open=still)
