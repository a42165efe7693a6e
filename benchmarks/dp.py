"""Differential privacy on four sets: error and calibration against ε, beside others' methods.

CCPP, SML, Parkinsons and Bike; the unit is the row, δ = 1e-5; 10 and 100 clients, through the
simulator's real path (integer noise at the door, fixed point, secure totals without masks).

`rmse_SET_epsE`, `ece_SET_epsE`, `nll_SET_epsE`: of the route ROUTE with 10 clients, in the thesis's
units, means over seeds; ECE on the ten levels, of the recalibrated noise-aware posterior; every
route and baseline is in the table. `federated_over_central`: RMSE with 10 and 100 clients (no
colluders, full cohort) over that of one client who has all rows, geometric mean over sets and ε.
`sets_better_than_opacus`: on how many sets the mean RMSE over ε ≤ 4 is below that of the better of
Opacus's two models. `colluders_K_…` and `dropouts_K_…`: RMSE at ε = 1 with noise for 10 − K honest
of 10 clients, and with K of 10 missing, over that with none. `charged_epsilon_epsE`: what the
accountant says that a run costs. Cells are stored one by one: a run that was stopped goes on.
"""

import math
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from benchmarks import dp_baselines
from benchmarks.cells import Cells
from benchmarks.dp_data import DICTIONARY, Private
from benchmarks.dp_report import draw, write_table
from benchmarks.dp_routes import ROUTES, charged, program
from benchmarks.dp_scores import Score, of_model
from benchmarks.registry import RESULTS, Figures
from client_sdk.simulation import simulate
from privacy.noise import approximate

ROOT = Path(__file__).parent.parent
EPSILONS = 0.5, 1.0, 2.0, 4.0, 8.0
ROUTE = "elbo"
"""The route that the figures without a name are of."""
CLIENTS = 10
OPACUS_EPSILON = 4.0
"""Opacus is compared with up to this ε."""

BASELINES: Mapping[str, Callable[[dp_baselines.Pooled, float, int], Score]] = {
    "adassp": dp_baselines.adassp,
    "ridge": dp_baselines.ridge,
    "opacus_network": dp_baselines.opacus_network,
    "opacus_linear": dp_baselines.opacus_linear,
}


class Cell(NamedTuple):
    """One measurement: method, set, ε, clients, seed, how many collude and how many drop out."""

    method: str
    dataset: str
    epsilon: float
    clients: int
    seed: int
    colluders: int = 0
    dropouts: int = 0

    @property
    def key(self) -> str:
        """Name it."""
        return "/".join(str(part) for part in self)


def wanted(*, quick: bool) -> list[Cell]:
    """List all measurements; `local` is a route with noise for one honest client."""
    seeds = range(1 if quick else 3)
    epsilons = (1.0, 8.0) if quick else EPSILONS
    few = (1.0,) if quick else epsilons
    cells: list[Cell] = []

    def add(methods: Iterable[str], over: Iterable[float], clients: int) -> None:
        cells.extend(
            Cell(method, name, epsilon, clients, seed)
            for method in methods
            for name in DICTIONARY
            for epsilon in over
            for seed in seeds
        )

    add([route for route in ROUTES if route != "exact"], epsilons, CLIENTS)
    add(["exact"], few, CLIENTS)
    add(["public_kernel"], few, 1)
    add(["public_kernel"], [math.inf], CLIENTS)
    add(["local"], few, CLIENTS)
    add(BASELINES, few, 1)
    if not quick:
        add(["public_kernel"], epsilons, 100)
        add(["elbo"], [1.0], 1)
        add(["elbo"], [1.0], 100)
    for name in ("ccpp", "sml"):
        for seed in seeds:
            cells += [
                Cell("public_kernel", name, 1.0, CLIENTS, seed, colluders=few) for few in (3, 6)
            ]
            cells += [
                Cell("public_kernel", name, 1.0, CLIENTS, seed, dropouts=few) for few in (1, 3)
            ]
    return cells


