"""Which measurements a run consists of: set × method × seed, and for the curve × training rows."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.auto import scores
from benchmarks.auto.ours import automatic_run, candidate_names, candidate_run
from benchmarks.auto.peers.boosting import boosting
from benchmarks.auto.peers.central_gp import MOST_ROWS, central_gp
from benchmarks.auto.scores import Scored
from benchmarks.auto.sets import LOADERS, REGRESSION, first_rows
from benchmarks.outcomes.dataset import Dataset, Split, size

AUTO = "auto"
CANDIDATE = "candidate "
"""Before the name of one of the search's candidates."""
CENTRAL_GP = "central_gp"
BOOSTING = "boosting"

SEEDS = (0, 1, 2, 3, 4)
CURVE_SEEDS = (0, 1, 2)
ALL_ROWS = 0


@dataclass(frozen=True)
class Size:
    """How much a run measures. rows: training rows of each set, ALL_ROWS for all."""

    sets: tuple[str, ...]
    seeds: tuple[int, ...]
    rows: int
    curve_sets: tuple[str, ...]
    curve_rows: tuple[int, ...]
    curve_seeds: tuple[int, ...]


WHOLE = Size(
    sets=tuple(LOADERS),
    seeds=SEEDS,
    rows=ALL_ROWS,
    curve_sets=("ccpp", "airquality", "bike_hour"),
    curve_rows=(300, 1000, 3000, 10_000),
    curve_seeds=CURVE_SEEDS,
)
QUICK = Size(
    sets=("wine_red", "real_estate", "diabetes", "breast_cancer_wdbc", "medpar"),
    seeds=SEEDS[:1],
    rows=300,
    curve_sets=("wine_red", "real_estate", "diabetes"),
    curve_rows=(150, 300),
    curve_seeds=SEEDS[:1],
)


class Cell(NamedTuple):
    """One measurement; rows: the number of training rows, ALL_ROWS for all."""

    dataset: str
    method: str
    seed: int = -1
    rows: int = ALL_ROWS

    @property
    def key(self) -> str:
        """Name it."""
        return "/".join(str(part) for part in self)

    @property
    def is_ours(self) -> bool:
        """Say whether a change of ours changes it."""
        return self.method == AUTO or self.method.startswith(CANDIDATE)


def wanted(size_of: Size, folder: Path) -> list[Cell]:
    """List all measurements once, seed by seed, and then what the curve needs beside them."""
    cells = []
    for seed in size_of.seeds:
        for name in size_of.sets:
            peers = [CENTRAL_GP, BOOSTING] if name in REGRESSION else [BOOSTING]
            candidates = [CANDIDATE + each for each in candidate_names(dataset(name, folder))]
            cells += [
                Cell(name, method, seed, size_of.rows) for method in (AUTO, *candidates, *peers)
            ]
    curve = [cell for own in curve_cells(size_of, folder).values() for cell in own]
    return list(dict.fromkeys([*cells, *curve]))


def curve_cells(size_of: Size, folder: Path) -> dict[tuple[str, str, int], tuple[Cell, ...]]:
    """Return a point's cells by set, method and training rows.

    A set with fewer rows has its last point at all of them. The central process is given MOST_ROWS
    at most, the first in the same order, so that its points beyond are one.
    """
    points: dict[tuple[str, str, int], tuple[Cell, ...]] = {}
    for name in size_of.curve_sets:
        there = size(dataset(name, folder).split(0).pooled)
        for rows in dict.fromkeys(min(asked, there) for asked in size_of.curve_rows):
            for method in (AUTO, CENTRAL_GP):
                whole = there if method == AUTO else min(there, MOST_ROWS)
                own = ALL_ROWS if rows >= whole and not size_of.rows else rows
                points[name, method, rows] = tuple(
                    Cell(name, method, seed, own) for seed in size_of.curve_seeds
                )
    return points


def measure(cell: Cell, folder: Path) -> Scored:
    """Run one cell; beside its scores return the numbers of rows and the CPU seconds it took."""
    torch.set_num_threads(1)
    split = first_rows(dataset(cell.dataset, folder).split(cell.seed), cell.rows)
    start = time.process_time()
    found = _scores(cell.method, split)
    return {
        **found,
        "training_rows": float(size(split.pooled)),
        "test_rows": float(size(split.test)),
        "cpu_s": time.process_time() - start,
    }


def _scores(method: str, split: Split) -> Scored:
    if method.startswith(CANDIDATE):
        return candidate_run(split, method.removeprefix(CANDIDATE))
    return _METHODS[method](split)


def _of_gp(split: Split) -> Scored:
    return scores.of_real(split.test[split.dataset.outcome.name], central_gp(split))


_METHODS: Mapping[str, Callable[[Split], Scored]] = {
    AUTO: automatic_run,
    CENTRAL_GP: _of_gp,
    BOOSTING: boosting,
}


@lru_cache(maxsize=len(LOADERS))
def dataset(name: str, folder: Path) -> Dataset:
    """Return a set, read once in a process."""
    return LOADERS[name](folder)


def methods_in_order(found: Sequence[str]) -> list[str]:
    """Return methods as tables list them: ours, the candidates, the others."""
    order = {AUTO: 0, CENTRAL_GP: 2, BOOSTING: 3}
    return sorted(set(found), key=lambda method: order.get(method, 1))
