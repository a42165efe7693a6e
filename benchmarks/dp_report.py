"""The privacy benchmark's table in Markdown, and RMSE and ECE against ε as a picture."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.pictures import canvas, save

COLOURS = {
    "public_kernel": "#1f5fa8",
    "exact": "#7b3fa0",
    "elbo": "#1a7f37",
    "local": "#999999",
    "adassp": "#b8860b",
    "ridge": "#d1a3a3",
    "opacus_network": "#e4572e",
    "opacus_linear": "#f2a07b",
}
_NAMES = {"ccpp": "CCPP", "sml": "SML", "parkinsons": "Parkinsons", "bike": "Bike"}
_WORST = 4.0
"""A method whose error is more than so many times the best one's is not drawn."""


def write_table(means: Mapping[Any, Mapping[str, float]], path: Path) -> None:
    """Write every mean: a row per method and number of clients, RMSE (ECE) by ε."""
    lines = ["# Differential privacy: RMSE (ECE) by ε", ""]
    for dataset, title in _NAMES.items():
        own = {cell: score for cell, score in means.items() if cell.dataset == dataset}
        epsilons = sorted({cell.epsilon for cell in own})
        heads = ["∞ (no privacy)" if math.isinf(each) else f"{each:g}" for each in epsilons]
        lines += [f"## {title}", "", "| method | clients | " + " | ".join(heads) + " |"]
        lines.append("| --- " * (len(heads) + 2) + "|")
        rows = {cell._replace(epsilon=0.0): None for cell in own}
        for row in rows:
            scores = [own.get(row._replace(epsilon=each)) for each in epsilons]
            texts = [f"{s['rmse']:.3f} ({s['ece']:.3f})" if s else "" for s in scores]
            name = row.method
            name += f", {row.colluders} collude" if row.colluders else ""
            name += f", {row.dropouts} drop out" if row.dropouts else ""
            lines.append(f"| {name} | {row.clients} | " + " | ".join(texts) + " |")
        lines.append("")
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines))


def draw(means: Mapping[Any, Mapping[str, float]], *, quick: bool) -> Path:
    """Draw RMSE above ECE, a column per set; the dashed line is the model without privacy."""
    figure, axes = canvas(len(_NAMES), rows=2, width=3.6, height=2.8)
    for column, (dataset, title) in enumerate(_NAMES.items()):
        own = {
            cell: score
            for cell, score in means.items()
            if cell.dataset == dataset and not cell.colluders + cell.dropouts
        }
        best = min(score["rmse"] for score in own.values())
        for row, what in enumerate(("rmse", "ece")):
            axis = axes[row, column]
            for method, colour in COLOURS.items():
                clients = {cell.clients for cell in own if cell.method == method} & {1, 10}
                points = sorted(
                    (cell.epsilon, score[what])
                    for cell, score in own.items()
                    if cell.method == method
                    and cell.clients == max(clients)
                    and math.isfinite(cell.epsilon)
                    and score["rmse"] < _WORST * best
                )
                if points:
                    axis.plot(*zip(*points, strict=True), "o-", color=colour, ms=3, label=method)
            for cell, score in own.items():
                if math.isinf(cell.epsilon):
                    axis.axhline(score[what], color="#333333", ls="--", lw=1)
            axis.set_xscale("log", base=2)
            axis.set_xlabel("ε")
            axis.set_ylabel({"rmse": "RMSE", "ece": "ECE"}[what])
        axes[0, column].set_title(title)
        axes[1, column].axhline(0.06, color="#cc0000", lw=0.8)
        axes[1, column].set_ylim(0, 0.2)
    axes[0, 0].legend(fontsize=6)
    return save(figure, "dp", quick=quick)
