"""The pictures: error against what it costs for the three ways of phase 1, and all rows at once."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from benchmarks.datasets import FILES
from benchmarks.fedbnr.families import ROWS
from benchmarks.fedbnr.protocol import CLIENTS
from benchmarks.fedbnr.tables import Results
from benchmarks.pictures import canvas, save

WAYS = {"FedBNR exact": "#1a7f37", "FedBNR": "#1f5fa8", "FedBNR-KD": "#e4572e"}
STYLES = {10: "-", 100: "--"}
MARKERS = {10: "o", 100: "s"}
AXES = {"sums": "secure sums, two a round", "sent": "bytes sent by a client"}


def draw_costs(results: Results, *, quick: bool) -> Path | None:
    """Draw test RMSE so far against sums, and against bytes, set by set."""
    curves = {
        (row, column.dataset, column.clients): found["curve"]
        for (row, column), found in results.cells.items()
        if row in WAYS and column.seed == 0 and "curve" in found
    }
    if not curves:
        return None
    figure, axes = canvas(len(FILES), rows=len(AXES), width=3.4, height=3.0)
    for down, (cost, label) in enumerate(AXES.items()):
        for across, dataset in enumerate(FILES):
            axis = axes[down, across]
            for (row, of, clients), curve in curves.items():
                if of == dataset:
                    best = np.minimum.accumulate(curve["rmse"])
                    style = {"color": WAYS[row], "ls": STYLES[clients], "lw": 1.5}
                    axis.plot(curve[cost], best, label=f"{row}, {clients} clients", **style)
            axis.set(title=dataset if down == 0 else "", xlabel=label, xscale="log", yscale="log")
            _plain(axis.yaxis)
    axes[0, 0].set_ylabel("least test RMSE so far")
    axes[1, 0].set_ylabel("least test RMSE so far")
    _share_legend(figure, axes)
    return save(figure, "fedbnr_costs", quick=quick)


def draw_rows(results: Results, *, quick: bool) -> Path | None:
    """Draw each row's RMSE and ECE, every seed a dot and their mean a stroke."""
    figure, axes = canvas(len(FILES), rows=2, width=3.4, height=3.4)
    drawn = False
    for down, metric in enumerate(("rmse", "ece")):
        for across, dataset in enumerate(FILES):
            axis = axes[down, across]
            for place, row in enumerate(reversed(ROWS)):
                for shift, clients in zip((0.15, -0.15), CLIENTS, strict=True):
                    values = list(results.by_seed(row, metric, dataset, clients).values())
                    if values:
                        drawn = True
                        color = WAYS.get(row, "#555555")
                        height = np.full(len(values), place + shift)
                        axis.plot(values, height, MARKERS[clients], ms=3, alpha=0.5, color=color)
                        axis.plot(np.mean(values), place + shift, "|", ms=8, color=color)
            labels = list(reversed(ROWS)) if across == 0 else [""] * len(ROWS)
            axis.set_yticks(range(len(ROWS)), labels, fontsize=7)
            axis.set(title=dataset if down == 0 else "", xlabel=metric.upper())
            if metric == "rmse":
                axis.set_xscale("log")
                _plain(axis.xaxis)
    clients_of = [
        Line2D([], [], ls="", marker=marker, color="#555555", label=f"{clients} clients")
        for clients, marker in MARKERS.items()
    ]
    figure.legend(handles=clients_of, loc="outside lower center", ncols=len(MARKERS))
    return save(figure, "fedbnr", quick=quick) if drawn else None


def _plain(axis: Any) -> None:
    """Label a logarithmic axis by numbers instead of powers of ten, however short it is."""
    low, high = axis.get_view_interval()
    inner = np.geomspace(low, high, 6)[1:-1]
    axis.set_major_locator(FixedLocator([float(f"{value:.2g}") for value in inner]))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def _share_legend(figure: Any, axes: Any) -> None:
    named: dict[str, Any] = {}
    for axis in axes.flat:
        handles, labels = axis.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    order = sorted(named)
    figure.legend([named[name] for name in order], order, loc="outside lower center", ncols=3)
