"""The linear layer's statistics as blocks of a sum, with the bounds that follow from the kernel.

|φ_i φ_j| is at most the square of the largest feature, 1/m for cos and sin divided by √m, so
|S_ij| ≤ n/m; with standardised targets within ±TARGET_BOUND, |b_i| ≤ n·TARGET_BOUND/√m. Inducing
features are at most 1. FEATURE_BOUND applies to features without a bound of their own; a value
beyond it fails the run.

A linear part (`kernels.features.linear_part`) has features of up to 2ρ, many times 1/√m, and one
block has one fixed point. So S and b are sent with the linear part's features multiplied by a power
of two that brings them to the scale of the others (`sent_scale`), and the coordinator divides them
again, which is exact. With differential privacy they are sent as they are: noise would be divided
too, and the linear part would have more of it.

**With differential privacy**, a unit of at most k rows is added or removed. Features are cos and
sin, so ‖φ‖² = R² for every row, whatever the weights; standardised targets are clipped to ±B_t. One
row changes S by φφᵀ, whose Frobenius norm is ‖φ‖² = R²; b by φyᵀ, of norm ‖φ‖·‖y‖; yᵀy by (y_t²).
With B = (B_1 … B_T), k rows change them by at most

    ΔS = k·R²    Δb = k·R·‖B‖    Δyy = k·‖B²‖

Packing S as its upper triangle times √2 is an isometry, so ΔS also holds for the packed vector. n
is not released: tr S = n·R², so it follows from S, with noise of √M·s/R² rows.

With a linear part, R² is a bound at the present ρ (`squared_norm`), and rows are counted by the
trace of the other part of S only. In a kernel that has only the linear part, the constant feature
is ρ/√(p + 1) in every row and counts them, with noise of (p + 1)·s/ρ² rows.

The privacy cost is divided between the blocks as follows. With weights c_S + c_b + c_y = 1 the
noise deviations are s = zΔS/√c_S and s_b = zΔb/√c_b. The layer solves b̃ ≈ S̃w, in which the noise
of each coordinate has the variance s_b² + s²‖w‖²/2 (`kernels.noisy.noise_aware`). At a given cost
this variance is smallest if

    c_S : c_b = ΔS·‖w‖/√2 : Δb

but ‖w‖ is not known beforehand. Under the prior it is λ√M, about 12 for 200 features and targets of
deviation 1, but `kernels.noisy.realisable` leaves only a tenth to a half of the noise of S, so the
effective value is about 1 to 6. WEIGHT_NORM is used in its place: the minimum is flat, and twice or
half of it costs a few hundredths of the variance. yᵀy is a single number that is used only to
estimate σ², and its error is divided by n, so a small part is enough.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from kernels.errors import UnboundedFeatures
from kernels.features.linear_part import log_ratio_of, ratio, squared_norm_at
from kernels.features.spec import KernelSpec
from kernels.layer.posterior import Hyperparameters, Spectrum, rounding_of
from kernels.layer.refit import refit
from kernels.layer.statistics import Noise, Statistics
from kernels.model.model import Model
from kernels.noisy import noise_aware
from kernels.reproducible import total as total_of
from kernels.rounds.algorithm import Contribution
from kernels.rounds.site.site import Part, Site
from kernels.tables.chunks import CHUNK_ROWS
from privacy.layout import Block, SecureTotal

TARGET_BOUND = 100.0
"""The maximum distance of targets from their mean, in deviations; beyond it the run fails."""
FEATURE_BOUND = 100.0
"""The maximum absolute value of the features of kernels that have no bound of their own."""
RESOLUTION = 2.0**-30
"""The coarsest step of S and b: 2e-5 predictive deviations in the mean for the worst of 5 sets."""
SQUARES_RESOLUTION = 2.0**-16
"""The coarsest step of sums of squared targets or errors, of which only means are used."""
WEIGHT_NORM = 3.0
"""The ‖w‖ that is assumed when noise is divided between S and b."""
SQUARES_WEIGHT = 0.05
"""The share of the privacy cost that is spent on yᵀy."""

# Margin for float64's own rounding where a bound is attained.
_ROOM = 1 + 2.0**-40


def feature_scale(model: Model) -> float:
    """Return the scale of features as they are sent: 1/√m, or 1 for linear and inducing kernels."""
    if not model.kernel.main_features or model.kernel.inducing_features:
        return 1.0
    return 1 / math.sqrt(model.kernel.normalising_square)


def sent_scale(model: Model) -> Tensor:
    """Return what features are multiplied by in the blocks of S and b, powers of two, (M,).

    It is 1 except for the linear part without privacy, whose largest value, 2ρ, it brings to at
    most `feature_scale`, and to more than half of that.
    """
    kernel = model.kernel
    scale = torch.ones(kernel.features, dtype=torch.float64)
    if kernel.linear_features and model.privacy is None:
        _, exponent = math.frexp(feature_scale(model) / _linear_bound(model))
        scale[kernel.main_features :] = math.ldexp(1.0, exponent - 1)
    return scale


def _linear_bound(model: Model) -> float:
    """Return the largest absolute value of a feature of the linear part."""
    log_ratio = log_ratio_of(model.kernel, model.urk.weights.detach()) or 0.0
    largest = max(model.kernel.radius, 1 / math.sqrt(model.kernel.inputs + 1))
    return largest * ratio(log_ratio)


def feature_bound(model: Model) -> float:
    """Return the largest absolute value of one feature as it is sent."""
    if model.kernel.main_squared_norm_bound is None:
        return FEATURE_BOUND
    bound = feature_scale(model)
    if model.kernel.linear_features and model.privacy is not None:
        linear = _linear_bound(model)
        return max(bound, linear) if model.kernel.main_features else linear
    return bound


def squared_norm(model: Model) -> float:
    """Return R², the largest ‖φ‖² of a row; raise `UnboundedFeatures` for kernels without a bound.

    It is that of every row if the kernel has no linear part. Inducing features are refused: they
    are bounded, but do not have the same norm in every row, by which rows are counted.
    """
    if model.kernel.inducing_features:
        raise UnboundedFeatures(
            f"a kernel with {model.kernel.architecture} features has no form with differential "
            "privacy: take one that ends in cos and sin, such as matern52, or the linear kernel"
        )
    bound = squared_norm_at(model.kernel, model.urk.weights.detach())
    if bound is None:
        raise UnboundedFeatures(
            f"the features of a {model.kernel.architecture} kernel grow with x, so no noise covers "
            "a row: with differential privacy take a kernel that ends in cos and sin"
        )
    return bound


def counting_part(model: Model) -> tuple[slice, float]:
    """Return features whose squares have the same sum in every row, and that sum.

    The sum of their diagonal elements of S, divided by it, is the number of rows.
    """
    kernel, norm = model.kernel, squared_norm(model)
    if not kernel.linear_features:
        return slice(None), norm
    if kernel.main_features and kernel.main_squared_norm is not None:
        return slice(0, kernel.main_features), kernel.main_squared_norm
    log_ratio = log_ratio_of(kernel, model.urk.weights.detach()) or 0.0
    return slice(-1, None), ratio(log_ratio) ** 2 / (kernel.inputs + 1)


def counted(diagonal: Tensor, model: Model) -> int:
    """Return the number of rows by the diagonal of S; with noise an estimate, maybe below zero."""
    part, each = counting_part(model)
    return round(math.fsum(diagonal[part].tolist()) / each)


def counting_noise(deviation: float, model: Model) -> float:
    """Return the deviation of `counted`, given that of a diagonal element of S."""
    part, each = counting_part(model)
    return deviation * math.sqrt(len(range(model.kernel.features)[part])) / each


def check_features(model: Model) -> None:
    """Refuse a kernel whose features have no bound, for differential privacy."""
    squared_norm(model)


def target_bounds(model: Model) -> Tensor:
    """Return the bounds B_t of the standardised targets, (T,); with privacy, targets are clipped.

    With privacy, a bound is the clip, or what the schema's bounds allow if that is less.
    """
    if model.privacy is None:
        return torch.full((model.targets,), TARGET_BOUND, dtype=torch.float64)
    if model.standardiser is None:
        return torch.full((model.targets,), model.privacy.target_clip, dtype=torch.float64)
    bounds, scales = [], model.standardiser.targets
    for column, own in zip(model.schema.real, scales, strict=True):
        ends = [end for end in (column.lower, column.upper) if end is not None]
        reach = max(abs(end - own.mean) for end in ends) if len(ends) == 2 else math.inf
        bounds.append(min(model.privacy.target_clip, reach / own.scale))
    return torch.tensor(bounds, dtype=torch.float64)


def trained_on(targets: Tensor, model: Model) -> Tensor:
    """Return the standardised targets for the statistics: clipped with differential privacy."""
    if model.privacy is None:
        return targets
    reach = target_bounds(model)
    return targets.clamp(-reach, reach)


def scatter_block(model: Model) -> Block:
    """Return the block of S."""
    side = model.kernel.features
    bound = model.max_rows * feature_bound(model) ** 2 * _ROOM
    shape = (side, side)
    if model.privacy is None:
        return Block("scatter", shape, bound, RESOLUTION, symmetric=True)
    sensitivity = model.privacy.max_rows_per_patient * squared_norm(model)
    weight = sensitivity * WEIGHT_NORM / math.sqrt(2)
    return Block("scatter", shape, bound, RESOLUTION, sensitivity, symmetric=True, weight=weight)


def cross_block(model: Model) -> Block:
    """Return the block of b."""
    largest = target_bounds(model)
    bound = model.max_rows * feature_bound(model) * float(largest.max()) * _ROOM
    shape = (model.kernel.features, model.targets)
    if model.privacy is None:
        return Block("cross", shape, bound, RESOLUTION)
    norm = math.sqrt(squared_norm(model)) * float(largest.norm())
    sensitivity = model.privacy.max_rows_per_patient * norm
    return Block("cross", shape, bound, RESOLUTION, sensitivity, weight=sensitivity)


def target_blocks(model: Model) -> tuple[Block, ...]:
    """Return the blocks of yᵀy and n; with privacy there is no block of n, which follows from S."""
    largest = target_bounds(model)
    bound = model.max_rows * float(largest.max()) ** 2 * _ROOM
    if model.privacy is None:
        return (
            Block("target_squares", (model.targets,), bound, SQUARES_RESOLUTION),
            rows_block(model),
        )
    sensitivity = model.privacy.max_rows_per_patient * float(largest.square().norm())
    others = scatter_block(model).weight + cross_block(model).weight
    weight = others * SQUARES_WEIGHT / (1 - SQUARES_WEIGHT)
    shape = (model.targets,)
    return (Block("target_squares", shape, bound, SQUARES_RESOLUTION, sensitivity, weight=weight),)


def rows_block(model: Model) -> Block:
    """Return the block of n."""
    return Block("rows", (), float(model.max_rows), 1.0)


def statistics_blocks(model: Model) -> tuple[Block, ...]:
    """Return the blocks of (S, b, yᵀy, n)."""
    return (scatter_block(model), cross_block(model), *target_blocks(model))


def statistics_length(model: Model) -> int:
    """Return the number of numbers in (S, b, yᵀy, n)."""
    return sum(block.length for block in statistics_blocks(model))


def site_features(model: Model, site: Site, part: Part) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield features and targets of the rows of a part, in memory that does not grow with them."""
    for x, y, _ in site.chunks(part, model):
        for rows, phi in model.urk.features_in_chunks(x, chunk_rows=CHUNK_ROWS):
            targets = trained_on(y[rows], model)
            if model.privacy is not None:
                phi, targets = without_failed(phi, targets)
            yield phi, targets


