"""Plots of what columns do to a model's predictions: a curve for each column, and sorted bars."""

from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup

from kernels.model.effects import ColumnEffect, TargetEffect
from kernels.tables.schema import Categorical
from service.page.svg import (
    HEIGHT,
    WIDTH,
    Frame,
    axis_x,
    axis_y,
    figure,
    number,
    svg,
    text,
    ticks,
)

MOST_LEVELS = 8
"""The most levels of a column, and the most classes, that a plot has room for."""
STYLES = 6
"""The number of styles of lines (`templates/page.css`)."""
_DEVIATIONS = 2.0
_LONGEST_NAME = 20
_LETTERS = 40
_NAMES, _BARS, _ROW = 132, 132, 20
_FOR_MISSING = 0.2
"""The part of the width, beside a curve, for the point of a missing cell."""

_BAND = Markup('<polygon class="band band-{}" points="{}"/>')
_CURVE = Markup('<polyline class="line line-{}" points="{}"/>')
_DOT = Markup('<circle class="dot dot-{}" cx="{:.1f}" cy="{:.1f}" r="3.5"/>')
_SPREAD = Markup('<line class="spread spread-{}" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>')
_BAR = Markup('<rect class="{}" x="{}" y="{:.1f}" width="{:.1f}" height="{}" rx="2"/>')
_WHOLE = Markup("<title>{}</title>")
_NAMED = Markup('<g>{}<text class="name" x="{}" y="{:.1f}">{}</text></g>')


def limits(effects: Sequence[TargetEffect], *, shares: bool) -> tuple[float, float]:
    """Return the range of heights that contains the bands of all curves.

    shares: heights are probabilities, and the range stays between 0 and 1.
    """
    low = min(float((own.mean - _DEVIATIONS * own.deviation).min()) for own in effects)
    high = max(float((own.mean + _DEVIATIONS * own.deviation).max()) for own in effects)
    wide = (high - low) / 12 or abs(high) / 10 or 0.5
    low, high = low - wide, high + wide
    return (max(low, 0.0), min(high, 1.0)) if shares else (low, high)


def effect_plot(
    column: ColumnEffect, effect: TargetEffect, heights: tuple[float, float], *, shares: bool
) -> Markup:
    """Draw one column's curves for one target, with bands of two deviations.

    heights: the range that is shown, the same for all columns, so that plots can be compared.
    """
    by_level = isinstance(column.column, Categorical)
    cells = column.cells[:MOST_LEVELS] if by_level else column.cells
    numbers = [cell for cell in cells if isinstance(cell, float)]
    if by_level:
        across = (-0.6, len(cells) - 0.4)
    else:
        wide = numbers[-1] - numbers[0]
        across = (numbers[0], numbers[-1] + _FOR_MISSING * wide * (len(numbers) < len(cells)))
    frame = Frame(WIDTH, HEIGHT, across, heights)
    parts = [axis_y(frame, y, _height(y, shares=shares)) for y in _heights(heights, shares=shares)]
    parts += _labels(frame, cells, numbers)
    curves = list(zip(effect.mean.T.tolist(), effect.deviation.T.tolist(), strict=True))
    for style, (mean, deviation) in enumerate(curves[:MOST_LEVELS]):
        ends = [
            (_within(m - _DEVIATIONS * d, heights), _within(m + _DEVIATIONS * d, heights))
            for m, d in zip(mean, deviation, strict=True)
        ]
        look, shift = style % STYLES, style - (min(len(curves), MOST_LEVELS) - 1) / 2
        line = list(zip(numbers, mean, strict=False))
        if numbers:
            lower = [(x, low) for x, (low, _) in zip(numbers, ends, strict=False)]
            upper = [(x, high) for x, (_, high) in zip(numbers, ends, strict=False)]
            parts.append(_BAND.format(look, frame.path([*upper, *reversed(lower)])))
            parts.append(_CURVE.format(look, frame.path(line)))
        for place in range(len(numbers), len(cells)):
            x = place + 0.13 * shift
            if not by_level:
                x = across[1] - (0.4 * _FOR_MISSING - 0.03 * shift) * (numbers[-1] - numbers[0])
            at, low = frame.at(x, ends[place][0])
            parts.append(_SPREAD.format(look, at, at, low, frame.at(x, ends[place][1])[1]))
            parts.append(_DOT.format(look, *frame.at(x, mean[place])))
    drawing = svg(WIDTH, HEIGHT, _said(column, effect, shares=shares), parts)
    name = column.column.name
    named = f"{name}{_unit(column)}"
    return figure(drawing, title=name, up="", across=named, beside=percent(effect.total))


