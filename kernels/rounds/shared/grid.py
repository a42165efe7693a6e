"""Training on grids, so that rounding dies out instead of growing.

Each step of a training amplifies what came before: a difference in the last bit of S becomes a
visible one after a hundred steps, and the last bit depends on how rows are dealt to sites. As in a
chain of digital repeaters, the remedy is not less noise but regeneration. What one step hands to
the next is rounded to a grid that is far coarser than the noise, and far finer than training needs:

- features to about 1/STEPS of the largest and targets to TARGET_STEP, before they are multiplied:
  S, b and yᵀy are then whole multiples of products of steps. float64 adds them without error in any
  order, and what the fixed point of the secure sum does to them (√2 off S's diagonal) the
  coordinator undoes by rounding to the nearest multiple;
- so σ, λ, G_S and G_b are the same, to the last bit, however rows are dealt. Only the gradient is
  not, by about 1e-15; rounding the weights to WEIGHT_STEP after each step of the optimiser takes
  that away.

A difference survives where a value is closer to the middle between two multiples than it is noisy.
With 40,000 weights, 100 sites and 100 steps the expected number of such values is below 1e-2.

The rounded features are features, so S stays a Gram matrix: rounding adds about n·step²/12 to its
eigenvalues, rather than an error of either sign. That is a thousandth of σ²/λ² in a sharp model
(λ²/σ² = 2e5, 3,300 rows). Only phase 1 is on grids: the linear layer that predictions come from is
fitted to features as they are.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from torch import Tensor

from kernels.layer.statistics import Statistics
from kernels.model.model import Model
from kernels.rounds.shared.sufficient import scatter_deviation, statistics_of
from privacy.layout import SecureTotal

STEPS = 2**14
"""Into how many steps the largest cos or sin is divided, or up to twice as many."""
TARGET_STEP = 2.0**-12
"""Of standardised targets: a fifteenth of the least σ, as noise."""
WEIGHT_STEP = 2.0**-16
"""Of kernel weights; the greatest step of the optimiser is a few hundred times that."""

_CERTAIN = 8
"""Deviations that no error of a sum exceeds."""


def on_grid(values: Tensor, step: float) -> Tensor:
    """Round to multiples of a power of two, without a graph.

    >>> import torch
    >>> on_grid(torch.tensor([0.3, -0.9]), 0.25).tolist()
    [0.25, -1.0]
    """
    return values.detach().div(step).round_().mul_(step)


def feature_step(model: Model) -> float:
    """Return the grid of the features: a power of two, by the 1/√m that they are divided by."""
    exponent = math.frexp(1 / math.sqrt(model.kernel.normalising_square))[1]
    return math.ldexp(1 / STEPS, exponent - 1)


def gridded(model: Model, chunks: Iterable[tuple[Tensor, Tensor]]) -> Statistics:
    """Sum over a stream of (features, targets) on their grids: exact, in any order."""
    step = feature_step(model)
    return Statistics.of_chunks(
        (on_grid(features, step), on_grid(targets, TARGET_STEP)) for features, targets in chunks
    )


def regenerated(total: SecureTotal, model: Model) -> Statistics:
    """Return summed statistics as they would be without the rounding of the sum.

    Where so many sites take part that the sum's rounding reaches half a step, it stays declared.
    """
    statistics, step = statistics_of(total, model), feature_step(model)
    certain = _CERTAIN * scatter_deviation(total) < step**2 / 2
    return replace(
        statistics,
        scatter=on_grid(statistics.scatter, step**2),
        cross=on_grid(statistics.cross, step * TARGET_STEP),
        target_squares=on_grid(statistics.target_squares, TARGET_STEP**2),
        rounding=0.0 if certain else statistics.rounding,
    )
