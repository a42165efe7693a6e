"""The benchmark's tables in Markdown: every score of every method, and the targets."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.outcomes.figures import TARGETS, Done, means_over_seeds
from benchmarks.outcomes.plan import AUTO, FEDERATED, MINE, OPACUS, POOLED, Cell

TITLES: Mapping[str, str] = {
    "heart": "Heart disease, 4 hospitals",
    "stroke": "Stroke trial, 79 members",
    "wdbc": "WDBC, 10 members",
    "flchain": "flchain (times), 10 members sorted by age",
    "medpar": "medpar (counts), 22 members",
    "rwm5yr": "rwm5yr (counts), 10 members",
    "mnist": "MNIST, 10 members",
    "flchain_5y": "flchain, dead within five years",
}
_ORDER = (MINE, AUTO, *FEDERATED, *POOLED, OPACUS)
_HEAD = """# Outcomes: scores on the same test rows

Means over seeds {seeds} ± their standard errors. ECE: ten bins of equally many rows. ece_floor: the
ECE that these predictions have on average if they are exactly right, as a bin has few rows. auto: a
session that states a schema alone. alone: the mean over hospitals of their own models' scores.
cpu_s: seconds of one core for one seed. With ε: the unit is the row, δ = 1e-5, and Opacus has all
rows in one place.
"""


def write_tables(done: Done, figures: Mapping[str, float | int | str | bool], path: Path) -> None:
    """Write the targets, then a table per set."""
    seeds = sorted({cell.seed for cell in done})
    lines = [_HEAD.format(seeds=", ".join(map(str, seeds)))]
    lines += [target.line(_number(figures.get(target.figure))) for target in TARGETS]
    means = means_over_seeds(done)
    for name, title in TITLES.items():
        own = [cell for cell in means if cell.dataset == name]
        if not own:
            continue
        scores = list(dict.fromkeys(what for cell in own for what in means[cell]))
        lines += ["", f"## {title}", "", f"| method | {' | '.join(scores)} |"]
        lines.append("| --- " * (len(scores) + 1) + "|")
        for cell in sorted(own, key=lambda cell: (_ORDER.index(cell.method), cell.epsilon)):
            budget = "" if math.isinf(cell.epsilon) else f", ε = {cell.epsilon:g}"
            texts = [_text(done, cell, what) for what in scores]
            lines.append(f"| {cell.method}{budget} | {' | '.join(texts)} |")
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def _text(done: Done, row: Cell, what: str) -> str:
    values = [
        scores[what]
        for cell, scores in done.items()
        if cell._replace(seed=-1) == row and what in scores
    ]
    if not values:
        return ""
    if what == "cpu_s" or len(values) == 1:
        return f"{np.mean(values):.4g}"
    return f"{np.mean(values):.4g} ± {np.std(values, ddof=1) / len(values) ** 0.5:.2g}"


def _number(value: float | str | None) -> float | None:
    return None if value is None else float(value)
