"""The best β between mixture and product ([PredBayes] eq. 4.11): a convex problem in one number.

With τ = τ_m + β(τ_p − τ_m) and h = h_m + β(h_p − h_m) the precision and the shift of 4.9 and 4.10,
the negative log-likelihood of a target y is

    ℓ(β) = ½[log 2π − log τ + τy² − 2yh + h²/τ]
    ℓ'   = ½[(τ_p − τ_m)(y² − μ² − 1/τ) + 2(h_p − h_m)(μ − y)],   μ = h/τ
    ℓ''  = ½(τ_p − τ_m)²/τ² + ((h_p − h_m) − μ(τ_p − τ_m))²/τ ≥ 0

so Σ ℓ has one minimum on [0, 1], where Σ ℓ' changes its sign. For labelled rows in one place it is
found by bisection. For rows held by the sites, each site sends Σ ℓ' and Σ ℓ'' at the same few β;
their totals over sites are those of all rows, and give the same β as rows in one place
([PredBayes] §5.1).
"""

import math

import torch
from torch import Tensor

from kernels.errors import EmptyTable
from kernels.scores.gaussians import Gaussian

BETA_STEP = 2.0**-20
"""The grid of β: far finer than rows can determine it."""

_HALVINGS = 53


def slopes(
    product: Gaussian,
    mixture: Gaussian,
    targets: Tensor,
    betas: Tensor,
    *,
    most: float = math.inf,
) -> tuple[Tensor, Tensor]:
    """Return Σ ℓ' and Σ ℓ'' over rows, (G, T), at β (G, T) for each target; targets: (n, T).

    most: the largest absolute value of each row's ℓ' and ℓ'', at which they are clipped.
    """
    share = betas.unsqueeze(1)
    steeper, further = product.precision - mixture.precision, product.shift - mixture.shift
    precision = mixture.precision + share * steeper
    mean = (mixture.shift + share * further) / precision
    slope = steeper * (targets.square() - mean.square() - 1 / precision) / 2
    slope = slope + further * (mean - targets)
    curvature = (steeper / precision).square() / 2
    curvature = curvature + (further - mean * steeper).square() / precision
    return slope.clamp(-most, most).sum(1), curvature.clamp_max(most).sum(1)


def fit_beta(product: Gaussian, mixture: Gaussian, targets: Tensor) -> Tensor:
    """Return each target's β, (T,), that minimises Σ ℓ over labelled rows (n, T)."""
    if not len(targets):
        raise EmptyTable("targets has no rows: fitting β needs at least one labelled row")
    low = targets.new_zeros(1, targets.shape[1])
    high = low + 1
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        falls = slopes(product, mixture, targets, middle)[0] < 0
        low, high = torch.where(falls, middle, low), torch.where(falls, high, middle)
    return ((low + high) / 2).squeeze(0)


def grid_between(low: Tensor, high: Tensor, *, points: int) -> Tensor:
    """Return `points` equally spaced β from low to high, (points, T)."""
    return torch.lerp(low, high, torch.linspace(0, 1, points, dtype=low.dtype).unsqueeze(1))


def narrowed(betas: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """Return the neighbours among β (G, T) between which Σ ℓ' (G, T) changes its sign, (T,) each.

    If it has the same sign everywhere, both are the nearer end.
    """
    low, high = _neighbours(slope)
    return betas.gather(0, low).squeeze(0), betas.gather(0, high).squeeze(0)


def crossing(betas: Tensor, slope: Tensor) -> Tensor:
    """Return the β at which Σ ℓ', interpolated linearly between these neighbours, is 0, (T,)."""
    (before, after), (falls, rises) = (
        tuple(each.gather(0, neighbour) for neighbour in _neighbours(slope))
        for each in (betas, slope)
    )
    share = torch.where(rises > falls, -falls / (rises - falls), 0.0).clamp(0, 1)
    return torch.lerp(before, after, share).squeeze(0)


def _neighbours(slope: Tensor) -> tuple[Tensor, Tensor]:
    below = (slope < 0).sum(0, keepdim=True)  # it rises with β: the first `below` are negative
    return (below - 1).clamp_min(0), below.clamp_max(len(slope) - 1)
