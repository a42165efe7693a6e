"""RMSE and ECE against ε as a picture, a column per set."""

import math
from pathlib import Path
from typing import Any

from benchmarks.dp.figures import Means
from benchmarks.dp.plan import MAIN
from benchmarks.dp.tables import TITLES
from benchmarks.pictures import canvas, save

STYLES = {
    ("auto", 10): ("#000000", "P-", "auto, 10 clients"),
    ("elbo", 10): ("#1a7f37", "o-", "elbo, 10 clients"),
    ("elbo", 100): ("#1a7f37", "o:", "elbo, 100 clients"),
    ("public_kernel", 10): ("#1f5fa8", "s-", "public kernel, 10 clients*"),
    ("exact", 10): ("#7b3fa0", "^-", "exact, 10 clients*"),
    ("local", 10): ("#999999", "v-", "local DP, 10 clients*"),
    ("opacus_network", 1): ("#e4572e", "D-", "Opacus, network"),
    ("opacus_linear", 1): ("#f2a07b", "D--", "Opacus, linear"),
    ("adassp", 1): ("#b8860b", "x-", "AdaSSP"),
    ("ridge", 1): ("#d17a9b", "+-", "ridge that ignores noise"),
}
_BAR = 0.06
_WORST = 1.4
"""The panels end at so many times the worst error of the first route, or so large an ECE."""
_WORST_ECE = 0.25


def draw(means: Means, *, quick: bool) -> Path:
    """Draw RMSE above ECE; dashed: without privacy; the red line is the bar of ECE."""
    figure, axes = canvas(len(TITLES), rows=2, width=4.2, height=3.4)
    for column, (dataset, title) in enumerate(TITLES.items()):
        for row, what in enumerate(("rmse", "ece")):
            _panel(axes[row, column], means, dataset, what)
            axes[row, column].set_ylabel({"rmse": "RMSE", "ece": "ECE"}[what])
        axes[0, column].set_title(title)
        axes[1, column].axhline(_BAR, color="#cc0000", lw=0.8)
        axes[1, column].set_ylim(0, _WORST_ECE)
    lines, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(
        lines,
        labels,
        title="* of the first seed alone; the others are means over seeds",
        loc="outside lower center",
        ncols=5,
        frameon=False,
    )
    return save(figure, "dp", quick=quick)


def _panel(axis: Any, means: Means, dataset: str, what: str) -> None:
    own = {
        cell: score
        for cell, score in means.items()
        if cell.dataset == dataset and not cell.colluders + cell.dropouts
    }
    for (method, clients), (colour, style, label) in STYLES.items():
        points = sorted(
            (cell.epsilon, score[what])
            for cell, score in own.items()
            if (cell.method, cell.clients) == (method, clients) and math.isfinite(cell.epsilon)
        )
        if points:
            axis.plot(*zip(*points, strict=True), style, color=colour, ms=4, lw=1.4, label=label)
    for cell, score in own.items():
        if math.isinf(cell.epsilon) and cell.method == "elbo":
            axis.axhline(score[what], color="#333333", ls="--", lw=1, label="elbo without privacy*")
    if what == "rmse":
        best = min(score["rmse"] for score in own.values())
        first = max(score["rmse"] for cell, score in own.items() if cell.method == MAIN)
        axis.set_ylim(0.95 * best, _WORST * first)
    epsilons = sorted({cell.epsilon for cell in own if math.isfinite(cell.epsilon)})
    axis.set_xscale("log", base=2)
    axis.set_xticks(epsilons, [f"{each:g}" for each in epsilons])
    axis.set_xlabel("ε")