def without_failed(*columns: Tensor) -> tuple[Tensor, ...]:
    """Return columns (n, …) of the same rows, with zeros in the rows that could not be computed.

    If a hostile broadcast makes a frequency infinite, its cos is NaN. A failure would reveal that a
    site has rows for which this happens, so with differential privacy such rows contribute zero.
    """
    failed = ~torch.cat(columns, 1).isfinite().all(1, keepdim=True)
    return tuple(own.masked_fill(failed, 0.0) for own in columns)


def site_statistics(model: Model, site: Site, part: Part) -> Statistics:
    """Sum over the rows of a part."""
    return Statistics.of_chunks(
        site_features(model, site, part), features=model.kernel.features, targets=model.targets
    )


def contribution_of(statistics: Statistics, model: Model) -> Contribution:
    """Return the statistics as blocks by name."""
    scale = sent_scale(model)
    blocks = {
        "scatter": (statistics.scatter * scale.outer(scale)).numpy(),
        "cross": (statistics.cross * scale[:, None]).numpy(),
        "target_squares": statistics.target_squares.numpy(),
    }
    if model.privacy is not None:
        return blocks
    return {**blocks, "rows": np.array(float(statistics.count))}


def summed_scatter(total: SecureTotal, model: Model) -> Tensor:
    """Return the S that a sum gives."""
    scale = sent_scale(model)
    return torch.tensor(total["scatter"]) / scale.outer(scale)


