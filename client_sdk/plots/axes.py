"""Matplotlib axes as all plots have them; matplotlib is only needed for plots."""

from typing import Any

from client_sdk.errors import PlotUnavailable


def new_axes(width: float, height: float) -> Any:
    """Return the axes of a new figure, `width` by `height` inches."""
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as problem:
        raise PlotUnavailable(
            "plots need matplotlib: pip install matplotlib, or pip install 'veilgp[bench]'"
        ) from problem
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def percent_axes(axes: Any) -> None:
    """Let both axes go from 0 to 100 %, in a square with a light grid."""
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ticks = [0, 0.25, 0.5, 0.75, 1]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, labels=[f"{tick:.0%}" for tick in ticks])
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)
