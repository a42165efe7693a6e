"""Which measurements a run consists of: set × method × seed, and with privacy × ε.

Settings of the methods of others were chosen on seeds 100 to 102, which no figure is of.
"""

import math
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.outcomes.automatic import automatic
from benchmarks.outcomes.dataset import Dataset, Split, Table
from benchmarks.outcomes.ours import OURS, PRIVATE
from benchmarks.outcomes.peers.alone import alone
from benchmarks.outcomes.peers.boosting import boosting
from benchmarks.outcomes.peers.cox import cox
from benchmarks.outcomes.peers.fedavg import fedavg_linear, fedavg_network
from benchmarks.outcomes.peers.gaussian_process import gaussian_process
from benchmarks.outcomes.peers.logistic import logistic
from benchmarks.outcomes.peers.negative_binomial import negative_binomial
from benchmarks.outcomes.peers.opacus_logistic import opacus_logistic
from benchmarks.outcomes.scores import Prediction, Scores, scores_of
from benchmarks.outcomes.sets import LOADERS

SEEDS = (0, 1, 2, 3, 4)
EPSILONS = (1.0, 2.0, 4.0)
PRIVATE_SETS = ("heart", "stroke", "flchain_5y")
MINE = "ours"
AUTO = "auto"
OPACUS = "opacus_logistic"

POOLED: Mapping[str, Callable[[Dataset, Table, Table], Prediction]] = {
    "pooled_logistic": logistic,
    "pooled_cox": cox,
    "pooled_negative_binomial": negative_binomial,
    "pooled_boosting": boosting,
    "pooled_gp": gaussian_process,
}
FEDERATED: Mapping[str, Callable[[Split], Scores]] = {
    "alone": alone,
    "fedavg_linear": fedavg_linear,
    "fedavg_network": fedavg_network,
}

_CLASSES = ("pooled_logistic", "pooled_boosting", "pooled_gp")
_COUNTS = ("pooled_negative_binomial", "pooled_boosting")
POOLED_OF: Mapping[str, tuple[str, ...]] = {
    "heart": _CLASSES,
    "stroke": _CLASSES,
    "wdbc": _CLASSES,
    "flchain": ("pooled_cox", "pooled_boosting"),
    "medpar": _COUNTS,
    "rwm5yr": _COUNTS,
    "mnist": _CLASSES,
}
"""The methods with all rows in one place, by set; all must run."""
AUTOMATIC = ("heart", "stroke", "wdbc", "flchain", "medpar", "rwm5yr")
"""The sets that a program made from the schema is measured on."""


class Cell(NamedTuple):
    """One measurement; ε is infinite where nothing is private."""

    dataset: str
    method: str
    seed: int = -1
    epsilon: float = math.inf

    @property
    def key(self) -> str:
        """Name it."""
        return "/".join(str(part) for part in self)


def wanted(*, quick: bool) -> list[Cell]:
    """List all measurements, seed by seed."""
    cells = []
    for seed in SEEDS[:1] if quick else SEEDS:
        for name, pooled in POOLED_OF.items():
            mine = [MINE] if name in OURS else []
            chosen = [AUTO] if name in AUTOMATIC else []
            cells += [Cell(name, method, seed) for method in (*mine, *chosen, *FEDERATED, *pooled)]
        for name in PRIVATE_SETS:
            mine = [MINE] if name in PRIVATE else []
            cells += [Cell(name, m, seed, e) for m in (*mine, OPACUS) for e in EPSILONS]
    return cells


def measure(cell: Cell, folder: Path) -> dict[str, float]:
    """Run one cell; beside its scores return the CPU seconds that it took."""
    torch.set_num_threads(1)
    split = _dataset(cell.dataset, folder).split(cell.seed)
    start = time.process_time()
    scores = _scores(cell, split)
    return {**scores, "cpu_s": time.process_time() - start}


def _scores(cell: Cell, split: Split) -> Scores:
    if math.isfinite(cell.epsilon):
        private = PRIVATE[cell.dataset] if cell.method == MINE else opacus_logistic
        return private(split, cell.epsilon)
    if cell.method == MINE:
        return OURS[cell.dataset](split)
    if cell.method == AUTO:
        return automatic(split)
    if cell.method in FEDERATED:
        return FEDERATED[cell.method](split)
    predicted = POOLED[cell.method](split.dataset, split.pooled, split.test)
    return scores_of(split.dataset.outcome, split.test, predicted)


@lru_cache(maxsize=1)
def _dataset(name: str, folder: Path) -> Dataset:
    return LOADERS[name](folder)