def summed_cross(total: SecureTotal, model: Model) -> Tensor:
    """Return the b that a sum gives."""
    return torch.tensor(total["cross"]) / sent_scale(model)[:, None]


def scatter_rounding(total: SecureTotal, model: Model) -> float:
    """Return the rounding of a summed S as a spectral norm.

    With features divided by d, an entry's deviation is that of the block divided by d_i·d_j, and
    the norm of such a matrix is at most about 2·√(max_i Σ_j) of their variances: that of M
    features, times √(Σ_j d_j⁻²/M)·max d_i⁻¹.
    """
    resolution, features = _scatter_resolution(total), model.kernel.features
    rounding = rounding_of(resolution=resolution, clients=total.contributors, features=features)
    return stretched_rounding(1 / sent_scale(model), rounding)


def stretched_rounding(by: Tensor, rounding: float) -> float:
    """Return the rounding of S whose features are multiplied by `by`, (M,), after the sum."""
    spread = math.sqrt(float(total_of(by.square())) / len(by)) * float(by.max())
    return spread * rounding


def scatter_deviation(total: SecureTotal) -> float:
    """Return the standard deviation of the rounding of one entry of S as it is sent."""
    return _scatter_resolution(total) * math.sqrt(total.contributors / 12)


def _scatter_resolution(total: SecureTotal) -> float:
    return 2 * total.rounding("scatter") / total.contributors