def measure(cell: Cell, folder: Path) -> dict[str, float]:
    """Run one cell."""
    torch.set_num_threads(1)
    data = Private.load(cell.dataset, folder, clients=cell.clients, seed=cell.seed)
    if cell.method in BASELINES:
        pooled = dp_baselines.Pooled.of(data, cell.epsilon, cell.seed)
        return BASELINES[cell.method](pooled, cell.epsilon, cell.seed).plain()
    local = cell.method == "local"
    route = "public_kernel" if local else cell.method
    missing = range(cell.clients - cell.dropouts, cell.clients)
    model = simulate(
        program(data, route, cell.epsilon),
        data.sites,
        cell.seed,
        secure=False,
        honest=1 if local else cell.clients - max(cell.colluders, cell.dropouts),
        dropouts=dict.fromkeys(range(10000), missing) if cell.dropouts else {},
        source=approximate(np.random.default_rng([cell.seed, cell.clients])),
    ).model
    return of_model(model, data).plain()


def run(options: Namespace) -> Figures:
    torch.set_num_threads(1)
    stem = "dp.quick" if options.quick else "dp"
    sources = [*ROOT.glob("kernels/**/*.py"), *ROOT.glob("privacy/**/*.py")]
    sources += ROOT.glob("benchmarks/dp*.py")
    cells = Cells(RESULTS / f"{stem}.cells.json", sources)
    plan = wanted(quick=options.quick)
    done = cells.measure_all(measure, {cell.key: (cell, options.data) for cell in plan})
    means = _means({cell: done[cell.key] for cell in plan})
    write_table(means, RESULTS / f"{stem}.md")
    draw(means, quick=options.quick)
    figures = _figures(means)
    cells.finish()
    return figures


Means = Mapping[Cell, Mapping[str, float]]
"""By cell, whose seed is −1."""


def _means(done: Mapping[Cell, Mapping[str, float]]) -> dict[Cell, dict[str, float]]:
    grouped: dict[Cell, list[Mapping[str, float]]] = {}
    for cell, score in done.items():
        grouped.setdefault(cell._replace(seed=-1), []).append(score)
    return {
        cell: {name: float(np.mean([score[name] for score in own])) for name in own[0]}
        for cell, own in grouped.items()
    }


def _figures(means: Means) -> dict[str, float | int]:
    figures: dict[str, float | int] = {}
    epsilons = sorted({cell.epsilon for cell in means if cell.method == ROUTE})
    for name in DICTIONARY:
        for epsilon in epsilons:
            own = means[Cell(ROUTE, name, epsilon, CLIENTS, -1)]
            for what in ("rmse", "ece", "nll"):
                figures[f"{what}_{name}_eps{epsilon:g}"] = own[what]
    figures["largest_ece"] = max(value for key, value in figures.items() if key.startswith("ece_"))
    figures["federated_over_central"] = _federated_over_central(means)
    figures["sets_better_than_opacus"] = _better_than_opacus(means)
    for what in ("colluders", "dropouts"):
        for cell, score in means.items():
            if number := getattr(cell, what):
                without = means[cell._replace(colluders=0, dropouts=0)]
                ratio = score["rmse"] / without["rmse"]
                figures[f"{what}_{number}_{cell.dataset}"] = ratio
    for epsilon in epsilons:
        spent = max(charged(route, epsilon).epsilon for route in ROUTES)
        figures[f"charged_epsilon_eps{epsilon:g}"] = spent
    return figures


def _federated_over_central(means: Means) -> float:
    """Compare every cell of several clients with the one of all rows in one place."""
    logs = [
        math.log(score["rmse"] / means[cell._replace(clients=1)]["rmse"])
        for cell, score in means.items()
        if cell.clients > 1
        and not cell.colluders + cell.dropouts
        and cell._replace(clients=1) in means
    ]
    return math.exp(float(np.mean(logs)))


def _better_than_opacus(means: Means) -> int:
    better = 0
    for name in DICTIONARY:
        compared = [
            epsilon
            for epsilon in EPSILONS
            if epsilon <= OPACUS_EPSILON and Cell("opacus_network", name, epsilon, 1, -1) in means
        ]

        def mean(
            method: str, clients: int, name: str = name, over: list[float] = compared
        ) -> float:
            own = [means[Cell(method, name, each, clients, -1)]["rmse"] for each in over]
            return float(np.mean(own))

        ours = mean(ROUTE, CLIENTS)
        theirs = min(mean("opacus_network", 1), mean("opacus_linear", 1))
        print(f"{name:12} RMSE over ε ≤ 4: {ours:.3f}, Opacus {theirs:.3f}")
        better += ours < theirs
    return better
