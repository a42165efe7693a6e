"""The picture: NLL against the number of training rows, ours and the central process."""

from pathlib import Path

import numpy as np

from benchmarks.auto.figures import Done, Points
from benchmarks.auto.plan import AUTO, CENTRAL_GP
from benchmarks.pictures import MEAN, TRUTH, canvas, save

_LOOK = {AUTO: (MEAN, "o", "auto, ten members"), CENTRAL_GP: (TRUTH, "s", "central exact GP")}


def draw_curve(done: Done, points: Points, *, quick: bool) -> Path | None:
    """Draw each seed as a dot and their mean as a line; None if nothing of it was measured."""
    measured = {
        key: [done[cell]["nll"] for cell in cells]
        for key, cells in points.items()
        if all(cell in done for cell in cells)
    }
    if not measured:
        return None
    names = list(dict.fromkeys(name for name, _, _ in points))
    figure, axes = canvas(len(names), width=4.0, height=3.4)
    for axis, name in zip(axes[0], names, strict=True):
        for method, (color, marker, label) in _LOOK.items():
            own = {rows: v for (of, by, rows), v in measured.items() if (of, by) == (name, method)}
            if not own:
                continue
            means = [np.mean(values) for values in own.values()]
            axis.plot(list(own), means, color=color, marker=marker, ms=5, lw=1.8, label=label)
            for rows, values in own.items():
                axis.plot([rows] * len(values), values, marker, color=color, ms=3, alpha=0.4)
        asked = sorted({rows for of, _, rows in points if of == name})
        axis.set(title=name, xlabel="training rows in all", xscale="log")
        axis.set_xticks(asked, [f"{rows:,}" for rows in asked])
        axis.set_xticks([], minor=True)
    axes[0, 0].set_ylabel("NLL of test rows, nats")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return save(figure, "auto", quick=quick)