def statistics_of(total: SecureTotal, model: Model) -> Statistics:
    """Return the summed statistics with what is known about their rounding and noise."""
    return Statistics(
        summed_scatter(total, model),
        summed_cross(total, model),
        torch.tensor(total["target_squares"]).clamp_min(0.0),
        # With much noise the estimate from the trace may be below 1, but some site has a row.
        rows_in(total, model) if model.privacy is None else max(1, rows_in(total, model)),
        scatter_rounding(total, model),
        noise_of(total, model),
    )


def fitted_scales(statistics: Statistics, kernel: KernelSpec) -> Hyperparameters:
    """Return the σ² and λ² fitted to statistics of a kernel's features, with or without noise."""
    if statistics.noise is not None:
        return noise_aware.refit(statistics)
    return refit(Spectrum.of(statistics, inducing=kernel.inducing_features))


def rows_in(total: SecureTotal, model: Model) -> int:
    """Return the number of rows summed; with noise this is an estimate, possibly below zero."""
    if model.privacy is None:
        return round(float(total["rows"]))
    return counted(torch.tensor(total["scatter"]).diagonal(), model)


def noise_of(total: SecureTotal, model: Model) -> Noise | None:
    """Return the noise added to summed statistics, or None if they are exact."""
    if model.privacy is None:
        return None
    scatter = total.noise("scatter")
    return Noise(
        scatter=scatter,
        cross=total.noise("cross"),
        target_squares=total.noise("target_squares"),
        count=counting_noise(scatter, model),
    )
