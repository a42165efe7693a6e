"""Small SVG plots: lines over steps, calibration curves, and reliability of probabilities.

They contain no colours or styles, only classes (`templates/page.css`): the page's policy allows no
inline styles, and light and dark colours are defined in one place. Every text is escaped.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 320, 190
_SIDE = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 20, 26, 26

# Markup.format escapes its arguments.
_SVG = Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
_TEXT = Markup('<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>')
_LINE = Markup('<line class="{}" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>')
_POLYLINE = Markup('<polyline class="{}" points="{}"/>')
_BAND = Markup('<polygon class="band" points="{}"/>')
_POINT = Markup('<circle class="point" cx="{:.1f}" cy="{:.1f}" r="3"/>')
_LAST = Markup('<circle class="last" cx="{:.1f}" cy="{:.1f}" r="3"/>')


@dataclass(frozen=True)
class _Frame:
    """A rectangle of the drawing and the ranges of x and y that it shows."""

    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the position of a point in the drawing."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        inner = self.width - _LEFT - _RIGHT, self.height - _TOP - _BOTTOM
        return _LEFT + across * inner[0], self.height - _BOTTOM - up * inner[1]

    def path(self, points: Points) -> str:
        """Return the points of a polyline, as in SVG's `points`."""
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.at(*point) for point in points))


def steps_plot(title: str, lines: Sequence[Points]) -> Markup:
    """Draw one metric over steps, with a line for each pass.

    >>> "<script>" in steps_plot("<script>", [[(0, 1.0), (1, 0.5)]])
    False
    """
    known = [[(x, y) for x, y in line if math.isfinite(y)] for line in lines]
    points = [point for line in known for point in line]
    if not points:
        return Markup("")
    frame = _Frame(
        _WIDTH, _HEIGHT, _spread(x for x, _ in points), _margin(_spread(y for _, y in points))
    )
    last = points[-1]
    parts = [_text(_LEFT, 15, "title", title)]
    parts += [_axis_y(frame, y, _number(y)) for y in _ticks(*frame.y)]
    steps = sorted({math.ceil(frame.x[0]), math.floor(frame.x[1])})
    parts += [_axis_x(frame, x, str(x)) for x in steps if frame.x[0] <= x <= frame.x[1]]
    for number, line in enumerate(known):
        parts.append(_POLYLINE.format(f"line line-{number % 4}", frame.path(line)))
    x, y = frame.at(*last)
    parts.append(_LAST.format(x, y))
    return _svg(_WIDTH, _HEIGHT, f"{title} by step, last value {_number(last[1])}", parts)


def calibration_plot(
    title: str, levels: Sequence[float], curves: Mapping[str, Sequence[float]], *, rows: int
) -> Markup:
    """Draw the observed coverage of intervals by nominal level; the diagonal is calibrated.

    The band contains a calibrated model's curve with 95 % probability at each level p, for n
    held-out rows: p ± 1.96·√(p(1 − p)/n).
    """
    frame = _Frame(_SIDE, _SIDE, (0.0, 1.0), (0.0, 1.0))
    line = [i / 40 for i in range(41)]
    chance = [1.96 * math.sqrt(p * (1 - p) / max(rows, 1)) for p in line]
    upper = [(p, min(p + c, 1.0)) for p, c in zip(line, chance, strict=True)]
    lower = [(p, max(p - c, 0.0)) for p, c in zip(line, chance, strict=True)]
    parts = [
        _text(_LEFT, 15, "title", title),
        _BAND.format(frame.path([*upper, *reversed(lower)])),
        _POLYLINE.format("diagonal", frame.path([(0, 0), (1, 1)])),
    ]
    for tick in (0.0, 0.5, 1.0):
        parts += [_axis_x(frame, tick, f"{tick:.0%}"), _axis_y(frame, tick, f"{tick:.0%}")]
    for number, (name, curve) in enumerate(curves.items()):
        path = frame.path(list(zip(levels, curve, strict=True)))
        y = _TOP + 14 + 15 * number
        kind = f"line line-{number}"
        parts += [
            _POLYLINE.format(kind, path),
            _LINE.format(kind, _LEFT + 8, _LEFT + 26, y - 4, y - 4),
            _text(_LEFT + 32, y, "label", name),
        ]
    said = f"{title}: share of {rows} held-out rows inside their intervals, by nominal level"
    return _svg(_SIDE, _SIDE, said, parts)


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
    frame = _Frame(_SIDE, _SIDE, (0.0, top), (0.0, top))
    parts = [
        _text(_LEFT, 15, "title", title),
        _POLYLINE.format("diagonal", frame.path([(0, 0), (top, top)])),
    ]
    for tick in (0.0, 0.5, 1.0) if shares else _ticks(0.0, top):
        label = f"{tick:.0%}" if shares else _number(tick)
        parts += [_axis_x(frame, tick, label), _axis_y(frame, tick, label)]
    for p, _, n in groups if bars else ():
        chance = 1.96 * math.sqrt(max(p * (1 - p), 0.0) / max(n, 1.0))
        x, low = frame.at(p, max(p - chance, 0.0))
        parts.append(
            _LINE.format(
                "chance", f"{x:.1f}", f"{x:.1f}", low, frame.at(p, min(p + chance, 1.0))[1]
            )
        )
    points = [(p, seen) for p, seen, _ in groups]
    parts.append(_POLYLINE.format("line line-0", frame.path(points)))
    parts += [_POINT.format(*frame.at(*point)) for point in points]
    what = "share of rows with the event" if shares else "mean count"
    said = f"{title}: observed {what} by prediction, {sum(rows):.0f} held-out rows"
    return _svg(_SIDE, _SIDE, said, parts)


def _svg(width: int, height: int, said: str, parts: Iterable[Markup]) -> Markup:
    return _SVG.format(width, height, said, Markup("").join(parts))


def _text(x: float, y: float, kind: str, text: str) -> Markup:
    return _TEXT.format(kind, x, y, text)


def _axis_x(frame: _Frame, x: float, label: str) -> Markup:
    at, _ = frame.at(x, frame.y[0])
    return _text(at, frame.height - 8, "tick-x", label)


def _axis_y(frame: _Frame, y: float, label: str) -> Markup:
    _, at = frame.at(frame.x[0], y)
    return _LINE.format("grid", _LEFT, frame.width - _RIGHT, at, at) + _text(
        _LEFT - 6, at + 4, "tick-y", label
    )


def _spread(values: Iterable[float]) -> tuple[float, float]:
    known = list(values)
    low, high = min(known), max(known)
    if high > low:
        return low, high
    wide = abs(low) / 10 or 0.5
    return low - wide, high + wide


def _margin(spread: tuple[float, float]) -> tuple[float, float]:
    wide = (spread[1] - spread[0]) / 12
    return spread[0] - wide, spread[1] + wide


def _ticks(low: float, high: float) -> list[float]:
    """Return two to five round numbers between `low` and `high`.

    >>> _ticks(0.12, 0.87)
    [0.2, 0.4, 0.6, 0.8]
    """
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def _number(value: float) -> str:
    return f"{value:.4g}"
