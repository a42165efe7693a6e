"""Small SVG plots: lines over steps, calibration curves, and reliability of probabilities."""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from service.page.svg import (
    BAND,
    HEIGHT,
    LAST,
    LEFT,
    LINE,
    POINT,
    POLYLINE,
    SIDE,
    TOP,
    WIDTH,
    Frame,
    Points,
    axis_x,
    axis_y,
    figure,
    margin,
    number,
    spread,
    svg,
    text,
    ticks,
)


def steps_plot(
    title: str,
    lines: Sequence[Points],
    *,
    by: str = "step",
    across: str = "",
    up: str = "",
    diverges: bool = False,
) -> Markup:
    """Draw one metric over steps, or over what `by` names, with a line for each pass.

    across, up: the names of the axes. diverges: whether it must look like trouble.

    >>> "<script>" in steps_plot("<script>", [[(0, 1.0), (1, 0.5)]])
    False
    """
    known = [[(x, y) for x, y in line if math.isfinite(y)] for line in lines]
    points = [point for line in known for point in line]
    if not points:
        return Markup("")
    frame = Frame(WIDTH, HEIGHT, spread(x for x, _ in points), margin(spread(y for _, y in points)))
    last = points[-1]
    parts = [axis_y(frame, y, number(y)) for y in ticks(*frame.y)]
    steps = sorted({math.ceil(frame.x[0]), math.floor(frame.x[1])})
    parts += [axis_x(frame, x, str(x)) for x in steps if frame.x[0] <= x <= frame.x[1]]
    for place, line in enumerate(known):
        parts.append(POLYLINE.format(f"line line-{place % 4}", frame.path(line)))
    x, y = frame.at(*last)
    parts.append(LAST.format(x, y))
    said = f"{title} by {by}, last value {number(last[1])}"
    drawing = svg(WIDTH, HEIGHT, said, parts)
    look = "diverging" if diverges else ""
    beside = number(last[1])
    return figure(drawing, title=title, up=up, across=across, beside=beside, look=look)


def calibration_plot(
    title: str, levels: Sequence[float], curves: Mapping[str, Sequence[float]], *, rows: int
) -> Markup:
    """Draw the observed coverage of intervals by nominal level; the diagonal is calibrated.

    The band contains a calibrated model's curve with 95 % probability at each level p, for n
    held-out rows: p ± 1.96·√(p(1 − p)/n).
    """
    frame = Frame(SIDE, SIDE, (0.0, 1.0), (0.0, 1.0))
    line = [i / 40 for i in range(41)]
    chance = [1.96 * math.sqrt(p * (1 - p) / max(rows, 1)) for p in line]
    upper = [(p, min(p + c, 1.0)) for p, c in zip(line, chance, strict=True)]
    lower = [(p, max(p - c, 0.0)) for p, c in zip(line, chance, strict=True)]
    parts = [
        BAND.format(frame.path([*upper, *reversed(lower)])),
        POLYLINE.format("diagonal", frame.path([(0, 0), (1, 1)])),
    ]
    for tick in (0.0, 0.5, 1.0):
        parts += [axis_x(frame, tick, f"{tick:.0%}"), axis_y(frame, tick, f"{tick:.0%}")]
    for place, (name, curve) in enumerate(curves.items()):
        path = frame.path(list(zip(levels, curve, strict=True)))
        y = TOP + 14 + 15 * place
        kind = f"line line-{place}"
        parts += [
            POLYLINE.format(kind, path),
            LINE.format(kind, LEFT + 8, LEFT + 26, y - 4, y - 4),
            text(LEFT + 32, y, "label", name),
        ]
    said = f"{title}: share of {rows} held-out rows inside their intervals, by nominal level"
    up, across = "share of held-out rows inside", "nominal level of the intervals"
    return figure(svg(SIDE, SIDE, said, parts), title=title, up=up, across=across)


def reliability_plot(
    title: str,
    predicted: Sequence[float],
    observed: Sequence[float],
    rows: Sequence[float],
    *,
    shares: bool,
    bars: bool,
) -> Markup:
    """Draw what was observed in groups of rows by what was predicted; the diagonal is calibrated.

    shares: both are probabilities, from 0 to 1; otherwise they are counts. bars: draw where the
    observed share of a calibrated model is with 95 % probability, p ± 1.96·√(p(1 − p)/n) for a
    group of n rows.

    >>> "<b>" in reliability_plot("<b>", [0.5], [0.4], [9.0], shares=True, bars=True)
    False
    """
    groups = [
        (p, seen, n)
        for p, seen, n in zip(predicted, observed, rows, strict=True)
        if math.isfinite(p) and math.isfinite(seen)
    ]
    top = 1.0 if shares else max([*(max(p, seen) for p, seen, _ in groups), 1e-9]) * 1.05
    frame = Frame(SIDE, SIDE, (0.0, top), (0.0, top))
    parts = [
        POLYLINE.format("diagonal", frame.path([(0, 0), (top, top)])),
    ]
    for tick in (0.0, 0.5, 1.0) if shares else ticks(0.0, top):
        label = f"{tick:.0%}" if shares else number(tick)
        parts += [axis_x(frame, tick, label), axis_y(frame, tick, label)]
    for p, _, n in groups if bars else ():
        chance = 1.96 * math.sqrt(max(p * (1 - p), 0.0) / max(n, 1.0))
        x, low = frame.at(p, max(p - chance, 0.0))
        parts.append(
            LINE.format("chance", f"{x:.1f}", f"{x:.1f}", low, frame.at(p, min(p + chance, 1.0))[1])
        )
    points = [(p, seen) for p, seen, _ in groups]
    parts.append(POLYLINE.format("line line-0", frame.path(points)))
    parts += [POINT.format(*frame.at(*point)) for point in points]
    what = "share of rows with the event" if shares else "mean count"
    said = f"{title}: observed {what} by prediction, {sum(rows):.0f} held-out rows"
    across = "predicted probability or risk" if shares else "predicted count"
    return figure(svg(SIDE, SIDE, said, parts), title=title, up=f"observed {what}", across=across)
