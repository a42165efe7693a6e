"""Opacus's accountants for sums over Poisson samples of the units: Rényi and numerical.

A sum over a secret sample that contains each unit independently with probability q compares the
mixture P = (1 − q)·N(0, z²) + q·N(1, z²) with Q = N(0, z²). Opacus computes Rényi divergences for
both directions at once (that of P from Q is never smaller: [Mironov19]), and by Fourier transform
the distribution of the privacy loss log P/Q under P, which is what *removing* a unit reveals
[Gopi21]. After composition neither direction need dominate the other [Lebeda24], and Opacus has no
class for *adding* a unit, log Q/P under Q. `_Adding` is that class; the larger ε of both counts.

Opacus imports torch, so it is imported only when it is first needed.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privacy.accounting.gaussian import from_renyi

Sums = Mapping[tuple[float, float], int]
"""The number of sums for each (multiplier z, sampling rate q)."""


def renyi_epsilon(sums: Sums, delta: float) -> float:
    """Return ε by Rényi divergences, which add up over sums."""
    divergences = np.zeros(len(_ORDERS))
    for (z, q), count in sums.items():
        divergences += count * _divergences(z, q)
    return from_renyi(_ORDERS, divergences, delta)


@lru_cache(maxsize=256)
def _divergences(z: float, q: float) -> NDArray[np.float64]:
    from opacus.accountants.analysis.rdp import compute_rdp

    return np.asarray(compute_rdp(q=q, noise_multiplier=z, steps=1, orders=_ORDERS))


@lru_cache(maxsize=4096)
def divergence(z: float, q: float, order: int) -> float:
    """Return D_α of one sum at an integer order α; 1/z² · α/2 if the sum is over all units."""
    if q == 1:
        return order / (2 * z**2)
    from opacus.accountants.analysis.rdp import compute_rdp

    return float(np.ravel(compute_rdp(q=q, noise_multiplier=z, steps=1, orders=[order]))[0])


def numerical_epsilon(sums: Sums, delta: float) -> float:
    """Return an upper bound of ε from the distribution of the privacy loss; ∞ if it fails.

    It fails, by its authors' own checks, if δ is near the precision of the transform, or if the
    loss is too large for a grid.
    """
    from opacus.accountants.analysis.prv import PoissonSubsampledGaussianPRV

    try:
        # log(1 − q) at q = 1 is −∞, as intended.
        with np.errstate(all="ignore"):
            return max(
                _composed([kind(q, z) for z, q in sums], sums, delta)
                for kind in (PoissonSubsampledGaussianPRV, _Adding)
            )
    except (RuntimeError, ValueError):
        return math.inf


def _composed(losses: list[Any], sums: Sums, delta: float) -> float:
    """Return ε of the composed privacy losses, on the grid of [Gopi21] remark 5.6."""
    from opacus.accountants.analysis.prv import (
        Domain,
        TruncatedPrivacyRandomVariable,
        compose_heterogeneous,
        discretize,
    )

    counts = list(sums.values())
    error = delta * _DELTA_ERROR
    epsilon_error = max(_EPSILON_ERROR * renyi_epsilon(sums, delta), _LEAST_ERROR)
    reach = epsilon_error + max(
        renyi_epsilon(sums, error / 4),
        *(renyi_epsilon({kind: 1}, error / (8 * sum(counts))) for kind in sums),
    )
    mesh = epsilon_error / math.sqrt(sum(counts) * math.log(12 / error) / 2)
    if not reach / mesh < _MOST_POINTS:
        return math.inf
    domain = Domain.create_aligned(-reach - 3, reach + 3, mesh)
    whole = [TruncatedPrivacyRandomVariable(loss, domain.t_min, domain.t_max) for loss in losses]
    total = compose_heterogeneous([discretize(loss, domain) for loss in whole], counts)
    _, _, upper = total.compute_epsilon(delta, error, epsilon_error)
    return float(upper) if math.isfinite(upper) else math.inf


@final
class _Adding:
    """The privacy loss log Q/P under Q, with the methods that Opacus's composition requires.

    At x ~ N(0, z²) the loss is −log(1 − q + q·e^((2x − 1)/2z²)): below −log(1 − q), and decreasing
    in x. So P(loss ≤ t) = P(x ≥ z²·v + ½) with v = log((e^−t − 1 + q)/q).
    """

    def __init__(self, sample_rate: float, noise_multiplier: float) -> None:
        self._q, self._z = sample_rate, noise_multiplier

    def cdf(self, t: float | NDArray[np.float64]) -> NDArray[np.float64]:
        from scipy.special import ndtr

        q, z = self._q, self._z
        ratio = (np.exp(-np.asarray(t)) - (1 - q)) / q
        v = np.log(np.where(ratio > 0, ratio, 1.0))
        return np.where(ratio > 0, ndtr(-(z * v + 0.5 / z)), 1.0)


_EPSILON_ERROR = 2.0**-8
"""The most that the grid may add to ε, as a fraction of ε."""
_LEAST_ERROR = 1e-3
_DELTA_ERROR = 1e-3
_MOST_POINTS = 1 << 22
MOST_ORDER = 1000
_ORDERS = [*range(2, 64), *(round(64 * 16 ** (k / 40)) for k in range(40)), MOST_ORDER]
"""Integer Rényi orders: Opacus's series for them is finite, and its binomials are below 2^1024."""
