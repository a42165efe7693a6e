"""What each column does: the mean prediction along a column, with the band of its uncertainty.

The band is two deviations of the mean to both sides: how uncertain the model is about the average
over its reference rows (`kernels.model.effects`), and not how far patients are from it.
"""

import math
import textwrap
from collections.abc import Sequence
from itertools import chain
from typing import Any

from client_sdk.errors import PlotUnavailable
from client_sdk.plots.axes import new_axes
from client_sdk.plots.importance import percent
from client_sdk.readable import readable
from kernels.model.effects import ColumnEffect, TargetEffect
from kernels.tables.schema import Categorical
from kernels.tables.targets import AnyTarget, Binary, Classes, Count, TimeToEvent

_ACROSS = 3
_COLOURS = ("#1f5fa8", "#e4572e", "#2f8f5b", "#8a5aa8", "#b8860b", "#333333")
MOST_LEVELS = 12
"""The most levels of a categorical column, and the most classes, that are drawn."""
_LONGEST = 12
_FITS = 44
"""The letters that fit below a panel."""


def draw(each: Sequence[ColumnEffect], target: str, *, ax: Any = None) -> Any:
    """Draw each column's curve for one target, on one scale; return an Axes for each column.

    ax: the Axes of a single column's curve, which is then returned itself.
    """
    if not each or (ax is not None and len(each) != 1):
        raise PlotUnavailable("pass at least one column's effect, and with `ax` exactly one")
    panels = [ax] if ax is not None else _panels(len(each))
    effects = [own.of(target) for own in each]
    low, high = _limits(effects)
    for axes, column, effect in zip(panels, each, effects, strict=True):
        _panel(axes, column, effect)
        axes.set_ylim(low, high)
    if ax is not None:
        panels[0].set_ylabel(quantity(effects[0].target), fontsize=9, parse_math=False)
        return ax
    figure = panels[0].figure
    figure.suptitle(
        f"What each column does to {readable(target)}",
        fontsize=12,
        x=0.01,
        ha="left",
        parse_math=False,
    )
    figure.supylabel(quantity(effects[0].target), fontsize=9, parse_math=False)
    note = (
        "lines: average over public reference rows; bands: ±2 deviations of this average, by the "
        "model\npercentages: the column's share of the variance of predictions, with interactions"
    )
    figure.supxlabel(note, fontsize=8.5, color="#5b6775")
    levels = effects[0].levels[:MOST_LEVELS]
    if levels:
        handles = panels[0].get_lines()[: len(levels)]
        legend = figure.legend(
            handles,
            [readable(name) for name in levels],
            loc="outside upper right",
            ncols=4,
            frameon=False,
            fontsize=9,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    return panels


def quantity(target: AnyTarget) -> str:
    """Return in words what a curve's height is."""
    name = readable(target.name)
    match target:
        case Binary():
            return f"mean probability of {name} = {readable(target.event)}"
        case Classes():
            return f"mean probability of each level of {name}"
        case Count():
            return f"mean expected number of {name}, for an exposure of 1"
        case TimeToEvent():
            horizon = f"{target.risk_at:g} {readable(target.unit)}"
            return f"mean risk of {readable(target.event)} by {horizon}"
    return f"mean {name}, {readable(target.unit)}"


def _panels(count: int) -> list[Any]:
    across = min(count, _ACROSS)
    down = math.ceil(count / across)
    first = new_axes(3.1 * across + 0.6, 2.5 * down + 0.9)
    figure = first.figure
    figure.clear()
    found = list(chain.from_iterable(figure.subplots(down, across, squeeze=False, sharey=True)))
    for unused in found[count:]:
        unused.remove()
    return found[:count]


def _limits(effects: Sequence[TargetEffect]) -> tuple[float, float]:
    """Return the range of heights that contains all bands; probabilities stay within 0 and 1."""
    low = min(float((own.mean - 2 * own.deviation).min()) for own in effects)
    high = max(float((own.mean + 2 * own.deviation).max()) for own in effects)
    margin = 0.05 * (high - low) or abs(high) / 10 or 0.5
    low, high = low - margin, high + margin
    match effects[0].target:
        case Binary() | Classes() | TimeToEvent():
            return max(low, 0.0), min(high, 1.0)
        case Count():
            return max(low, 0.0), high
    return low, high


def _panel(axes: Any, column: ColumnEffect, effect: TargetEffect) -> None:
    curves = list(zip(effect.mean.T.tolist(), effect.deviation.T.tolist(), strict=True))
    for number, (mean, deviation) in enumerate(curves[:MOST_LEVELS]):
        colour = _COLOURS[number % len(_COLOURS)]
        if isinstance(column.column, Categorical):
            shift = 0.12 * (number - (min(len(curves), MOST_LEVELS) - 1) / 2)
            _points(axes, range(min(len(mean), MOST_LEVELS)), mean, deviation, colour, shift)
        else:
            shift = 0.04 * (number - (min(len(curves), MOST_LEVELS) - 1) / 2)
            _curve(axes, column, mean, deviation, colour, shift)
    if isinstance(column.column, Categorical):
        names = [_wrapped("missing" if cell is None else str(cell)) for cell in column.cells]
        places = range(min(len(names), MOST_LEVELS))
        axes.set_xticks(places, labels=names[:MOST_LEVELS], fontsize=8)
        axes.set_xlim(-0.6, len(places) - 0.4)
        if max(max(map(len, name.split("\n"))) for name in names) * len(places) > _FITS:
            axes.tick_params(axis="x", rotation=40)
        for label in axes.get_xticklabels():
            label.set_parse_math(False)
        unit = ""
    else:
        unit = "" if column.column.unit == "1" else f", {readable(column.column.unit)}"
    title = f"{readable(column.column.name)}{unit}"
    axes.set_title(title, fontsize=10, loc="left", parse_math=False)
    axes.set_title(percent(effect.total), fontsize=9, loc="right", color="#5b6775")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)
    axes.tick_params(labelsize=8)
    if isinstance(effect.target, Binary | Classes | TimeToEvent):
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")


