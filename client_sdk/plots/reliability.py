"""The reliability of predicted probabilities: how often what was predicted has happened.

Rows are binned by their predicted probability. A point of the curve is a bin's mean prediction and
the share of its rows with the event; for a calibrated model the two agree. The bars are where the
share of a calibrated model is with 95 % probability, p ± 1.96·√(p(1 − p)/n), around the diagonal.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from client_sdk.errors import PlotUnavailable
from client_sdk.plots.axes import new_axes, percent_axes
from client_sdk.readable import readable


def draw(
    predicted: Sequence[float],
    observed: Sequence[float],
    rows: Sequence[float],
    *,
    title: str,
    bars: bool = True,
    ax: Any = None,
) -> Any:
    """Draw a curve and the distribution of predictions, and return the Axes.

    predicted, observed, rows: of each bin, the mean prediction, the share of rows with the event
    and the number of rows; bins without rows are left out. bars: False if the share was estimated
    from rows of which some are censored, whose chance is another.
    """
    mean, share, count = (np.asarray(each, np.float64) for each in (predicted, observed, rows))
    if not mean.shape == share.shape == count.shape or mean.ndim != 1:
        raise PlotUnavailable("predicted, observed and rows must have one number for each bin")
    there = count > 0
    mean, share, count = mean[there], share[there], count[there]
    axes = new_axes(5.2, 5.0) if ax is None else ax
    total = float(count.sum())
    heights = count / max(float(count.max(initial=0.0)), 1.0)
    axes.bar(mean, 0.12 * heights, width=0.02, color="#9aa5b1", alpha=0.6, lw=0, label="rows")
    axes.plot([0, 1], [0, 1], color="#333333", lw=1, ls=(0, (4, 3)), zorder=1)
    if bars:
        axes.errorbar(
            mean,
            mean,
            yerr=1.96 * np.sqrt(mean * (1 - mean) / np.maximum(count, 1.0)),
            fmt="none",
            ecolor="#333333",
            alpha=0.3,
            capsize=3,
            label="95 % of calibrated models",
        )
    error = float((count * np.abs(mean - share)).sum() / total) if total else 0.0
    axes.plot(
        mean,
        share,
        color="#1f5fa8",
        lw=2,
        marker="o",
        ms=4,
        label=f"observed, error {100 * error:.1f} points",
    )
    percent_axes(axes)
    axes.set(xlabel="predicted probability", ylabel="share of held-out rows with the event")
    heading = f"Reliability of {readable(title)}, {total:,.0f} held-out rows"
    axes.set_title(heading, fontsize=11, loc="left", parse_math=False)
    axes.legend(frameon=False, loc="upper left", fontsize=9)
    return axes
