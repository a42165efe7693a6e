"""A noisy S repaired: the nearest matrix that some table could have.

S = Σ φ(x)φ(x)ᵀ is a sum over points. Differential privacy adds to each of its M(M + 1)/2 numbers
noise that no table makes, and most of it can be told from data by that alone: S is not only
positive semi-definite, cos² + sin² = 1 holds in it for every sample, and its numbers are values of
one function (the data's characteristic function, at sums and differences of the kernel's
frequencies). All of this is said by

    Ŝ = n/K · Σ_k φ(x_k)φ(x_k)ᵀ    with the K points x_k that minimise ‖S̃ − Ŝ‖_F

a projection onto what is realisable, found from normal points by L-BFGS. Nothing of a patient is
in the points: they are computed from what was released, as anything may be.

Few points cannot fit a nearly noiseless S̃ to its last digit, so what S̃ has beyond them is kept as
far as noise does not explain it (the positive part of [JamesStein61], d = M(M + 1)/2):

    Ŝ + (1 − s²d/‖S̃ − Ŝ‖²)₊ (S̃ − Ŝ)

Without noise this is S̃ itself. What error is left is measured by doing the same once more, to Ŝ
with noise of the same size added to it, where the truth is known: the deviation that is returned.

[Aydore21] fit
points to noisy answers likewise.
"""

import math
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from kernels.features.seeded_random import normals
from kernels.features.urk import URK
from kernels.layer.statistics import Statistics

POINTS = 400
_ITERATIONS = 200
_SEED = 0
_LEAST = 2.0**-20


def repaired(statistics: Statistics, kernel: URK) -> Statistics:
    """Return statistics with a positive semi-definite S, and the deviation of what error is left.

    kernel: the one that the statistics are of. Those without noise are returned as they are.
    """
    noise = statistics.noise
    if noise is None or noise.scatter == 0 or statistics.count == 0:
        return statistics
    scatter = _projected(statistics.scatter, statistics.count, noise.scatter, kernel, "repair")
    again = scatter + noise.scatter * symmetric_normals(_SEED, "again", len(scatter))
    second = _projected(again, statistics.count, noise.scatter, kernel, "again")
    # Of a tiny noise nothing may be left, and a deviation is positive.
    left = min(max(_deviation(second - scatter), _LEAST * noise.scatter), noise.scatter)
    return replace(statistics, scatter=scatter, noise=replace(noise, scatter=left))


def symmetric_normals(seed: int, label: str, side: int) -> Tensor:
    """Return a symmetric matrix of independent normals, of variance 1 and, off the diagonal, ½."""
    square = normals(seed, label, side, side)
    return square.triu(1).add(square.triu(1).mT).div(math.sqrt(2)) + square.diag().diag()


def _deviation(error: Tensor) -> float:
    """Return the s of a noise whose matrix has this norm: d numbers of variance s², packed."""
    side = len(error)
    return float(error.norm()) / math.sqrt(side * (side + 1) / 2)


def _projected(scatter: Tensor, count: int, s: float, kernel: URK, label: str) -> Tensor:
    target = (scatter + scatter.mT) / 2
    points = normals(_SEED, f"points to {label}", POINTS, kernel.spec.inputs)

    def of(x: Tensor) -> Tensor:
        phi = kernel.features(x).double()
        return phi.mT @ phi * (count / POINTS)

    def misfit(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        x = torch.from_numpy(flat).view_as(points).requires_grad_()
        # Over n, so that the search's tolerances mean the same for every table.
        value = (of(x) - target).square().sum() / count
        (slope,) = torch.autograd.grad(value, x)
        return value.item(), slope.flatten().numpy()

    found = minimize(
        misfit, points.flatten().numpy(), jac=True, method="L-BFGS-B",
        options={"maxiter": _ITERATIONS},
    )  # fmt: skip
    with torch.no_grad():
        nearest = of(torch.from_numpy(found.x).view_as(points))
    beyond = target - nearest
    explained = (s / max(_deviation(beyond), math.ulp(0.0))) ** 2
    mended = nearest + max(0.0, 1 - explained) * beyond
    # Keeping some of what is beyond can leave an eigenvalue slightly below zero.
    eigenvalues, eigenvectors = torch.linalg.eigh(mended)
    root: Tensor = eigenvectors * eigenvalues.clamp_min(0.0).sqrt()
    square = root @ root.mT
    return (square + square.mT) / 2  # not every BLAS rounds both triangles alike
