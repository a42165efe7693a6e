"""The linear layer's statistics as blocks of a sum, with the bounds that follow from the kernel.

|φ_i φ_j| is at most the square of the largest feature, 1/m for cos and sin divided by √m, so
|S_ij| ≤ n/m; with standardised targets within ±TARGET_BOUND, |b_i| ≤ n·TARGET_BOUND/√m.
Features without a bound of their own get FEATURE_BOUND, and a value beyond it fails the run.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from kernels.chunks import CHUNK_ROWS
from kernels.linear import rounding_of
from kernels.rounds.algorithm import Contribution
from kernels.rounds.model import Model
from kernels.rounds.site import Part, Site
from kernels.statistics import Statistics
from privacy.layout import Block, SecureTotal

TARGET_BOUND = 100.0
"""Standardised targets are within so many deviations of their mean, or the run fails by name."""
FEATURE_BOUND = 100.0
"""The same for the features of kernels that have no bound of their own."""
RESOLUTION = 2.0**-30
"""The coarsest step of S and b: 2e-5 predictive deviations in the mean (findings)."""
SQUARES_RESOLUTION = 2.0**-16
"""The coarsest step of sums of squared targets or errors, of which only means are used."""


def feature_bound(model: Model) -> float:
    """Return the largest absolute value of one feature."""
    if model.kernel.squared_norm_bound is None:
        return FEATURE_BOUND
    return 1 / math.sqrt(model.kernel.normalising_square)


def scatter_block(model: Model) -> Block:
    """Return the block of S."""
    side = model.kernel.features
    bound = model.max_rows * feature_bound(model) ** 2 * (1 + 2.0**-40)
    return Block("scatter", (side, side), bound, RESOLUTION, symmetric=True)


def cross_block(model: Model) -> Block:
    """Return the block of b."""
    bound = model.max_rows * feature_bound(model) * TARGET_BOUND
    return Block("cross", (model.kernel.features, model.targets), bound, RESOLUTION)


def target_blocks(model: Model) -> tuple[Block, ...]:
    """Return the blocks of yᵀy and n."""
    squares = model.max_rows * TARGET_BOUND**2
    return (
        Block("target_squares", (model.targets,), squares, SQUARES_RESOLUTION),
        Block("rows", (), float(model.max_rows), 1.0),
    )


def statistics_blocks(model: Model) -> tuple[Block, ...]:
    """Return the blocks of (S, b, yᵀy, n)."""
    return (scatter_block(model), cross_block(model), *target_blocks(model))


def site_features(model: Model, site: Site, part: Part) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield features and targets of the rows of a part, in memory that does not grow with them."""
    for x, y, _ in site.chunks(part, model):
        for rows, phi in model.urk.features_in_chunks(x, chunk_rows=CHUNK_ROWS):
            yield phi, y[rows]


def site_statistics(model: Model, site: Site, part: Part) -> Statistics:
    """Sum over the rows of a part."""
    if site.count(part) == 0:
        return Statistics.zero(features=model.kernel.features, targets=model.targets)
    return Statistics.of_chunks(site_features(model, site, part))


def contribution_of(statistics: Statistics) -> Contribution:
    """Return statistics by block."""
    return {
        "scatter": statistics.scatter.numpy(),
        "cross": statistics.cross.numpy(),
        "target_squares": statistics.target_squares.numpy(),
        "rows": np.array(float(statistics.count)),
    }


def scatter_rounding(total: SecureTotal, features: int) -> float:
    """Return the rounding of a summed S as a spectral norm."""
    resolution = _scatter_resolution(total)
    return rounding_of(resolution=resolution, clients=total.contributors, features=features)


def scatter_deviation(total: SecureTotal) -> float:
    """Return the standard deviation of the rounding of one entry of a summed S."""
    return _scatter_resolution(total) * math.sqrt(total.contributors / 12)


def _scatter_resolution(total: SecureTotal) -> float:
    return 2 * total.rounding("scatter") / total.contributors


def statistics_of(total: SecureTotal, model: Model) -> Statistics:
    """Return summed statistics with what is known of their rounding."""
    return Statistics(
        torch.tensor(total["scatter"]),
        torch.tensor(total["cross"]),
        torch.tensor(total["target_squares"]).clamp_min(0.0),
        round(float(total["rows"])),
        scatter_rounding(total, model.kernel.features),
    )
