"""Which columns matter: a bar for each column, sorted."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from client_sdk.errors import PlotUnavailable
from client_sdk.plots.axes import new_axes
from client_sdk.readable import readable

MOST = 20
"""The most bars."""
_ALONE, _INTERACTING = "#1f5fa8", "#a9c4e4"
_LONGEST = 32


def draw(
    columns: Sequence[str],
    alone: ArrayLike,
    total: ArrayLike,
    *,
    target: str,
    ax: Any = None,
) -> Any:
    """Draw the first columns' shares of the variance of predictions, and return the Axes.

    alone, total: from 0 to 1, of the column alone, and with its interactions.
    """
    own, whole = np.asarray(alone, np.float64), np.asarray(total, np.float64)
    if not own.shape == whole.shape == (len(columns),):
        raise PlotUnavailable("alone and total must have one number for each column")
    shown = min(len(columns), MOST)
    axes = new_axes(6.4, 1.3 + 0.3 * shown) if ax is None else ax
    places = np.arange(shown)
    axes.barh(places, whole[:shown], height=0.62, color=_INTERACTING, label="with interactions")
    axes.barh(places, own[:shown], height=0.62, color=_ALONE, label="alone")
    for place, value in zip(places.tolist(), whole[:shown].tolist(), strict=True):
        axes.annotate(
            percent(value),
            (value, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color="#5b6775",
        )
    axes.set_yticks(places, labels=[_short(name) for name in columns[:shown]])
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.invert_yaxis()
    most = max(float(whole.max(initial=0.0)), 0.01)
    axes.set(xlim=(0, 1.12 * most), xlabel="share of the variance of predictions")
    axes.xaxis.set_major_formatter(lambda value, _: percent(value))
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", alpha=0.2)
    axes.set_axisbelow(True)
    more = "" if shown == len(columns) else f", the first {shown} of {len(columns)} columns"
    title = f"What {readable(target)} depends on{more}"
    axes.set_title(title, fontsize=11, loc="left", parse_math=False)
    axes.legend(frameon=False, loc="lower right", fontsize=9)
    return axes


def percent(share: float) -> str:
    """Return a share as text; what would be rounded to 0 is named as such.

    >>> percent(0.0004), percent(0.123), percent(0.0)
    ('<0.1 %', '12 %', '0 %')
    """
    if 0 < share < 0.001:
        return "<0.1 %"
    return (
        f"{share:.1%}".replace("%", " %")
        if 0 < share < 0.0995
        else f"{share:.0%}".replace("%", " %")
    )


def _short(name: str) -> str:
    text = readable(name)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
