"""The picture: how many nats a row each method loses to the best, set by set, in both splits."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pictures import canvas, save
from benchmarks.predictive.data import FILES, SPLITS
from benchmarks.predictive.honest import COMMITTEES, METHODS, OTHERS
from benchmarks.predictive.summary import Summary, name_of, standard_error

MOST = 1.0
"""What is lost beyond is written at the edge."""
COLOURS = {
    "auto": "#0a5a20",
    "fedbnr": "#1a7f37",
    **dict.fromkeys(COMMITTEES, "#1f5fa8"),
    **dict.fromkeys(OTHERS, "#8a8a8a"),
}
ROWS = ("auto", "fedbnr", *COMMITTEES, *OTHERS)


def draw(summary: Summary, *, quick: bool) -> Path:
    """Draw committees as dots and their students as rings, with standard errors."""
    figure, axes = canvas(len(FILES), rows=len(SPLITS), width=2.9, height=3.1)
    for down, split in enumerate(SPLITS):
        for across, name in enumerate(FILES):
            axis = axes[down, across]
            best = min(summary.mean("nll", name, split, method) for method in METHODS)
            for place, method in enumerate(reversed(ROWS)):
                _dot(axis, summary, name, split, method, place, best)
                if method in COMMITTEES:
                    _dot(axis, summary, name, split, f"d_{method}", place, best)
            axis.axvline(0, color="#1a7f37", lw=0.8, alpha=0.5)
            axis.set(xlim=(-0.08, MOST * 1.28), ylim=(-0.7, len(ROWS) - 0.3))
            labels = [name_of(row).strip("*") for row in reversed(ROWS)]
            axis.set_yticks(range(len(ROWS)), labels if across == 0 else [""] * len(ROWS))
            axis.tick_params(labelsize=8)
            axis.set_title(f"{name}, {split}\nbest NLL {best:.2f}", fontsize=9)
            if down == len(SPLITS) - 1:
                axis.set_xlabel("nats a row above the best", fontsize=8)
    handles = [
        axes[0, 0].plot([], [], mark, color=colour, mfc=fill, ms=6, label=label)[0]
        for label, mark, colour, fill in (
            ("FedBNR", "o", "#1a7f37", "#1a7f37"),
            ("committee, all predictions in one place", "o", "#1f5fa8", "#1f5fa8"),
            ("its student, from one secure sum", "o", "#1f5fa8", "white"),
            ("other federated networks", "o", "#8a8a8a", "#8a8a8a"),
        )
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return save(figure, "predictive", quick=quick)


def _dot(
    axis: Any,
    summary: Summary,
    name: str,
    split: str,
    method: str,
    place: int,
    best: float,
) -> None:
    """Draw one method's mean with its standard error, or a number at the edge."""
    values = summary.values("nll", name, split, method)
    lost = float(np.mean(values)) - best
    student = method.startswith("d_")
    colour = COLOURS[method.removeprefix("d_")]
    fill = "white" if student else colour
    height = place - 0.17 if student else place + 0.17 * (method in COMMITTEES)
    if lost > MOST:
        axis.plot([MOST * 1.04], [height], ">", color=colour, mfc=fill, ms=4)
        if not student:  # its number is its teacher's, and stands there
            axis.text(MOST * 1.09, place, f"+{lost:.1f}", fontsize=7, va="center", color=colour)
        return
    axis.errorbar(
        lost, height, xerr=standard_error(values), fmt="o", color=colour, mfc=fill, ms=5, lw=1
    )
