"""New matplotlib axes; matplotlib is only needed for plots."""

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
