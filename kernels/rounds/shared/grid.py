"""Training on grids, so that rounding errors vanish instead of growing.

Each training step amplifies earlier differences: a difference in the last bit of S becomes visible
after a hundred steps, and the last bit depends on how rows are distributed over sites. As in a
chain of digital repeaters, the remedy is not less noise but regeneration. What one step passes to
the next is rounded to a grid that is far coarser than the noise, and far finer than training needs:

- Features are rounded to about 1/STEPS of the largest of their part of the kernel and targets to
  TARGET_STEP, before they are multiplied. S, b and yᵀy are then whole multiples of products of
  steps, which float64 adds without error in any order. The fixed point of the secure sum rounds
  them (off S's diagonal, after a factor √2), and the coordinator undoes that by rounding to the
  nearest multiple.
- σ, λ, G_S and G_b are therefore the same, to the last bit, however rows are distributed. Only the
  gradient differs, by about 1e-15; rounding the weights to WEIGHT_STEP after each optimiser step
  removes that difference.

A difference survives if a value is closer to the midpoint between two multiples than its noise.
With 40,000 weights, 100 sites and 100 steps the expected number of such values is below 1e-2.

S is computed from the rounded features, so it remains a Gram matrix: rounding adds about n·step²/12
to its eigenvalues, rather than an error of either sign. That is a thousandth of σ²/λ² in a sharp
model (λ²/σ² = 2e5, 3,300 rows). Only phase 1 uses grids: the linear layer that makes predictions is
fitted to unrounded features.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from torch import Tensor

from kernels.layer.statistics import Statistics
from kernels.model.model import Model
from kernels.reproducible import on_grid
from kernels.rounds.shared.sufficient import (
    feature_scale,
    scatter_deviation,
    sent_scale,
    statistics_of,
)
from privacy.layout import SecureTotal

STEPS = 2**14
"""The number of steps into which the largest cos or sin is divided, or up to twice as many."""
TARGET_STEP = 2.0**-12
"""The grid of standardised targets; as noise, a fifteenth of the smallest σ."""
WEIGHT_STEP = 2.0**-16
"""The grid of kernel weights; the optimiser's largest step is a few hundred times that."""

CERTAIN = 8
"""The number of standard deviations that no error of a sum exceeds."""


def feature_steps(model: Model) -> Tensor:
    """Return the step of each feature's grid, (M,): powers of two that depend on their scale."""
    return base_step(model) / sent_scale(model)


def base_step(model: Model) -> float:
    """Return the step of features as they are sent, a power of two."""
    exponent = math.frexp(feature_scale(model))[1]
    return math.ldexp(1 / STEPS, exponent - 1)


def gridded(model: Model, chunks: Iterable[tuple[Tensor, Tensor]]) -> Statistics:
    """Sum over a stream of (features, targets) rounded to their grids: exact, in any order."""
    steps = feature_steps(model)
    return Statistics.of_chunks(
        ((on_grid(features, steps), on_grid(targets, TARGET_STEP)) for features, targets in chunks),
        features=model.kernel.features,
        targets=model.targets,
    )


def regenerated(total: SecureTotal, model: Model) -> Statistics:
    """Return the summed statistics as they would be without the rounding of the sum.

    If enough sites take part for the sum's rounding to reach half a step, `rounding` is kept.
    """
    statistics, steps = statistics_of(total, model), feature_steps(model)
    sent = float((steps * sent_scale(model))[0])  # the same for all features, as they are sent
    certain = CERTAIN * scatter_deviation(total) < sent**2 / 2
    return replace(
        statistics,
        scatter=on_grid(statistics.scatter, steps.outer(steps)),
        cross=on_grid(statistics.cross, steps[:, None] * TARGET_STEP),
        target_squares=on_grid(statistics.target_squares, TARGET_STEP**2),
        rounding=0.0 if certain else statistics.rounding,
    )
