"""The pooled evidence L (negative logarithm) and its exact gradient from sums, in closed form.

For one target, with A = σ⁻²S + λ⁻²I and w̄ = σ⁻²A⁻¹b,

    G_S = ∂L/∂S = (A⁻¹ + w̄w̄ᵀ)/2σ²,   G_b = ∂L/∂b = −w̄/σ²

so no derivative is taken through a factorisation. Inducing features add λ²(n − tr S_main)/2σ² to L
(`kernels.layer.posterior`), and so −λ²/2σ² to their diagonal elements of G_S. G_S and G_b are
computed from *summed* statistics; each client receives them and back-propagates
∂L/∂Φ_c = 2Φ_cG_S + y_cG_bᵀ through its own features, and the sum of the clients' results is the
exact gradient of the pooled evidence.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from kernels.errors import NotFinite, NotSymmetric, WrongShape
from kernels.features.urk import URK
from kernels.layer.posterior import Hyperparameters, Spectrum
from kernels.layer.statistics import Statistics
from kernels.tables.chunks import CHUNK_ROWS, chunks


@dataclass(frozen=True, eq=False)
class PooledEvidence:
    """The pooled negative log evidence, and the matrices that clients need for its gradient.

    value: L summed over targets. scatter_gradient: G_S, (M, M), symmetric. cross_gradient: G_b,
    (M, T).
    """

    value: float
    scatter_gradient: Tensor
    cross_gradient: Tensor

    @classmethod
    def of(cls, statistics: Statistics | Spectrum, hyperparameters: Hyperparameters) -> Self:
        """Return the evidence and its gradients at summed statistics and given σ², λ².

        Of an inducing kernel a `Spectrum` is needed, which knows how many features are inducing.
        """
        spectrum = statistics if isinstance(statistics, Spectrum) else Spectrum.of(statistics)
        noise = hyperparameters.noise_variance
        basis, weights = spectrum.eigenvectors, spectrum.posterior_weights(hyperparameters)
        inverse = spectrum.posterior_variances(hyperparameters) / noise
        inverse = (basis * inverse.sum(1)) @ basis.mT
        scatter_gradient = (inverse + (weights / noise) @ weights.mT) / 2
        if spectrum.left_out > 0:
            amplified = float((hyperparameters.prior_variance / noise).sum())
            scatter_gradient.diagonal()[: spectrum.inducing] -= amplified / 2
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

    The sum over clients is the gradient of the pooled L. G_S and G_b are those that the coordinator
    broadcast; `chunk_rows` bounds the memory.
    """
    y = targets.unsqueeze(1) if targets.ndim == 1 else targets
    features, columns = kernel.spec.features, y.shape[1]
    expected = (features, features), (features, columns)
    if (shapes := (tuple(scatter_gradient.shape), tuple(cross_gradient.shape))) != expected:
        raise WrongShape(
            f"scatter_gradient and cross_gradient must have the shapes {expected}, not {shapes}"
        )
    if len(x) != len(y):
        raise WrongShape(
            f"x and targets must have the same number of rows, not {len(x)} and {len(y)}"
        )
    if float((scatter_gradient - scatter_gradient.mT).abs().max()) > 0:
        raise NotSymmetric(
            "scatter_gradient must be symmetric, as every gradient with respect to S is: the "
            "broadcast is wrong"
        )
    gradient = torch.zeros(kernel.weights.shape, dtype=torch.float64)
    for rows in chunks(len(x), kernel.spec.rows_at_a_time(chunk_rows)):
        phi, pullback = kernel.features_and_pullback(x[rows])
        backward = feature_gradient(
            phi, y[rows], scatter_gradient=scatter_gradient, cross_gradient=cross_gradient
        )
        gradient += pullback(backward)
    if not torch.isfinite(gradient).all():
        raise NotFinite(
            "the gradient contains NaN or infinite values: the broadcast is wrong, or training has "
            "diverged"
        )
    return gradient


def feature_gradient(
    features: Tensor, targets: Tensor, *, scatter_gradient: Tensor, cross_gradient: Tensor
) -> Tensor:
    """Return ∂/∂Φ of ⟨G_S, ΦᵀΦ⟩ + ⟨G_b, Φᵀy⟩ = 2ΦG_S + yG_bᵀ, in the features' type.

    G_S must be symmetric; the caller has checked that once for all rows.
    """
    gradient = targets.double() @ cross_gradient.mT
    return gradient.addmm_(features.double(), scatter_gradient, alpha=2).to(features.dtype)
