"""The common style of this project's pictures: predictions with bands."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib import pyplot
from torch import Tensor

from benchmarks.registry import RESULTS

TRUTH, MEAN, BAND, DATA = "#1f5fa8", "#1a7f37", "#e4572e", "#333333"


def canvas(columns: int, *, rows: int = 1, width: float = 5.0, height: float = 3.6) -> Any:
    """Return a figure and its axes, (rows, columns)."""
    mpl.use("Agg")
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained"
    )
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.2)
    return figure, axes


def draw_prediction(axis: Any, x: Tensor, mean: Tensor, variance: Tensor) -> None:
    """Draw a mean and its 95 % band over one sorted input, all of shape (rows, 1)."""
    x, mean, deviation = x[:, 0], mean[:, 0], 1.959964 * variance[:, 0].sqrt()
    lower, upper = mean - deviation, mean + deviation
    axis.fill_between(x, lower, upper, color=BAND, alpha=0.22, lw=0, label="95 % interval")
    axis.plot(x, mean, color=MEAN, lw=2, label="prediction")


def save(figure: Any, name: str, *, quick: bool) -> Path:
    """Save a figure to the results folder; a quick run does not overwrite a full run's figure."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.quick.png" if quick else RESULTS / f"{name}.png"
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
    return path


def grid(first: float, last: float, count: int) -> Tensor:
    """Return evenly spaced inputs, (count, 1)."""
    return torch.linspace(first, last, count, dtype=torch.float64).unsqueeze(1)
