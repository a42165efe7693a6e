"""The negative log evidence L of the linear layer, and its gradients in closed form.

For one target, with A = σ⁻²ΦᵀΦ + λ⁻²I (rows of Φ are rows of the table) and w̄ = σ⁻²A⁻¹Φᵀy,

    ∂L/∂Φ     = σ⁻²[(Φw̄ − y)w̄ᵀ + ΦA⁻¹]
    ∂L/∂log σ = n − σ⁻²[‖y − Φw̄‖² + tr(A⁻¹ΦᵀΦ)]
    ∂L/∂log λ = M − λ⁻²[‖w̄‖² + tr A⁻¹]
    G_S = ∂L/∂S = (A⁻¹ + w̄w̄ᵀ)/2σ²,   G_b = ∂L/∂b = −w̄/σ²

so nothing is ever differentiated through a factorisation. G_S and G_b come from *summed*
statistics; a client that is sent them back-propagates ∂L/∂Φ_c = 2Φ_cG_S + y_cG_bᵀ through its own
features, and the sum of the clients' results is the exact gradient of the pooled evidence.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kernels.errors import EmptyTable, WrongShape
from kernels.linear import Hyperparameters, Spectrum
from kernels.statistics import CHUNK_ROWS, Statistics
from kernels.urk import URK


def negative_log_evidence(
    features: Tensor, targets: Tensor, *, log_noise: Tensor, log_prior: Tensor
) -> Tensor:
    """Return L summed over targets, differentiable in features, log σ and log λ.

    features: (n, M), targets: (n,) or (n, T), log_noise and log_prior: log σ and log λ, (T,).
    Works in the smaller of the dimensions n and M.
    """
    y = targets.unsqueeze(1) if targets.ndim == 1 else targets
    if features.ndim != 2 or len(features) != len(y):
        raise WrongShape(f"{tuple(features.shape)} features do not fit {tuple(y.shape)} targets")
    if len(features) == 0:
        raise EmptyTable("no rows: the evidence of nothing has no gradient")
    if log_noise.shape != (y.shape[1],) or log_prior.shape != (y.shape[1],):
        raise WrongShape(f"log σ and log λ must both be ({y.shape[1]},), one value per target")
    evaluate: Callable[..., Tensor] = _NegativeLogEvidence.apply
    per_target = zip(y.unbind(1), log_noise, log_prior, strict=True)
    return torch.stack([evaluate(features, *one) for one in per_target]).sum()


class _NegativeLogEvidence(torch.autograd.Function):
    """L of one target; the gradients are computed on the way, from the same factorisation."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, targets: Tensor, log_noise: Tensor, log_prior: Tensor
    ) -> Tensor:
        phi, y = features.double(), targets.double()
        noise, prior = (2 * log_noise.double()).exp(), (2 * log_prior.double()).exp()
        rows, columns = phi.shape
        if rows < columns:
            # K = λ²ΦΦᵀ + σ²I: w̄ = λ²ΦᵀK⁻¹y and ΦA⁻¹ = σ²λ²K⁻¹Φ.
            gram = prior * (phi @ phi.mT) + noise * torch.eye(rows, dtype=torch.float64)
            factor = torch.linalg.cholesky(gram)
            inverse = torch.cholesky_inverse(factor)
            weights = prior * (phi.mT @ (inverse @ y))
            smoothed = noise * prior * (inverse @ phi)
            trace = prior * (columns - rows + noise * inverse.trace())
            log_determinant = 2 * factor.diagonal().log().sum()
        else:
            precision = phi.mT @ phi / noise + torch.eye(columns, dtype=torch.float64) / prior
            factor = torch.linalg.cholesky(precision)
            inverse = torch.cholesky_inverse(factor)
            weights = inverse @ (phi.mT @ y) / noise
            smoothed = phi @ inverse
            trace = inverse.trace()
            log_determinant = 2 * factor.diagonal().log().sum() + columns * prior.log()
            log_determinant = log_determinant + rows * noise.log()
        residual = y - phi @ weights
        # yᵀ(λ²ΦΦᵀ + σ²I)⁻¹y, as misfit and size of the weights: no cancellation.
        quadratic = residual @ residual / noise + weights @ weights / prior
        ctx.save_for_backward(
            (smoothed - torch.outer(residual, weights)) / noise,
            rows - (residual @ residual) / noise - (columns - trace / prior),
            columns - (weights @ weights + trace) / prior,
        )
        ctx.dtypes = features.dtype, log_noise.dtype, log_prior.dtype
        value: Tensor = 0.5 * (rows * math.log(2 * math.pi) + log_determinant + quadratic)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor, None, Tensor, Tensor]:
        features, log_noise, log_prior = (
            (outputs[0] * gradient).to(dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        )
        return features, None, log_noise, log_prior


@dataclass(frozen=True, eq=False)
class PooledEvidence:
    """The pooled negative log evidence, and what a client needs for its part of the gradient.

    value: L summed over targets. scatter_gradient: G_S, (M, M), symmetric. cross_gradient: G_b,
    (M, T).
    """

    value: float
    scatter_gradient: Tensor
    cross_gradient: Tensor

    @classmethod
    def of(cls, statistics: Statistics | Spectrum, hyperparameters: Hyperparameters) -> Self:
        """Evaluate at summed statistics and given σ², λ²."""
        spectrum = statistics if isinstance(statistics, Spectrum) else Spectrum.of(statistics)
        noise = hyperparameters.noise_variance
        basis, weights = spectrum.eigenvectors, spectrum.posterior_weights(hyperparameters)
        inverse = spectrum.posterior_variances(hyperparameters) / noise
        inverse = (basis * inverse.sum(1)) @ basis.mT
        scatter_gradient = (inverse + (weights / noise) @ weights.mT) / 2
        return cls(
            float(-spectrum.log_evidence(hyperparameters).sum()),
            (scatter_gradient + scatter_gradient.mT) / 2,
            -weights / noise,
        )


def client_gradient(
    kernel: URK,
    x: Tensor,
    targets: Tensor,
    *,
    scatter_gradient: Tensor,
    cross_gradient: Tensor,
    chunk_rows: int = CHUNK_ROWS,
) -> Tensor:
    """Return ∂/∂θ of ⟨G_S, S_c(θ)⟩ + ⟨G_b, b_c(θ)⟩ at one client: a flat vector like θ.

    Summed over clients it is the gradient of the pooled L. G_S and G_b are what the coordinator
    broadcast; memory is bounded by `chunk_rows`.
    """
    y = targets.unsqueeze(1) if targets.ndim == 1 else targets
    features, columns = kernel.spec.features, y.shape[1]
    expected = (features, features), (features, columns)
    if (shapes := (tuple(scatter_gradient.shape), tuple(cross_gradient.shape))) != expected:
        raise WrongShape(f"G_S and G_b must have the shapes {expected}, not {shapes}")
    if len(x) != len(y):
        raise WrongShape(f"{len(x)} rows of x but {len(y)} of targets")
    gradient = torch.zeros_like(kernel.weights)
    for first in range(0, len(x), chunk_rows):
        rows = slice(first, first + chunk_rows)
        with torch.enable_grad():
            phi = kernel.features(x[rows])
        backward = feature_gradient(
            phi, y[rows], scatter_gradient=scatter_gradient, cross_gradient=cross_gradient
        )
        gradient += torch.autograd.grad(phi, kernel.weights, backward)[0]
    return gradient


def feature_gradient(
    features: Tensor, targets: Tensor, *, scatter_gradient: Tensor, cross_gradient: Tensor
) -> Tensor:
    """Return ∂/∂Φ of ⟨G_S, ΦᵀΦ⟩ + ⟨G_b, Φᵀy⟩ = 2ΦG_S + yG_bᵀ, in the features' own type."""
    gradient = 2 * (features.detach().double() @ scatter_gradient)
    return gradient.addmm_(targets.double(), cross_gradient.mT).to(features.dtype)
