"""A noisy S repaired: the nearest matrix that a table can have.

S = Σ φ(x)φ(x)ᵀ is a sum over points. Differential privacy adds noise to each of its M(M + 1)/2
numbers, and no table produces such noise, so most of it can be distinguished from data: S is
positive semi-definite, cos² + sin² = 1 holds in it for every sample, and its numbers are values of
one function (the data's characteristic function, at sums and differences of the kernel's
frequencies). All these conditions hold for

    Ŝ = n/K · Σ_k φ(x_k)φ(x_k)ᵀ    with the K points x_k that minimise ‖S̃ − Ŝ‖_F

a projection onto the realisable matrices, found from random normal points by L-BFGS
(`kernels.descent`), and rounded, so that everyone who has S̃ finds the same matrix. The points
reveal nothing more about a patient: they are computed from the released sums alone, which
differential privacy allows.

A few points cannot fit a nearly noiseless S̃ to the last digit, so the part of S̃ − Ŝ that noise does
not explain is kept (the positive part of [JamesStein61], d = M(M + 1)/2):

    Ŝ + (1 − s²d/‖S̃ − Ŝ‖²)₊ (S̃ − Ŝ)

Without noise this is S̃. The remaining error is measured by repeating the repair on Ŝ with new noise
of the same size, where the true matrix is known: this is the deviation that is returned.

[Aydore21] fit points to noisy answers in the same way.
"""

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels.descent import minimised
from kernels.features.seeded_random import normals
from kernels.features.spec import KernelSpec
from kernels.features.urk import URK
from kernels.layer.statistics import Statistics
from kernels.reproducible import number_to_bits, on_grid

POINTS = 400
_ITERATIONS = 200
_SEED = 0
_LEAST = 2.0**-20

SCATTER_BITS = 14
"""A repaired S is rounded to this many bits below the deviation of its noise, or below n/M."""
DEVIATION_BITS = 16
"""Significant bits of the deviation of the remaining error."""


def repaired(statistics: Statistics, kernel: URK) -> Statistics:
    """Return statistics with a positive semi-definite S, and the deviation of the remaining error.

    kernel: the kernel of the statistics. Statistics without noise are returned unchanged.
    """
    noise = statistics.noise
    if noise is None or noise.scatter == 0 or statistics.count == 0:
        return statistics
    scatter = _projected(statistics.scatter, statistics.count, noise.scatter, kernel, "repair")
    again = scatter + noise.scatter * symmetric_normals(_SEED, "again", len(scatter))
    second = _projected(again, statistics.count, noise.scatter, kernel, "again")
    # For tiny noise the remaining error may be 0, and a deviation must be positive.
    left = min(max(_deviation(second - scatter), _LEAST * noise.scatter), noise.scatter)
    left = number_to_bits(left, DEVIATION_BITS)
    return replace(statistics, scatter=scatter, noise=replace(noise, scatter=left))


def scatter_step(count: int, features: int, deviation: float) -> float:
    """Return the grid of a repaired S of n rows, for noise of this deviation."""
    scale = min(deviation, count / features)
    return math.ldexp(1.0, math.frexp(scale)[1] - SCATTER_BITS)


def symmetric_normals(seed: int, label: str, side: int) -> Tensor:
    """Return a symmetric matrix of independent normals, of variance 1, or ½ off the diagonal."""
    square = normals(seed, label, side, side)
    return square.triu(1).add(square.triu(1).mT).div(math.sqrt(2)) + square.diag().diag()


def _deviation(error: Tensor) -> float:
    """Return the s of noise with this norm: packed, it is d independent numbers of variance s²."""
    side = len(error)
    return float(error.norm()) / math.sqrt(side * (side + 1) / 2)


def _projected(scatter: Tensor, count: int, s: float, kernel: URK, label: str) -> Tensor:
    target = (scatter + scatter.mT) / 2
    weights = kernel.weights.detach().double().numpy().tobytes()
    return _nearest(target.numpy().tobytes(), count, s, kernel.spec, weights, label).clone()


@lru_cache(maxsize=8)
def _nearest(
    scatter: bytes, count: int, s: float, spec: KernelSpec, weights: bytes, label: str
) -> Tensor:
    """Return the projection; kept, because all members of one process compute the same one."""
    kernel = URK(spec, torch.from_numpy(np.frombuffer(weights).copy()))
    side = spec.features
    target = torch.from_numpy(np.frombuffer(scatter).copy()).view(side, side)
    points = normals(_SEED, f"points to {label}", POINTS, kernel.spec.inputs)

    def of(x: Tensor) -> Tensor:
        phi = kernel.features(x).double()
        return phi.mT @ phi * (count / POINTS)

    def misfit(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        x = torch.from_numpy(flat).view_as(points).requires_grad_()
        # Divided by n, so that the search's tolerances mean the same for every table.
        value = (of(x) - target).square().sum() / count
        (slope,) = torch.autograd.grad(value, x)
        return value.item(), slope.flatten().numpy()

    found = minimised(misfit, points.flatten().numpy(), iterations=_ITERATIONS)
    with torch.no_grad():
        nearest = of(torch.from_numpy(found).view_as(points))
    beyond = target - nearest
    explained = (s / max(_deviation(beyond), math.ulp(0.0))) ** 2
    mended = nearest + max(0.0, 1 - explained) * beyond
    # Keeping a part of the difference can leave an eigenvalue slightly below 0.
    eigenvalues, eigenvectors = torch.linalg.eigh(mended)
    root: Tensor = eigenvectors * eigenvalues.clamp_min(0.0).sqrt()
    square = root @ root.mT
    # Far coarser than what depends on the machine, far finer than the noise.
    return on_grid((square + square.mT) / 2, scatter_step(count, len(square), s))
