"""The ratio ρ of a kernel's linear part, chosen by evidence from sums that exist already.

Features at another ratio ρ' are D·φ with D = diag(1 on the main part, ρ'/ρ on the linear part), so

    S' = D S D,    b' = D b

and the statistics at every ratio follow from those at one: choosing costs no further sum. For each
ratio of a public grid, σ and λ are fitted (`kernels.layer.refit`), and the ratio with the largest
evidence is taken. Evidence here includes the prior of λ, as in `refit`: ρ, σ and λ then maximise
the same function.

Evidences are rounded before they are compared, and of equal ones the first is taken, so that
everyone who has the same sums chooses the same ratio. D is computed with `kernels.reproducible`.

The linear kernel has no other part, so a change of ρ is a change of λ: nothing is chosen.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernels.errors import StatisticsError
from kernels.features.linear_part import ratio
from kernels.features.spec import KernelSpec
from kernels.layer.posterior import Hyperparameters, Spectrum
from kernels.layer.refit import objective, refit
from kernels.layer.statistics import Statistics
from kernels.reproducible import near

LOG_RATIOS = tuple(near(half * math.log(2) / 2, 2.0**-16) for half in range(-8, 9))
"""The log ρ to choose from: powers of √2 from 2⁻⁴ to 2⁴, on the grid of kernel weights."""
EVIDENCE_STEP = 2.0**-20
"""The grid of the evidence per row: differences below it are rounding."""

_EPSILON = torch.finfo(torch.float64).eps


@dataclass(frozen=True, eq=False)
class Chosen:
    """A ratio, the statistics at it, and the σ and λ fitted to them."""

    log_ratio: float
    statistics: Statistics
    hyperparameters: Hyperparameters


def rescaling(spec: KernelSpec, *, before: float, after: float) -> Tensor:
    """Return D's diagonal, (M,), from one log_ratio to another; the same on every machine.

    >>> rescaling(KernelSpec(inputs=1, samples=2, linear_part=True), before=0.0, after=0.0)
    tensor([1., 1., 1., 1., 1., 1.], dtype=torch.float64)
    """
    diagonal = torch.ones(spec.features, dtype=torch.float64)
    diagonal[spec.main_features :] = ratio(after) / ratio(before)
    return diagonal


def rescaled(statistics: Statistics, diagonal: Tensor) -> Statistics:
    """Return the statistics of features multiplied by a diagonal D, (M,).

    Statistics with noise are refused: the noise of one number would depend on its place.
    """
    if statistics.noise is not None:
        raise StatisticsError(
            "statistics with noise cannot be rescaled, because their noise would no longer be the "
            "same for all features: keep the ratio of the linear part"
        )
    scatter = statistics.scatter * diagonal.outer(diagonal)
    largest = max(1.0, float(diagonal.max()))
    float_error = statistics.features * _EPSILON * float(scatter.diagonal().abs().max())
    return replace(
        statistics,
        scatter=scatter,
        cross=statistics.cross * diagonal[:, None],
        rounding=statistics.rounding * largest**2 + float_error,
    )


def best_ratio(spec: KernelSpec, statistics: Statistics, *, log_ratio: float) -> Chosen:
    """Return the ratio with the largest evidence, given statistics at `log_ratio`.

    It is one of LOG_RATIOS, or the given one if that explains the targets better than all of them.
    """
    one_part = not (spec.main_features and spec.linear_features)
    ratios = (log_ratio,) if one_part else dict.fromkeys((*LOG_RATIOS, log_ratio))
    found = [_fitted(spec, statistics, log_ratio, other) for other in ratios]
    # `max` returns the first of equal ones.
    return max(found, key=lambda each: each[0])[1]


def _fitted(
    spec: KernelSpec, statistics: Statistics, before: float, after: float
) -> tuple[float, Chosen]:
    """Return the rounded evidence per row at a ratio, and the fit at it."""
    if after != before:
        diagonal = rescaling(spec, before=before, after=after)
        statistics = rescaled(statistics, diagonal)
    spectrum = Spectrum.of(statistics, inducing=spec.inducing_features)
    scales = refit(spectrum)
    evidence = -float(objective(spectrum, scales).sum()) / max(statistics.count, 1)
    return near(evidence, EVIDENCE_STEP), Chosen(after, statistics, scales)