def _curve(
    axes: Any,
    column: ColumnEffect,
    mean: list[float],
    deviation: list[float],
    colour: str,
    shift: float,
) -> None:
    cells = [cell for cell in column.cells if isinstance(cell, float)]
    lower = [m - 2 * d for m, d in zip(mean, deviation, strict=True)][: len(cells)]
    upper = [m + 2 * d for m, d in zip(mean, deviation, strict=True)][: len(cells)]
    axes.plot(cells, mean[: len(cells)], color=colour, lw=2)
    axes.fill_between(cells, lower, upper, color=colour, alpha=0.15, lw=0)
    axes.margins(x=0.02)
    axes.xaxis.get_major_locator().set_params(nbins=5)
    if len(cells) < len(mean):  # the cell is missing
        wide = cells[-1] - cells[0]
        place = cells[-1] + 0.16 * wide
        _points(axes, [place], mean[-1:], deviation[-1:], colour, shift * wide)
        inside = [
            tick
            for tick in axes.xaxis.get_major_locator().tick_values(cells[0], cells[-1])
            if cells[0] <= tick <= cells[-1] - 0.05 * wide
        ]
        axes.set_xticks([*inside, place], labels=[*(f"{tick:g}" for tick in inside), "missing"])
        axes.set_xlim(cells[0] - 0.03 * wide, place + 0.12 * wide)


def _points(
    axes: Any,
    places: Sequence[float],
    mean: Sequence[float],
    deviation: Sequence[float],
    colour: str,
    shift: float,
) -> None:
    """Draw a point and its band for each place."""
    at = [place + shift for place in places]
    heights, spreads = mean[: len(at)], [2 * own for own in deviation[: len(at)]]
    axes.plot(at, heights, color=colour, marker="o", ms=5, lw=0)
    axes.errorbar(at, heights, yerr=spreads, fmt="none", ecolor=colour, elinewidth=5, alpha=0.25)


def _wrapped(name: str) -> str:
    """Return a level in at most two lines."""
    first, *more = textwrap.wrap(readable(name), _LONGEST) or [""]
    return (
        first
        if not more
        else f"{first}\n{textwrap.shorten(' '.join(more), _LONGEST, placeholder='…')}"
    )
