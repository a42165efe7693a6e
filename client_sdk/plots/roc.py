"""The receiver operating characteristic: true against false positives, at every threshold."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from client_sdk.errors import PlotUnavailable
from client_sdk.plots.axes import new_axes, percent_axes
from client_sdk.readable import readable


def draw(
    false_positives: Sequence[float],
    true_positives: Sequence[float],
    *,
    title: str,
    ax: Any = None,
) -> Any:
    """Draw a curve with the area below it, and return the Axes.

    false_positives, true_positives: the share of rows without and with the event above each
    threshold, rising from 0 to 1; between thresholds the curve is straight.
    """
    wrong, right = (np.asarray(each, np.float64) for each in (false_positives, true_positives))
    if wrong.shape != right.shape or wrong.ndim != 1 or not len(wrong):
        raise PlotUnavailable("both shares must have one number for each threshold")
    if (np.diff(wrong) < 0).any() or (np.diff(right) < 0).any():
        raise PlotUnavailable("both shares must rise: order them by falling threshold")
    # The ends belong to thresholds that no row, and that every row, is above.
    wrong, right = (np.concatenate([[0.0], each, [1.0]]) for each in (wrong, right))
    area = float(np.trapezoid(right, wrong))
    axes = new_axes(5.2, 5.0) if ax is None else ax
    axes.fill_between(wrong, right, color="#1f5fa8", alpha=0.08, lw=0)
    axes.plot([0, 1], [0, 1], color="#333333", lw=1, ls=(0, (4, 3)), zorder=1)
    axes.plot(wrong, right, color="#1f5fa8", lw=2, label=f"area {area:.3f}")
    percent_axes(axes)
    axes.set(
        xlabel="rows without the event above the threshold",
        ylabel="rows with the event above the threshold",
    )
    axes.set_title(f"ROC of {readable(title)}", fontsize=11, loc="left", parse_math=False)
    axes.legend(frameon=False, loc="lower right", fontsize=9)
    return axes
