"""New axes to draw on, where matplotlib is installed: only who draws needs it."""

from typing import Any

from client_sdk.errors import PlotUnavailable


def new_axes(width: float, height: float) -> Any:
    """Give the axes of a new figure, so many inches wide and high."""
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as problem:
        raise PlotUnavailable(
            "plots need matplotlib: pip install matplotlib, or pip install 'veilgp[bench]'"
        ) from problem
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]
