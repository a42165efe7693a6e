"""Plot of the ε spent at this site, sum by sum, with the limit of its policy."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from client_sdk.errors import PlotUnavailable
from client_sdk.plots.axes import new_axes
from client_sdk.readable import readable
from privacy.ledger import Ledger

_POINTS = 100
_COLOURS = ("#1f5fa8", "#e4572e", "#2f8f5b", "#8a5aa8")


def draw(ledgers: Mapping[str, Ledger], *, limited: bool, ax: Any = None) -> Any:
    """Draw a line for each data source and a dashed line for the budget; return the Axes.

    limited: whether the ledgers' budget comes from a policy; otherwise only its δ is used.
    """
    axes = new_axes(6.4, 4.0) if ax is None else ax
    top, most = 0.0, 1
    for number, (source, ledger) in enumerate(ledgers.items()):
        history = [(count, then.spent.epsilon) for count, then in ledger.history(_POINTS)]
        counts, spent = zip((0, 0.0), *history, strict=True)
        colour = _COLOURS[number % len(_COLOURS)]
        label = f"{readable(source)}: ε = {spent[-1]:.4g}"
        axes.step(counts, spent, where="post", color=colour, lw=2, label=label)
        axes.plot(counts[-1], spent[-1], color=colour, marker="o", ms=5)
        top, most = max(top, spent[-1]), max(most, counts[-1])
    budget = next(iter(ledgers.values())).budget
    if limited:
        label = f"limit of the policy: {budget.epsilon:g}"
        axes.axhline(budget.epsilon, color="#333333", lw=1, ls=(0, (4, 3)), label=label)
        top = max(top, budget.epsilon)
    axes.set(
        xlim=(0, 1.03 * most),
        ylim=(0, 1.12 * top),
        xlabel="charged sums",
        ylabel="ε spent on any one unit",
    )
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_title(f"Privacy budget spent, at δ = {budget.delta:g}", fontsize=11, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)
    for text in axes.legend(frameon=False, loc="best", fontsize=9).get_texts():
        text.set_parse_math(False)
    return axes


def write(file: Path, ledgers: Mapping[str, Ledger], *, limited: bool) -> None:
    """Write the plot to a file; the suffix of its name selects the format."""
    figure = draw(ledgers, limited=limited).figure
    try:
        figure.savefig(file, dpi=150)
    except (OSError, ValueError) as problem:
        raise PlotUnavailable(f"cannot write the plot to {file}: {problem}") from problem
    finally:
        from matplotlib import pyplot

        pyplot.close(figure)
