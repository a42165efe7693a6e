"""Survival curves: the probability that the event comes later, against time.

Between edges S is linear, as in the risk at a horizon (`kernels.outcomes.time_to_event`). The band
is one deviation to both sides: how uncertain the model is about S.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from client_sdk.errors import PlotUnavailable
from client_sdk.plots.axes import new_axes
from client_sdk.readable import readable

MOST_LABELLED = 6
"""More curves than these are drawn in one colour, without labels."""
_COLOURS = ("#1f5fa8", "#e4572e", "#2f8f5b", "#8a5aa8", "#b8860b", "#333333")


def draw(
    edges: Sequence[float],
    curves: ArrayLike,
    *,
    title: str,
    unit: str,
    variances: ArrayLike | None = None,
    labels: Sequence[str] | None = None,
    ax: Any = None,
) -> Any:
    """Draw a curve for each row, and return the Axes.

    edges: (J,). curves, variances: (n, J), S at the edges and its variance. labels: of the rows.
    """
    ends, survival = np.asarray(edges, np.float64), np.atleast_2d(np.asarray(curves, np.float64))
    if ends.ndim != 1 or survival.shape[1:] != ends.shape:
        raise PlotUnavailable("curves must have one column for each edge")
    if labels is not None and len(labels) != len(survival):
        raise PlotUnavailable("labels must be one for each curve")
    deviations = np.zeros_like(survival)
    if variances is not None:
        deviations = np.sqrt(np.atleast_2d(np.asarray(variances, np.float64)))
        if deviations.shape != survival.shape:
            raise PlotUnavailable("variances must have the shape of the curves")
    axes = new_axes(6.4, 4.2) if ax is None else ax
    times = np.concatenate([[0.0], ends])
    many = len(survival) > MOST_LABELLED
    for number, (curve, deviation) in enumerate(zip(survival, deviations, strict=True)):
        colour = _COLOURS[0] if many else _COLOURS[number % len(_COLOURS)]
        label = None if many or labels is None else readable(labels[number])
        whole, spread = np.concatenate([[1.0], curve]), np.concatenate([[0.0], deviation])
        axes.plot(times, whole, color=colour, lw=2, alpha=0.35 if many else 1.0, label=label)
        if variances is not None and not many:
            lower, upper = np.clip(whole - spread, 0, 1), np.clip(whole + spread, 0, 1)
            axes.fill_between(times, lower, upper, color=colour, alpha=0.12, lw=0)
    axes.set(xlim=(0, ends[-1]), ylim=(0, 1.02), ylabel="probability of no event")
    axes.set_xlabel(readable(unit), parse_math=False)
    ticks = [0, 0.25, 0.5, 0.75, 1]
    axes.yaxis.set_ticks(ticks, labels=[f"{tick:.0%}" for tick in ticks])
    axes.set_title(f"Survival: {readable(title)}", fontsize=11, loc="left", parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)
    if labels is not None and not many:
        for text in axes.legend(frameon=False, loc="lower left", fontsize=9).get_texts():
            text.set_parse_math(False)
    return axes
