"""The calibration curve of a model, from its card: coverage of intervals against their level.

The band contains the curve of a perfectly calibrated model with 95 % probability at each level p,
for n held-out rows: p ± 1.96·√(p(1 − p)/n).
"""

from typing import Any

import numpy as np

from client_sdk.errors import UnknownTarget
from client_sdk.plots.axes import new_axes, percent_axes
from client_sdk.readable import readable
from kernels.errors import UnknownMethod
from kernels.model.card import Card
from kernels.model.card_sections import Evaluation
from kernels.model.model import known

_STYLES = {
    "Gaussian": ("#9aa5b1", "o", 1.4),
    "recalibrated": ("#1f5fa8", "o", 2.0),
    "conformal": ("#e4572e", "s", 2.0),
}


def draw(
    card: Card, target: str | None = None, *, method: str | None = None, ax: Any = None
) -> Any:
    """Draw one target's curves, by default of the first and the default method; return Axes."""
    evaluation = known(card.evaluation, "evaluation")
    names = [each.name for each in card.schema.real]
    if not names:
        raise UnknownTarget("the model has no target that is a real number, and so no intervals")
    if target is not None and target not in names:
        raise UnknownTarget(f"unknown target {target!r:.60}; the model predicts {', '.join(names)}")
    column = 0 if target is None else names.index(target)
    axes = new_axes(5.2, 5.0) if ax is None else ax

    curves = _curves(evaluation, column, method)

    levels, line = np.array(evaluation.levels), np.linspace(0, 1, 201)
    chance = 1.96 * np.sqrt(line * (1 - line) / evaluation.rows)
    axes.fill_between(
        line,
        line - chance,
        line + chance,
        color="#333333",
        alpha=0.08,
        lw=0,
        label="95 % of calibrated models",
    )
    axes.plot([0, 1], [0, 1], color="#333333", lw=1, ls=(0, (4, 3)), zorder=1)
    for name, curve in curves.items():
        colour, marker, width = _STYLES.get(name, _STYLES["recalibrated"])
        error = float(np.abs(levels - np.array(curve))[::2].mean())
        axes.plot(
            levels,
            curve,
            color=colour,
            lw=width,
            marker=marker,
            ms=4,
            label=f"{name}, error {100 * error:.1f} points",
        )
    percent_axes(axes)
    axes.set(xlabel="level of the interval", ylabel="share of held-out rows inside")
    title = f"Calibration of {readable(names[column])}, {evaluation.rows:,} held-out rows"
    axes.set_title(title, fontsize=11, loc="left", parse_math=False)
    axes.legend(frameon=False, loc="upper left", fontsize=9)
    return axes


def _curves(
    evaluation: Evaluation, column: int, method: str | None
) -> dict[str, tuple[float, ...]]:
    if method is not None and method != evaluation.method:
        judged = {each.method: each.quality[column].curve for each in evaluation.others}
        if method not in judged:
            there = ", ".join((evaluation.method, *judged))
            raise UnknownMethod(
                f"the method {method!r:.40} was not evaluated; evaluated methods: {there}"
            )
        return {method: judged[method]}
    curves = {"Gaussian": evaluation.gaussian[column].curve}
    if evaluation.recalibrated is not None:
        curves["recalibrated"] = evaluation.recalibrated[column].curve
    if evaluation.conformal is not None:
        curves["conformal"] = evaluation.conformal[column]
    return curves
