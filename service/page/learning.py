"""Learning curves of a run: its metrics by the number of sums, and where they say that it diverges.

A metric that should fall diverges if it stops being a number, or if a pass ends clearly above where
it began. A pass that ends above its best value has not diverged: the best weights are kept.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from markupsafe import Markup

from service.page.plain_words import metric_name, stage_words
from service.page.plots import steps_plot

Metrics = Mapping[str, Any]
_COUNTERS = ("stage", "sum", "run", "step", "round")
_MARGIN = 0.1
"""By how much of its first value, at least of 1, a metric may end above it."""


@dataclass(frozen=True)
class Curve:
    """One metric of one stage, with a line for each of its passes: numbers of sums and values."""

    algorithm: str
    name: str
    passes: tuple[tuple[tuple[float, float], ...], ...]

    @property
    def diverges(self) -> bool:
        """Whether training has gone wrong by this metric."""
        return metric_name(self.name).falls and any(map(_diverges, self.passes))

    @property
    def plot(self) -> Markup:
        """The plot; empty if there is nothing to draw."""
        name = metric_name(self.name)
        return steps_plot(
            f"{name.title} ({self.algorithm})",
            self.passes,
            by="sum",
            across="number of sums",
            up=name.axis,
            diverges=self.diverges,
        )

    @property
    def warning(self) -> str:
        """What is wrong with it, in a sentence."""
        values = [value for line in self.passes for _, value in line]
        title, last = metric_name(self.name).title, values[-1]
        where = f"{title} in “{stage_words(self.algorithm)}”"
        if not math.isfinite(last):
            return f"{where} is no longer a number."
        low = min(value for value in values if math.isfinite(value))
        return f"{where} rises: the last value is {last:.4g}, the best was {low:.4g}."


@dataclass(frozen=True)
class StepsTable:
    """The metrics of a stage's steps: names of columns, and rows."""

    algorithm: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


def curves(metrics: Iterable[Metrics]) -> list[Curve]:
    """Return a curve for each metric of each stage."""
    found = []
    for told in _by_stage(metrics):
        for name in _figures(told):
            passes: dict[object, list[tuple[float, float]]] = {}
            for each in told:
                # Of a search every recipe is a line.
                line = passes.setdefault((each.get("run"), each.get("recipe")), [])
                if _is_number(each.get(name)):
                    line.append((each["sum"], float(each[name])))
            lines = tuple(tuple(line) for line in passes.values() if line)
            found.append(Curve(str(told[0]["algorithm"]), name, lines))
    return found


def tables(metrics: Iterable[Metrics]) -> list[StepsTable]:
    """Return the metrics of each stage as a table."""
    found = []
    for told in _by_stage(metrics):
        names = [name for name in ("recipe", *_COUNTERS[1:]) if name in told[0]] + _figures(told)
        rows = tuple(tuple(_shown(each.get(name)) for name in names) for each in told)
        columns = tuple(metric_name(name).title for name in names)
        found.append(StepsTable(str(told[0]["algorithm"]), columns, rows))
    return found


def warnings(found: Iterable[Curve]) -> list[str]:
    """Return what is wrong with any of these curves."""
    return [curve.warning for curve in found if curve.diverges]


def _diverges(line: Sequence[tuple[float, float]]) -> bool:
    values = [value for _, value in line]
    if not all(map(math.isfinite, values)):
        return True
    return len(values) > 1 and values[-1] > values[0] + _MARGIN * max(abs(values[0]), 1.0)


def _by_stage(metrics: Iterable[Metrics]) -> list[list[Metrics]]:
    return [list(told) for _, told in groupby(metrics, key=lambda each: each.get("stage"))]


def _figures(told: Sequence[Metrics]) -> list[str]:
    """Return the names of the metrics that any step has; first those that should fall."""
    there = {name for each in told for name in each}
    names = sorted(there, key=lambda name: (not metric_name(name).falls, name))
    return [
        name
        for name in names
        if name not in (*_COUNTERS, "algorithm")
        and any(_is_number(each.get(name)) for each in told)
    ]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> object:
    return f"{value:.5g}" if isinstance(value, float) else "–" if value is None else value
