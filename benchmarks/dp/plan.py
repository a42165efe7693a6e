"""Which measurements a run consists of, and how one is taken.

Seeds 20 to 24 decide split, dealing and noise. Test rows of seeds 0 to 2 were seen while the routes
were made, and of 10 to 12 before the steps of `elbo` and the number of seeds were settled; settings
were tuned on validation rows of seeds 100 to 103 (`benchmarks.dp.tuning`).
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.dp.adassp import adassp
from benchmarks.dp.automatic import automatic
from benchmarks.dp.data import DICTIONARY, Private
from benchmarks.dp.opacus_sgd import opacus_linear, opacus_network
from benchmarks.dp.pooled import Pooled
from benchmarks.dp.ridge import ridge
from benchmarks.dp.routes import ROUTES, program
from benchmarks.dp.scores import Score, of_model
from client_sdk.simulation import simulate
from kernels.rounds.program import Program
from privacy.noise import approximate

EPSILONS = 0.5, 1.0, 2.0, 4.0, 8.0
QUICK = 1.0, 8.0
SEEDS = 20, 21, 22, 23, 24
MAIN = "elbo"
"""The route that figures without a name are of."""
AUTO = "auto"
"""The private program of a session that states none (`benchmarks.dp.automatic`)."""
CLIENTS = 10, 100
SEEDS_OF_MANY = 3
"""Of 100 clients: a seed of them costs five times as much as of 10."""
LOCAL = "local"
"""The public kernel's route with noise for one honest client: each is private by itself."""

BASELINES: Mapping[str, Callable[[Pooled, float, int], Score]] = {
    "adassp": adassp,
    "ridge": ridge,
    "opacus_network": opacus_network,
    "opacus_linear": opacus_linear,
}


class Cell(NamedTuple):
    """One measurement: method, set, ε, clients, seed, how many collude and how many drop out."""

    method: str
    dataset: str
    epsilon: float
    clients: int
    seed: int = -1
    colluders: int = 0
    dropouts: int = 0

    @property
    def key(self) -> str:
        """Name it."""
        return "/".join(str(part) for part in self)


def wanted(*, quick: bool) -> list[Cell]:
    """List all measurements, the first seed's first."""
    first, *others = SEEDS[:1] if quick else SEEDS
    cells = [cell._replace(seed=first) for cell in _of_every_seed(quick=quick)]
    cells += [cell._replace(seed=first) for cell in _of_one_seed(quick=quick)]
    for seed in others:
        cells += [cell._replace(seed=seed) for cell in _of_every_seed(quick=quick)]
    if not quick:
        for seed in SEEDS[:SEEDS_OF_MANY]:
            cells += [cell._replace(seed=seed) for cell in _cells([MAIN], EPSILONS, CLIENTS[1])]
    return cells


def _of_every_seed(*, quick: bool) -> Iterator[Cell]:
    """Yield what is compared: our first route with 10 clients, and the methods of others."""
    yield from _cells([AUTO, MAIN], QUICK if quick else EPSILONS, CLIENTS[0])
    yield from _cells(BASELINES, QUICK[:1] if quick else EPSILONS, 1)


def _of_one_seed(*, quick: bool) -> Iterator[Cell]:
    """Yield the rest: all rows in one place, the other routes, no privacy."""
    epsilons = QUICK[:1] if quick else EPSILONS
    few, many = CLIENTS
    yield from _cells(["public_kernel"], epsilons, few)
    yield from _cells([AUTO, MAIN, "public_kernel"], QUICK[:1] if quick else QUICK, 1)
    for name in ("ccpp", "sml"):
        plain = Cell("public_kernel", name, 1.0, few)
        yield from (plain._replace(colluders=number) for number in (3, 6))
        yield from (plain._replace(dropouts=number) for number in (1, 3))
    yield from _cells(["exact", LOCAL], epsilons, few)
    yield from _cells(["public_kernel"] if quick else [MAIN, "public_kernel"], [math.inf], few)
    if not quick:
        yield from _cells(["public_kernel", "exact", LOCAL], epsilons, many)


def _cells(methods: Iterable[str], epsilons: Sequence[float], clients: int) -> Iterator[Cell]:
    for method in methods:
        for name in DICTIONARY:
            yield from (Cell(method, name, epsilon, clients) for epsilon in epsilons)


def measure(cell: Cell, folder: Path) -> dict[str, float]:
    """Run one cell; beside its scores return the CPU seconds that it took."""
    torch.set_num_threads(1)
    start = time.process_time()
    scores = _scores(cell, folder).plain()
    return {**scores, "cpu_s": time.process_time() - start}


def _program(cell: Cell, data: Private) -> Program:
    if cell.method == AUTO:
        return automatic(data, cell.epsilon)
    route = "public_kernel" if cell.method == LOCAL else cell.method
    return program(data, ROUTES[route], cell.epsilon)


def _scores(cell: Cell, folder: Path) -> Score:
    data = Private.load(cell.dataset, folder, clients=cell.clients, seed=cell.seed)
    if cell.method in BASELINES:
        pooled = Pooled.of(data, cell.epsilon, cell.seed)
        return BASELINES[cell.method](pooled, cell.epsilon, cell.seed)
    local = cell.method == LOCAL
    missing = range(cell.clients - cell.dropouts, cell.clients)
    model = simulate(
        _program(cell, data),
        data.sites,
        secure=False,
        honest=1 if local else cell.clients - max(cell.colluders, cell.dropouts),
        dropouts=dict.fromkeys(range(10000), missing) if cell.dropouts else {},
        source=approximate(np.random.default_rng([cell.seed, cell.clients])),
    ).model
    return of_model(model, data)
