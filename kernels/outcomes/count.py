"""A count: negative binomial with the mean E·exp(f + o) for a row with exposure E, f = φᵀw.

With the dispersion r the variance of a count with mean μ is μ + μ²/r; r → ∞ is Poisson. Given f,

    p(y) = Γ(y + r)/(Γ(r)·y!) · s(g)ʸ·s(−g)ʳ,   g = f + o + log E − log r

so it is y successes of y + r trials (`kernels.outcomes.logistic`) and has the same sums. f does not
depend on r, the logarithm of a rate does not change its meaning when r does.

r is common to all rows. It is chosen by Σ E[log p(y | f, r)] over q, which is additive: one number
for each r of a public grid, a further block of the same sum. `dispersion_of` returns the best of
the grid, moved to the top of the parabola through it and its neighbours.

**Sensitivity.** Counts have no bound of their own. With y clipped to 0 ≤ y ≤ Y, S_ω moves by at
most (Y + r)/4·‖φ‖². With the Pólya–Gamma bound b moves by at most ½max(r, Y − r) plus
|g − f|·(Y + r)/4, times ‖φ‖; with Newton's parabolas by at most Y + r plus the same, times ‖φ‖.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from kernels.errors import HyperparameterError, TableError, WrongShape
from kernels.outcomes.logistic import Trials
from kernels.outcomes.quadrature import expected, log_expected
from kernels.reproducible import number_to_bits, on_grid

GRID: tuple[float, ...] = tuple(2.0 ** (step / 2) for step in range(-8, 25))
"""The values of r to choose from, 1/16 to 4,096; the last is Poisson for counts below a hundred."""
_GRID_NODES = 35
"""Half a deviation apart: 1e-5 relative where √v is 3, exact where it is 1."""
_SCALE_BITS = 16
_MOST_LOG = 300.0
"""No expected count is above e³⁰⁰: a variance would not be a float64."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """The expected count μ, its variance under q, and the variance of a new count; each (rows,)."""

    mean: Tensor
    variance: Tensor
    observation_variance: Tensor


def trials(
    outcomes: Tensor, *, dispersion: float, exposure: Tensor | None = None, offset: float = 0.0
) -> Trials:
    """Return the likelihood of counts (n,), with exposures (n,) > 0 or all 1."""
    y = _checked(outcomes)
    _check_dispersion(dispersion)
    shift = _log_exposure(y, exposure) + offset - math.log(dispersion)
    return Trials(y, y + dispersion, shift, _constant(y, dispersion))


def base_offset(*, total: float, exposure: float) -> float:
    """Return the logarithm of the rate of all rows, as if half an event and row had been added."""
    return math.log((max(total, 0.0) + 0.5) / (max(exposure, 0.0) + 0.5))


def dispersion_terms(
    outcomes: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    exposure: Tensor | None = None,
    offset: float = 0.0,
    step: float | None = None,
) -> Tensor:
    """Return Σ E[log p(y | f, r)] over rows for each r of the grid: the hospital's block.

    step: a power of two, to whose multiples each row's terms are rounded before they are added, so
    that the sum does not depend on how rows are divided.
    """
    y = _checked(outcomes)
    logs = mean + _log_exposure(y, exposure) + offset
    found = []
    for r in GRID:
        logits = logs - math.log(r)
        curve = expected(lambda g: -logsigmoid(-g), logits, variance, count=_GRID_NODES)
        own = y * logits - (y + r) * curve + _constant(y, r)
        found.append((own if step is None else on_grid(own, step)).sum())
    return torch.stack(found)


def dispersion_of(terms: Tensor) -> float:
    """Return the best r from summed terms, rounded, so that all members have the same."""
    if terms.shape != (len(GRID),):
        raise WrongShape(f"there must be one sum for each of {len(GRID)} dispersions")
    best = int(terms.argmax())
    if not 0 < best < len(GRID) - 1:
        return GRID[best]
    left, top, right = (float(own) for own in terms[best - 1 : best + 2])
    bend = left - 2 * top + right
    shift = 0.5 * (left - right) / bend if bend < 0 else 0.0
    step = math.log(GRID[1] / GRID[0])
    return number_to_bits(GRID[best] * math.exp(shift * step), _SCALE_BITS)


def predict(
    mean: Tensor,
    variance: Tensor,
    *,
    dispersion: float,
    exposure: Tensor | None = None,
    offset: float = 0.0,
) -> Prediction:
    """Return the expected count from the mean and variance of f, each (rows,).

    μ is log-normal under q: E[μ] = exp(m + v/2), Var[μ] = E[μ]²(eᵛ − 1), and the variance of a new
    count is E[μ + μ²/r] + Var[μ].
    """
    _check_dispersion(dispersion)
    logs = mean + _log_exposure(mean, exposure) + offset
    rate = (logs + variance / 2).clamp_max(_MOST_LOG).exp()
    square = (2 * logs + 2 * variance).clamp_max(2 * _MOST_LOG).exp()  # E[μ²]
    spread = (square - rate.square()).clamp_min(0.0)
    return Prediction(rate, spread, rate + square / dispersion + spread)


def log_density(
    outcomes: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    dispersion: float,
    exposure: Tensor | None = None,
    offset: float = 0.0,
) -> Tensor:
    """Return log p(y) of each row, (rows,), with f integrated out."""
    rows = trials(outcomes, dispersion=dispersion, exposure=exposure, offset=offset)
    y, total = rows.successes.unsqueeze(1), rows.trials.unsqueeze(1)
    # Around its peak, log p has a curvature of yr/(y + r).
    sharpest = float((rows.successes * dispersion / rows.trials).max()) if len(rows) else 1.0
    found = log_expected(
        lambda logits: y * logits + total * logsigmoid(-logits),
        mean + rows.offset,
        variance,
        curvature=max(1.0, sharpest),
    )
    return found + rows.constant


def deviance(outcomes: Tensor, expected_count: Tensor) -> Tensor:
    """Return the Poisson deviance 2[y·log(y/μ) − (y − μ)] of each row, (rows,)."""
    y = _checked(outcomes)
    return 2 * (torch.xlogy(y, y / expected_count) - (y - expected_count))


def _constant(y: Tensor, dispersion: float) -> Tensor:
    return torch.lgamma(y + dispersion) - math.lgamma(dispersion) - torch.lgamma(y + 1)


def _checked(outcomes: Tensor) -> Tensor:
    y = outcomes.detach().double()
    if not bool(((y >= 0) & (y == y.floor()) & y.isfinite()).all()):
        raise TableError("a count must be an integer of at least 0 in every row")
    return y


def _check_dispersion(dispersion: float) -> None:
    if not (math.isfinite(dispersion) and dispersion > 0):
        raise HyperparameterError(f"dispersion must be positive and finite, not {dispersion}")


def _log_exposure(like: Tensor, exposure: Tensor | None) -> Tensor:
    if exposure is None:
        return torch.zeros_like(like)
    if exposure.shape != like.shape:
        raise WrongShape("exposure must have one value per row")
    if not bool(((exposure > 0) & exposure.isfinite()).all()):
        raise TableError("exposure must be positive and finite in every row")
    return exposure.detach().double().log()
