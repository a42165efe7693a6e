"""From measurements to figures: means over seeds, and what is asked of them."""

from collections.abc import Mapping

import numpy as np

from benchmarks.auto.plan import ALL_ROWS, AUTO, CANDIDATE, CENTRAL_GP, Cell, Size
from benchmarks.auto.scores import Scored
from benchmarks.auto.sets import LOADERS, REGRESSION
from benchmarks.targets import Target

Done = Mapping[Cell, Mapping[str, float]]
"""Scores by cell; of means the seed is −1."""
Points = Mapping[tuple[str, str, int], tuple[Cell, ...]]
"""The cells of each point of the curve, by set, method and training rows."""
Figures = dict[str, float | int]

MARGIN_NATS, MARGIN_SHARE = 0.02, 0.02
BUT = 2
"""Of the sets, so many may miss what the others hold."""


def targets(figures: Mapping[str, float | int]) -> tuple[Target, ...]:
    """Return what is asked, of as many sets as were measured."""
    sets = figures.get("sets", len(LOADERS))
    regression = figures.get("sets_regression", len(REGRESSION))
    return (
        Target("sets_within_best_candidate", max(sets - BUT, 0), at_least=True),
        Target("sets_at_or_below_central_gp", max(regression - BUT, 0), at_least=True),
        Target("coverage_90", 0.87, at_least=True),
        Target("coverage_90", 0.93),
        Target("coverage_90_least", 0.83, at_least=True),
        Target("coverage_90_most", 0.97),
        Target("sums_over_costliest", 1.5),
        Target("cpu_over_costliest", 3.0),
    )


def compared_seeds(done: Done, dataset: str, rows: int, seeds: tuple[int, ...]) -> tuple[int, ...]:
    """Return the seeds over which a set's methods are compared: those of auto and all candidates.

    All seeds if there are none: then peers alone were measured. While a run is not complete, ours
    have fewer seeds than peers.
    """
    ours = {cell for cell in done if (cell.dataset, cell.rows) == (dataset, rows) and cell.is_ours}
    methods = {cell.method for cell in ours}
    found = tuple(
        seed for seed in seeds if all(Cell(dataset, each, seed, rows) in ours for each in methods)
    )
    return found if methods and found else seeds


def means_over_seeds(done: Done, seeds: tuple[int, ...]) -> dict[Cell, Scored]:
    """Average what differs by its seed alone, over the seeds that are compared."""
    grouped: dict[Cell, list[Mapping[str, float]]] = {}
    own_seeds = {
        (dataset, rows): compared_seeds(done, dataset, rows, seeds)
        for dataset, rows in {(cell.dataset, cell.rows) for cell in done}
    }
    for cell, score in done.items():
        if cell.seed in own_seeds[cell.dataset, cell.rows]:
            grouped.setdefault(cell._replace(seed=-1), []).append(score)
    return {
        cell: {name: _mean(own, name) for name in own[0] if all(name in each for each in own)}
        for cell, own in grouped.items()
        if len(own) == len(own_seeds[cell.dataset, cell.rows])
    }


def _mean(own: list[Mapping[str, float]], name: str) -> float:
    return float(np.mean([each[name] for each in own]))


def by_method(means: Done, dataset: str, rows: int = ALL_ROWS) -> dict[str, Mapping[str, float]]:
    """Return the scores of one set by method."""
    return {
        cell.method: score
        for cell, score in means.items()
        if (cell.dataset, cell.rows) == (dataset, rows)
    }


def best_candidate(own: Mapping[str, Mapping[str, float]]) -> str | None:
    """Return the candidate with the least mean NLL of a set's methods."""
    candidates = [method for method in own if method.startswith(CANDIDATE)]
    return min(candidates, key=lambda method: own[method]["nll"]) if candidates else None


def within_best(own: Mapping[str, Mapping[str, float]]) -> bool:
    """Say whether auto's NLL is within the margin of the best candidate's."""
    best = best_candidate(own)
    return best is not None and own[AUTO]["nll"] <= own[best]["nll"] + margin(own[best]["nll"])


def margin(nll: float) -> float:
    """Return .02 nats or 2 % of |NLL|, whichever is larger."""
    return max(MARGIN_NATS, MARGIN_SHARE * abs(nll))


def figures_of(done: Done, points: Points, asked: Size) -> Figures:
    """Return the figures by name; those of ours only where ours was measured."""
    means = means_over_seeds(done, asked.seeds)
    tables = {name: by_method(means, name, asked.rows) for name in asked.sets}
    figures = _of_ours({name: own for name, own in tables.items() if AUTO in own})
    if "sets" in figures:
        measured = [name for name, own in tables.items() if AUTO in own]
        figures["seeds"] = min(
            len(compared_seeds(done, name, asked.rows, asked.seeds)) for name in measured
        )
    gaps = [
        auto - central
        for (name, method, rows), cells in points.items()
        if method == AUTO
        and (auto := point(done, cells)) is not None
        and (central := point(done, points[name, CENTRAL_GP, rows])) is not None
    ]
    if gaps:
        figures["curve_nll_over_central_gp"] = max(gaps)
    figures["cpu_minutes"] = sum(score["cpu_s"] for score in done.values()) / 60
    return figures


def point(done: Done, cells: tuple[Cell, ...]) -> float | None:
    """Return the mean NLL of a point of the curve, if all of it was measured."""
    if not all(cell in done for cell in cells):
        return None
    return float(np.mean([done[cell]["nll"] for cell in cells]))


def _of_ours(tables: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Figures:
    if not tables:
        return {}
    figures: Figures = {"sets": len(tables)}
    chosen = {name: own for name, own in tables.items() if best_candidate(own) is not None}
    if chosen:
        figures["sets_within_best_candidate"] = sum(map(within_best, chosen.values()))
        figures["largest_nll_over_best_candidate"] = max(
            own[AUTO]["nll"] - own[best]["nll"]
            for own in chosen.values()
            if (best := best_candidate(own)) is not None
        )
        figures["sums_over_costliest"] = max(over_costliest(own, "sums") for own in chosen.values())
        figures["cpu_over_costliest"] = max(
            over_costliest(own, "hospital_cpu_s") for own in chosen.values()
        )
    beside = [own for name, own in tables.items() if name in REGRESSION and CENTRAL_GP in own]
    if beside:
        differences = [own[AUTO]["nll"] - own[CENTRAL_GP]["nll"] for own in beside]
        figures["sets_regression"] = len(beside)
        figures["sets_at_or_below_central_gp"] = sum(each <= 0 for each in differences)
        figures["largest_nll_over_central_gp"] = max(differences)
    covered = [own[AUTO] for own in tables.values() if "coverage_90" in own[AUTO]]
    if covered:
        shares = [own["coverage_90"] for own in covered]
        rows = [own["test_rows"] for own in covered]
        figures["coverage_90"] = float(np.average(shares, weights=rows))
        figures["coverage_90_least"] = min(shares)
        figures["coverage_90_most"] = max(shares)
    return figures


def over_costliest(own: Mapping[str, Mapping[str, float]], cost: str) -> float:
    """Return what auto costs over the costliest candidate of a set."""
    costliest = max(own[each][cost] for each in own if each.startswith(CANDIDATE))
    return own[AUTO][cost] / costliest