def importance_plot(
    target: str, names: Sequence[str], alone: Sequence[float], total: Sequence[float]
) -> Markup:
    """Draw a bar for each column: its share alone, and beyond it that of its interactions.

    >>> "<b>" in importance_plot("stay", ["<b>"], [0.2], [0.3])
    False
    """
    most = max([*total, 0.01])
    height = _ROW * len(names) + 6
    parts = []
    for place, (name, own, whole) in enumerate(zip(names, alone, total, strict=True)):
        top = 3 + _ROW * place
        hint = _WHOLE.format(f"{name}: {percent(own)} alone, {percent(whole)} with interactions")
        parts.append(_NAMED.format(hint, _NAMES - 8, top + 13.0, _short(name, _LONGEST_NAME)))
        wide = _BARS * whole / most
        parts.append(_BAR.format("bar interacting", _NAMES, top + 3, wide, _ROW - 6))
        parts.append(_BAR.format("bar alone", _NAMES, top + 3, _BARS * own / most, _ROW - 6))
        parts.append(text(_NAMES + wide + 6, top + 13, "label", percent(whole)))
    said = ", ".join(f"{name} {percent(own)}" for name, own in zip(names, total, strict=True))
    return svg(WIDTH, height, f"What {target} depends on: {said}", parts)


def percent(share: float) -> str:
    """Return a share as text; a small one is not shown as 0.

    >>> percent(0.0004), percent(0.0123), percent(0.123), percent(0.0)
    ('<0.1 %', '1.2 %', '12 %', '0 %')
    """
    if 0 < share < 0.001:
        return "<0.1 %"
    digits = 1 if 0 < share < 0.0995 else 0
    return f"{100 * share:.{digits}f} %"


def _unit(column: ColumnEffect) -> str:
    own = column.column
    return "" if isinstance(own, Categorical) or own.unit == "1" else f" ({own.unit})"


def _labels(frame: Frame, cells: Sequence[object], numbers: Sequence[float]) -> list[Markup]:
    """Return the labels below the curves."""
    if not numbers:
        most = max(3, int(_LETTERS / len(cells)))
        return [
            label
            for place, cell in enumerate(cells)
            for label in _lines(frame, place, "missing" if cell is None else str(cell), most)
        ]
    places = ticks(numbers[0], numbers[-1])
    if len(numbers) == len(cells):
        return [axis_x(frame, x, number(x)) for x in places]
    wide = numbers[-1] - numbers[0]
    missing = axis_x(frame, numbers[-1] + 0.6 * _FOR_MISSING * wide, "missing")
    room = numbers[-1] - 0.06 * wide
    return [axis_x(frame, x, number(x)) for x in places if x <= room] + [missing]


def _lines(frame: Frame, place: int, name: str, most: int) -> list[Markup]:
    """Return a level below its place, in two lines if one has no room for it."""
    first, _, second = name.partition(" ")
    at, bottom = frame.at(place, frame.y[0])
    if len(name) <= most or not second:
        return [text(at, bottom + 14, "tick-x", _short(name, most))]
    return [
        text(at, bottom + 12, "tick-x", _short(first, most)),
        text(at, bottom + 23, "tick-x", _short(second, most)),
    ]


def _heights(ends: tuple[float, float], *, shares: bool) -> list[float]:
    """Return the heights that have a line."""
    if shares and ends[1] - ends[0] > 0.6:
        return [tick for tick in (0.0, 0.25, 0.5, 0.75, 1.0) if ends[0] <= tick <= ends[1]]
    return ticks(*ends)


def _said(column: ColumnEffect, effect: TargetEffect, *, shares: bool) -> str:
    """Return in words where the curve begins, turns and ends."""
    name, target = column.column.name, effect.target.name
    if effect.levels:
        return f"Mean probability of each {target} by {name}"
    heights = effect.mean[:, 0].tolist()
    points = list(zip(column.cells, heights, strict=True))
    if not isinstance(column.column, Categorical):
        numeric = [point for point in points if point[0] is not None]
        slopes = [after[1] - before[1] for before, after in pairwise(numeric)]
        turns = [
            numeric[place + 1]
            for place, (before, after) in enumerate(pairwise(slopes))
            if before * after < 0
        ]
        points = [numeric[0], *turns[:3], numeric[-1], *points[len(numeric) :]]
    told = ", ".join(
        f"{_height(height, shares=shares)} at "
        + (f"{cell:.4g}" if isinstance(cell, float) else "missing" if cell is None else str(cell))
        for cell, height in points[: MOST_LEVELS + 1]
    )
    return f"Mean {target} by {name}: {told}"


def _height(value: float, *, shares: bool) -> str:
    return f"{100 * value:.3g} %" if shares else number(value)


def _within(value: float, ends: tuple[float, float]) -> float:
    return min(max(value, ends[0]), ends[1])


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
