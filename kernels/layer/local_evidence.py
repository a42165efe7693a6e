"""The negative log evidence L of the features and targets of one site, with closed-form gradients.

For one target, with A = σ⁻²ΦᵀΦ + λ⁻²I (rows of Φ are rows of the table) and w̄ = σ⁻²A⁻¹Φᵀy,

    ∂L/∂Φ     = σ⁻²[(Φw̄ − y)w̄ᵀ + ΦA⁻¹]
    ∂L/∂log σ = n − σ⁻²[‖y − Φw̄‖² + tr(A⁻¹ΦᵀΦ)]
    ∂L/∂log λ = M − λ⁻²[‖w̄‖² + tr A⁻¹]

All of this is computed from the eigenvalues Λ of the smaller of ΦᵀΦ and ΦΦᵀ, and r = σ²/λ²: a
Cholesky factor of A is wrong without a warning if Λ/r exceeds the precision of float64.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kernels.errors import EmptyTable, NotFinite, WrongShape
from kernels.features.inducing import left_out


def negative_log_evidence(
    features: Tensor,
    targets: Tensor,
    *,
    log_noise: Tensor,
    log_prior: Tensor,
    inducing: int = 0,
) -> Tensor:
    """Return L summed over targets, differentiable in features, log σ and log λ.

    features: (n, M), targets: (n,) or (n, T), log_noise and log_prior: log σ and log λ, (T,).
    inducing: how many features are inducing, the first ones; L is then Titsias's bound.
    """
    y = targets.unsqueeze(1) if targets.ndim == 1 else targets
    if features.ndim != 2 or y.ndim != 2 or len(features) != len(y):
        raise WrongShape(
            "features must have shape (rows, M) and targets (rows, T), not "
            f"{tuple(features.shape)} and {tuple(y.shape)}"
        )
    if len(features) == 0:
        raise EmptyTable("features has no rows: the evidence needs at least one")
    if log_noise.shape != (y.shape[1],) or log_prior.shape != (y.shape[1],):
        raise WrongShape(
            f"log_noise and log_prior must both have shape ({y.shape[1]},), one value per target"
        )
    for name, value in (("features", features), ("targets", y), ("log_noise", log_noise)):
        if not torch.isfinite(value).all():
            raise NotFinite(
                f"{name} contains NaN or infinite values: check the table; if it is finite, "
                "training has diverged"
            )
    evaluate: Callable[..., Tensor] = _NegativeLogEvidence.apply
    per_target = zip(y.unbind(1), log_noise, log_prior, strict=True)
    found = torch.stack([evaluate(features, *one) for one in per_target]).sum()
    if inducing:
        amplified = (2 * (log_prior - log_noise)).exp().sum()
        found = found + amplified * left_out(features, inducing).sum() / 2
    return found


class _NegativeLogEvidence(torch.autograd.Function):
    """L of one target; its gradients are computed with it, from the same factorisation."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, targets: Tensor, log_noise: Tensor, log_prior: Tensor
    ) -> Tensor:
        phi, y = features.double(), targets.double()
        noise, prior = (2 * log_noise.double()).exp(), (2 * log_prior.double()).exp()
        ratio = noise / prior
        rows, columns = phi.shape
        wide = rows < columns
        eigenvalues, basis = torch.linalg.eigh(phi @ phi.mT if wide else phi.mT @ phi)
        eigenvalues = eigenvalues.clamp_min(0.0)
        shrinkage = 1 / (eigenvalues + ratio)
        inverse = (basis * shrinkage) @ basis.mT
        # w̄ = (ΦᵀΦ + rI)⁻¹Φᵀy = Φᵀ(ΦΦᵀ + rI)⁻¹y, and ΦA⁻¹/σ² likewise.
        if wide:
            weights, smoothed = phi.mT @ (inverse @ y), inverse @ phi
        else:
            weights, smoothed = inverse @ (phi.mT @ y), phi @ inverse
        residual = y - phi @ weights
        trace = shrinkage.sum() + (columns - len(eigenvalues)) / ratio  # the trace of A⁻¹/σ²
        # yᵀ(λ²ΦΦᵀ + σ²I)⁻¹y as the misfit plus the size of the weights: a sum of squares.
        quadratic = residual @ residual / noise + weights @ weights / prior
        log_determinant = torch.log1p(eigenvalues / ratio).sum() + rows * noise.log()
        ctx.save_for_backward(
            smoothed - torch.outer(residual, weights) / noise,
            rows - residual @ residual / noise - (columns - trace * ratio),
            columns - weights @ weights / prior - trace * ratio,
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
