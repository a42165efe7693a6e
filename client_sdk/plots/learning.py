"""The learning curve of a run: metrics over all hospitals, by the number of sums.

A hospital replays every step, with blind sums too, and knows its metrics from the totals
(`client_sdk.events.StepLearnt`): pass a list's `append` as `progress` of `join`, and draw the list.
After an interruption the list has the steps since then.
"""

from collections.abc import Iterable
from typing import Any

from client_sdk.errors import PlotUnavailable
from client_sdk.events import Event, StepLearnt
from client_sdk.plots.axes import new_axes
from client_sdk.readable import readable

_COLOURS = ("#1f5fa8", "#e4572e", "#2f8f5b", "#8a5aa8", "#b8860b", "#333333")
METRICS = "held_out_error", "evidence"
"""What is drawn if nothing is named: the first of these that there is."""


def draw(events: Iterable[Event], metric: str | None = None, *, ax: Any = None) -> Any:
    """Draw a metric of the last run among these events, by sum, and return the Axes.

    events: of which all but `StepLearnt` are ignored. metric: such as "held_out_error".
    """
    steps = [event for event in events if isinstance(event, StepLearnt)]
    steps = [step for step in steps if step.run == steps[-1].run]
    there = list(dict.fromkeys(name for step in steps for name in step.metrics))
    if not there:
        raise PlotUnavailable(
            "there is no step of training among these events: collect them with "
            "join(…, progress=events.append), in a run that trains a kernel"
        )
    name = metric or next((own for own in METRICS if own in there), there[0])
    if name not in there:
        raise PlotUnavailable(
            f"no step has the metric {name!r:.60}; there are {', '.join(map(readable, there))}"
        )
    axes = new_axes(6.4, 4.0) if ax is None else ax
    algorithms = dict.fromkeys(step.algorithm for step in steps if name in step.metrics)
    for number, algorithm in enumerate(algorithms):
        own = {
            step.sums: step.metrics[name]
            for step in steps
            if step.algorithm == algorithm and name in step.metrics
        }
        sums, values = zip(*sorted(own.items()), strict=True)
        colour = _COLOURS[number % len(_COLOURS)]
        label = f"{readable(algorithm)}: {values[-1]:.4g}"
        axes.plot(sums, values, color=colour, lw=2, label=label)
        axes.plot(sums[-1], values[-1], color=colour, marker="o", ms=5)
    words = readable(name).replace("_", " ")
    axes.set(xlabel="sums of the run", ylabel=words)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_title(f"Learning curve: {words}", fontsize=11, loc="left", parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)
    for text in axes.legend(frameon=False, fontsize=9).get_texts():
        text.set_parse_math(False)
    return axes
