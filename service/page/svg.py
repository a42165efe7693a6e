"""What plots are made of: a figure with its title and the names of its axes around a drawing.

Names are text of the page, which wraps and does not shrink with the drawing.

They contain no colours or styles, only classes (`templates/page.css`): the page's policy allows no
inline styles, and light and dark colours are defined in one place. Every text is escaped.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 360, 180
SIDE = 300
LEFT, RIGHT, TOP, BOTTOM = 46, 18, 10, 24

# Markup.format escapes its arguments.
_SVG = Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
_FIGURE = Markup(
    '<figure class="chart{}"><figcaption><strong>{}</strong>{} <span class="axis">{}</span>'
    '</figcaption>{}<p class="axis across">{}</p></figure>'
)
_BESIDE = Markup('<span class="share">{}</span>')
_TEXT = Markup('<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>')
LINE = Markup('<line class="{}" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>')
POLYLINE = Markup('<polyline class="{}" points="{}"/>')
BAND = Markup('<polygon class="band" points="{}"/>')
POINT = Markup('<circle class="point" cx="{:.1f}" cy="{:.1f}" r="3"/>')
LAST = Markup('<circle class="last" cx="{:.1f}" cy="{:.1f}" r="3"/>')


@dataclass(frozen=True)
class Frame:
    """A rectangle of the drawing and the ranges of x and y that it shows."""

    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the position of a point in the drawing."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        inner = self.width - LEFT - RIGHT, self.height - TOP - BOTTOM
        return LEFT + across * inner[0], self.height - BOTTOM - up * inner[1]

    def path(self, points: Points) -> str:
        """Return the points of a polyline, as in SVG's `points`."""
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.at(*point) for point in points))


def svg(width: int, height: int, said: str, parts: Iterable[Markup]) -> Markup:
    """Return a drawing with what it shows in words."""
    return _SVG.format(width, height, said, Markup("").join(parts))


def figure(
    drawing: Markup, *, title: str, up: str, across: str, beside: str = "", look: str = ""
) -> Markup:
    """Return a drawing with its title, the names of both axes, and a figure beside the title."""
    return _FIGURE.format(
        f" {look}" if look else "",
        title,
        _BESIDE.format(beside) if beside else "",
        f"↑ {up}" if up else "",
        drawing,
        f"{across} →" if across else "",
    )


def text(x: float, y: float, kind: str, words: str) -> Markup:
    """Return a text of a class at a position."""
    return _TEXT.format(kind, x, y, words)


def axis_x(frame: Frame, x: float, label: str) -> Markup:
    """Return the label of a place on the horizontal axis."""
    at, _ = frame.at(x, frame.y[0])
    return text(at, frame.height - 8, "tick-x", label)


def axis_y(frame: Frame, y: float, label: str) -> Markup:
    """Return a line across the drawing with its label."""
    _, at = frame.at(frame.x[0], y)
    return LINE.format("grid", LEFT, frame.width - RIGHT, at, at) + text(
        LEFT - 6, at + 4, "tick-y", label
    )


def spread(values: Iterable[float]) -> tuple[float, float]:
    """Return the range of values, wider than nothing."""
    known = list(values)
    low, high = min(known), max(known)
    if high > low:
        return low, high
    wide = abs(low) / 10 or 0.5
    return low - wide, high + wide


def margin(ends: tuple[float, float]) -> tuple[float, float]:
    """Return a range that is a little wider."""
    wide = (ends[1] - ends[0]) / 12
    return ends[0] - wide, ends[1] + wide


def ticks(low: float, high: float) -> list[float]:
    """Return two to six round numbers between `low` and `high`.

    >>> ticks(0.12, 0.87)
    [0.2, 0.4, 0.6, 0.8]
    """
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def number(value: float) -> str:
    """Return a number in four digits."""
    return f"{value:.4g}"
