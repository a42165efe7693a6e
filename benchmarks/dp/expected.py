"""What `kernels.rounds.expected` expects beside what came out: `python -m benchmarks.dp.expected`.

Of the rows of `benchmarks/results/dp.md` with 10 clients. V, the share that columns can explain, is
that of the same route without privacy; the forecast is of the program with its noise and of the
number of training rows. Nothing is trained.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.dp.automatic import automatic
from benchmarks.dp.data import DICTIONARY, Private
from benchmarks.dp.figures import Means
from benchmarks.dp.plan import AUTO, CLIENTS, EPSILONS, MAIN, SEEDS, Cell
from benchmarks.dp.routes import ROUTES, program
from benchmarks.dp.tables import read_table
from benchmarks.registry import RESULTS
from kernels.rounds.expected.forecast import explained
from kernels.rounds.site.site import Part

WITHOUT_PRIVACY: Mapping[str, str] = {AUTO: MAIN, MAIN: MAIN, "public_kernel": "public_kernel"}
"""The route whose row without privacy says what could be explained."""


class Beside(NamedTuple):
    """One row's share of variation explained: possible, expected and real."""

    route: str
    dataset: str
    epsilon: float
    possible: float
    expected: float
    real: float


def compared(means: Means, folder: Path) -> Iterator[Beside]:
    """Yield what was expected beside what came out."""
    few, _ = CLIENTS
    for name in DICTIONARY:
        data = Private.load(name, folder, clients=1, seed=SEEDS[0])
        rows = sum(site.count(Part.TRAINING) for site in data.sites)
        variance = float(np.var(data.test[:, -1]))
        for route, limit in WITHOUT_PRIVACY.items():
            possible = 1 - means[Cell(limit, name, float("inf"), few)]["rmse"] ** 2 / variance
            for epsilon in EPSILONS:
                found = means.get(Cell(route, name, epsilon, few))
                if found is None:
                    continue
                private = route == AUTO
                own = automatic(data, epsilon) if private else program(data, ROUTES[route], epsilon)
                expected = explained(own, rows=rows, explainable=possible)
                real = 1 - found["rmse"] ** 2 / variance
                yield Beside(route, name, epsilon, possible, expected, real)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dp.expected", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    found = list(compared(read_table(RESULTS / "dp.md"), options.data))
    for own in found:
        print(
            f"{own.route:14} {own.dataset:10} ε = {own.epsilon:<4g} possible {own.possible:.2f}, "
            f"expected {own.expected:.2f}, real {own.real:.2f}"
        )
    for route in WITHOUT_PRIVACY:
        gaps = np.array([own.expected - own.real for own in found if own.route == route])
        if len(gaps):
            print(
                f"{route}: mean {gaps.mean():+.3f}, root mean square {(gaps**2).mean() ** 0.5:.3f}"
            )


if __name__ == "__main__":
    main()
