"""From measurements to figures: means over seeds, and what the bars are of."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from benchmarks.dp.data import DICTIONARY
from benchmarks.dp.plan import AUTO, CLIENTS, MAIN, Cell
from benchmarks.dp.routes import ROUTES, charged

Means = Mapping[Cell, Mapping[str, float]]
"""Scores by cell; of means the seed is −1."""

OPACUS_EPSILON = 4.0
"""Opacus is compared with up to this ε."""


def means_over_seeds(done: Means) -> dict[Cell, dict[str, float]]:
    """Average what differs by its seed alone."""
    grouped: dict[Cell, list[Mapping[str, float]]] = {}
    for cell, score in done.items():
        grouped.setdefault(cell._replace(seed=-1), []).append(score)
    return {
        cell: {name: float(np.mean([score[name] for score in own])) for name in own[0]}
        for cell, own in grouped.items()
    }


def figures_of(done: Means) -> dict[str, float | int]:
    """Return the figures by name, from the scores of all cells."""
    means = means_over_seeds(done)
    figures: dict[str, float | int] = {}
    few, many = CLIENTS
    for name in DICTIONARY:
        for clients, suffix in ((few, ""), (many, f"_{many}")):
            for epsilon in _epsilons(means, MAIN, name, clients):
                own = means[Cell(MAIN, name, epsilon, clients)]
                for what in ("rmse", "ece", "nll"):
                    figures[f"{what}_{name}_eps{epsilon:g}{suffix}"] = own[what]
    figures["largest_ece"] = max(value for key, value in figures.items() if key.startswith("ece_"))
    for route in (AUTO, MAIN, "public_kernel"):
        for clients in CLIENTS:
            if ratio := over_central(done, route, clients):
                figures[f"federated_over_central_{route}_{clients}"] = ratio
    figures["federated_over_central"] = max(
        value for key, value in figures.items() if key.startswith("federated_over_central_")
    )
    figures |= _against_opacus(done)
    for what in ("colluders", "dropouts"):
        for cell, score in means.items():
            if number := getattr(cell, what):
                without = means[cell._replace(colluders=0, dropouts=0)]
                figures[f"{what}_{number}_{cell.dataset}"] = score["rmse"] / without["rmse"]
    for epsilon in sorted({cell.epsilon for cell in means if math.isfinite(cell.epsilon)}):
        spent = max(charged(route, epsilon).epsilon for route in ROUTES)
        figures[f"charged_epsilon_eps{epsilon:g}"] = spent
    return figures


def _epsilons(means: Means, method: str, dataset: str, clients: int) -> list[float]:
    return sorted(
        cell.epsilon
        for cell in means
        if cell[:2] == (method, dataset)
        and cell.clients == clients
        and not cell.colluders + cell.dropouts
        and math.isfinite(cell.epsilon)
    )


def over_central(done: Means, route: str, clients: int) -> float | None:
    """Return RMSE over that of one client with all rows, the geometric mean over sets and ε."""
    logs = [
        math.log(score["rmse"] / done[alone]["rmse"])
        for cell, score in done.items()
        if (cell.method, cell.clients) == (route, clients)
        and not cell.colluders + cell.dropouts
        and (alone := cell._replace(clients=1)) in done
    ]
    return math.exp(float(np.mean(logs))) if logs else None


def _against_opacus(done: Means) -> dict[str, float | int]:
    """Compare mean RMSE over seeds and ε ≤ 4, with Opacus's better model of each set.

    `…_error`: the standard error of that ratio, from its values seed by seed.
    """
    figures: dict[str, float | int] = {}
    errors: dict[str, float] = {}
    for name in DICTIONARY:
        ours, *others = (
            _by_seed(done, method, name, clients)
            for method, clients in ((MAIN, CLIENTS[0]), ("opacus_network", 1), ("opacus_linear", 1))
        )
        theirs = min(others, key=np.mean)
        figures[f"over_opacus_{name}"] = float(np.mean(ours) / np.mean(theirs))
        if len(ours) > 1:
            ratios = ours / theirs
            errors[f"over_opacus_{name}_error"] = float(ratios.std(ddof=1) / len(ratios) ** 0.5)
    figures["sets_better_than_opacus"] = sum(ratio < 1 for ratio in figures.values())
    return figures | errors


def _by_seed(done: Means, method: str, dataset: str, clients: int) -> NDArray[np.float64]:
    """Return the mean RMSE over ε ≤ 4 of each seed."""
    found: dict[int, list[float]] = {}
    for cell, score in done.items():
        plain = not cell.colluders + cell.dropouts and cell.epsilon <= OPACUS_EPSILON
        if plain and (cell.method, cell.dataset, cell.clients) == (method, dataset, clients):
            found.setdefault(cell.seed, []).append(score["rmse"])
    return np.array([np.mean(found[seed]) for seed in sorted(found)])
