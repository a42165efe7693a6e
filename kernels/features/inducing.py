"""Inducing features: φ(x) = L⁻¹k(Z, x), LLᵀ = k(Z, Z) + εI, of a Matérn-5/2 with learnt places Z.

    k(x, x') = (1 + √5r + 5r²/3)·exp(−√5r),    r² = Σ_i (x_i − x'_i)²/ℓ_i²

φ(x)ᵀφ(x') is the Nyström approximation of k: what the values of the Gaussian process at the m
places Z say about its values at x and x'. So the Bayesian linear layer on φ is a sparse Gaussian
process [Titsias 2009], federated and yet exactly that of all rows in one place. Weights are the
places Z, (m, p), in units of standardised columns, and one log lengthscale per column. The
starting places are hashes of the seed: no row of any table is used for them.

What φ leaves out of the process's variance is known at every x: k(x, x) − ‖φ(x)‖², between 0 and 1
because k(x, x) = 1 (`left_out`). Its sum over rows, n − tr S, makes Titsias's bound of the evidence
(`kernels.layer.posterior`), and its value at x is a part of every prediction's variance: right away
from the rows, where the features are nearly 0 and the layer alone would be certain.

Computed in float64 whatever the type of the weights, from distances that are sums of squared
differences: the expansion ‖x‖² − 2xᵀz + ‖z‖² loses the digits that decide whether k(Z, Z) has a
Cholesky factor. ε = JITTER makes it definite even if two places coincide. Memory is for
(rows, m) numbers, never for (rows, m, p).
"""

import math

import torch
from torch import Tensor

from kernels.errors import WeightsError
from kernels.features.architectures import Features, Named, Pullback, Shapes, starting_lengthscale
from kernels.features.seeded_random import normals
from kernels.features.spec import KernelSpec

JITTER = 2.0**-26
"""ε: what is added to the diagonal of k(Z, Z), whose elements are 1."""
FARTHEST = 2.5
"""Starting places are normal, and not farther out than this in any column."""

_ROOT = math.sqrt(5.0)
_MOST_LEVEL = 300.0
"""The largest |log ℓ| that counts: no row's distance overflows, so weights alone can fail."""
_FAR = 1e3
"""A distance r at which k is 0 in float64."""


def left_out(features: Tensor, inducing: int) -> Tensor:
    """Return k(x, x) − ‖φ_main(x)‖² ≥ 0 of rows of features (…, M).

    It is the share of the prior variance λ² that inducing features do not have.
    inducing: how many of the features are inducing, the first ones.
    """
    return (1 - features[..., :inducing].double().square().sum(-1)).clamp_min(0.0)


class Inducing:
    """The features of m inducing points, in the order of the points."""

    def draws(self, spec: KernelSpec) -> Named:
        return {}

    def shapes(self, spec: KernelSpec) -> Shapes:
        return {"points": (spec.samples, spec.inputs), "log_lengthscale": (spec.inputs,)}

    def start(self, spec: KernelSpec) -> Named:
        points = normals(spec.seed, "inducing points", spec.samples, spec.inputs)
        return {
            "points": points.clamp(-FARTHEST, FARTHEST),
            "log_lengthscale": starting_lengthscale(spec),
        }

    def features(self, spec: KernelSpec, draws: Named, weights: Named) -> Features:
        level = weights["log_lengthscale"].double()
        within = level.clamp(-_MOST_LEVEL, _MOST_LEVEL)
        inverse, free = (-within).exp(), (within == level).double()
        places = weights["points"].double() * inverse
        among = _distances(places, places)
        factor = _factor(_matern(among))

        def features(x: Tensor) -> tuple[Tensor, Pullback]:
            flat = x.double().reshape(-1, spec.inputs) * inverse
            distances = _distances(flat, places)
            whitened = torch.linalg.solve_triangular(
                factor.mT, _matern(distances), upper=True, left=False
            )
            phi = whitened.reshape(*x.shape[:-1], spec.samples)

            def pullback(gradient: Tensor) -> Named:
                gradient = gradient.double()
                by_kernel = _solved(factor, gradient)  # G L⁻¹ = ∂/∂k(x, Z)
                by_among = _through_cholesky(factor, gradient.mT @ phi)  # ∂/∂k(Z, Z)
                rows = by_kernel * _slope(distances.reshape(by_kernel.shape))
                pairs = by_among * _slope(among)
                scaled = flat.reshape(x.shape)
                # With u = x/ℓ, ∂r²/∂u = 2(u − u') and ∂r²/∂log ℓ_i = −2(u_i − u'_i)².
                row_sums, place_sums = rows.sum(-1, keepdim=True), rows.sum(-2).unsqueeze(-1)
                pair_sums = pairs.sum(-1, keepdim=True)
                pulled, paired = rows.mT @ scaled, pairs @ places
                by_places = 2 * (place_sums * places - pulled) + 4 * (pair_sums * places - paired)
                by_lengthscale = (row_sums * scaled.square()).sum(-2)
                by_lengthscale = by_lengthscale + (place_sums * places.square()).sum(-2)
                by_lengthscale = by_lengthscale - 2 * (places * pulled).sum(-2)
                by_lengthscale = by_lengthscale + 2 * (places * (pair_sums * places - paired)).sum(
                    -2
                )
                return {
                    "points": (by_places * inverse).to(x.dtype),
                    "log_lengthscale": (-2 * by_lengthscale * free).to(x.dtype),
                }

            return phi.to(x.dtype), pullback

        return features


def _distances(left: Tensor, right: Tensor) -> Tensor:
    return torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist")


def _matern(distances: Tensor) -> Tensor:
    """Return k at distances r."""
    steps = _ROOT * distances.clamp_max(_FAR)
    return (1 + steps + steps.square() / 3) * (-steps).exp()


def _slope(distances: Tensor) -> Tensor:
    """Return ∂k/∂r² at distances r, finite at 0."""
    steps = _ROOT * distances.clamp_max(_FAR)
    return (-5 / 6) * (1 + steps) * (-steps).exp()


def _factor(kernel: Tensor) -> Tensor:
    """Return L; only weights decide whether there is one, never rows."""
    jitter = JITTER * torch.eye(len(kernel), dtype=kernel.dtype)
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(kernel + jitter)
    if int(failed) or not bool(factor.detach().isfinite().all()):
        raise WeightsError(
            "the kernel of the inducing points has no Cholesky factor: points or lengthscales are "
            "far beyond those of standardised columns, training has diverged; lower its rate"
        )
    return factor


def _solved(factor: Tensor, gradient: Tensor) -> Tensor:
    """Return G L⁻¹ for G (…, rows, m)."""
    flat = gradient.reshape(-1, len(factor))
    found: Tensor = torch.linalg.solve_triangular(factor, flat, upper=False, left=False)
    return found.reshape(gradient.shape)


def _through_cholesky(factor: Tensor, product: Tensor) -> Tensor:
    """Return ∂/∂k(Z, Z), symmetric, for C = GᵀΦ, (…, m, m): −½L⁻ᵀML⁻¹, M the lower C mirrored."""
    lower = product.tril(-1)
    mirrored = lower + lower.mT + torch.diag_embed(product.diagonal(dim1=-2, dim2=-1))
    right = _solved(factor, mirrored)
    return -0.5 * _solved(factor, right.mT).mT
