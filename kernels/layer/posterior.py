"""The global Bayesian linear layer ([FedBNR] §2.1): y = φ(x)ᵀw + ε, w ~ N(0, λ²I), ε ~ N(0, σ²).

With A = σ⁻²S + λ⁻²I the posterior is w ~ N(w̄, A⁻¹), w̄ = σ⁻²A⁻¹b, and a new target is
N(φᵀw̄, σ² + φᵀA⁻¹φ) ([FedBNR] eq. 2.4, 2.6).

All of this is computed in the eigenbasis S = QΛQᵀ, where A is diagonal for every σ and λ, so that
targets with different σ and λ share one factorisation. Statistics from a fixed-point sum are
rounded and may be slightly indefinite, so that a Cholesky factorisation fails. Negative eigenvalues
are set to 0, which moves the mean by the order of τ‖w̄‖λ/σ² predictive standard deviations, where τ
is the rounding of S. If λ²/σ² amplifies the rounding beyond 1 (τλ² ≥ σ²), eigenvalues below τ are
noise: the data along their eigenvectors are ignored, and the posterior there is the prior. Ignoring
them always would cost one to two digits of accuracy in the ordinary case, because directions of
small variance still contribute to Φᵀy. The evidence uses only the eigenvalues above τ, because
directions without variance would otherwise appear to explain everything.

**Inducing features** (`kernels.features.inducing`) leave out a part of the process's variance,
λ²(k(x, x) − ‖φ_main(x)‖²) at x, where k(x, x) = 1. Titsias's lower bound of the process's log
evidence is that of the layer minus half of its sum over rows, in units of σ²,

    λ²/2σ² · (n − tr S_main)

with the trace over the main features: it follows from the same sums. The bound takes the place of
the evidence wherever σ, λ, ρ or the kernel's weights are chosen. A prediction's latent variance has
the part that is left out at x in addition. For all other features both terms are absent.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from kernels.errors import (
    EmptyTable,
    HyperparameterError,
    NotFinite,
    NotPositive,
    StatisticsError,
    WrongShape,
)
from kernels.features.inducing import left_out
from kernels.layer.local_evidence import negative_log_evidence
from kernels.layer.statistics import Statistics
from kernels.reproducible import to_bits

# An eigenvalue below 0 by more than this, the declared rounding and float64's error is refused.
_UNDECLARED = 2.0**-20
_EPSILON = torch.finfo(torch.float64).eps

SCALE_BITS = 16
"""Significant bits of fitted σ² and λ². A change of a step costs n·2⁻³³ nats of evidence; what a
factorisation leaves to chance is four thousandths of a step for λ²/σ² = 5·10⁷, usually far less."""


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """The noise variance σ² and the prior variance λ² of each target: two float64 tensors (T,)."""

    STORED_AS: ClassVar[str] = "hyperparameters"

    noise_variance: Tensor
    prior_variance: Tensor

    def __post_init__(self) -> None:
        for name in ("noise_variance", "prior_variance"):
            value = getattr(self, name)
            if value.ndim != 1 or value.dtype != torch.float64:
                raise HyperparameterError(
                    f"{name} must be a one-dimensional float64 tensor, one value per target"
                )
            if not (torch.isfinite(value).all() and (value > 0).all()):
                raise HyperparameterError(
                    f"{name} must be positive and finite, not {value.tolist()}"
                )
        if len(self.noise_variance) != len(self.prior_variance):
            raise HyperparameterError(
                "noise_variance and prior_variance must have the same length, one value per target"
            )

    @classmethod
    def of(cls, *, noise_variance: float, prior_variance: float, targets: int = 1) -> Self:
        """Return the same σ² and λ² for every target."""
        return cls(
            torch.full((targets,), float(noise_variance), dtype=torch.float64),
            torch.full((targets,), float(prior_variance), dtype=torch.float64),
        )

    def rounded(self) -> "Hyperparameters":
        """Return σ² and λ² with SCALE_BITS bits: the same from every machine's factorisation."""
        return Hyperparameters(
            to_bits(self.noise_variance, SCALE_BITS), to_bits(self.prior_variance, SCALE_BITS)
        )


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Statistics in the eigenbasis of S, sufficient for evidence and posterior at any σ and λ.

    eigenvalues: Λ, (M,), not negative. eigenvectors: Q, (M, M). cross: Qᵀb, (M, T).
    rounding: τ, a bound on the error of Λ. inducing: how many features are inducing, the first ones
    in their own basis. left_out: n − tr S_main ≥ 0, what these leave out; 0 if there are none.
    """

    eigenvalues: Tensor
    eigenvectors: Tensor
    cross: Tensor
    target_squares: Tensor
    count: int
    rounding: float
    inducing: int = 0
    left_out: float = 0.0

    @classmethod
    def of(cls, statistics: Statistics, *, inducing: int = 0) -> Self:
        """Factor S; refuse it if rounding cannot explain a negative eigenvalue.

        inducing: `KernelSpec.inducing_features` of the kernel of these statistics.
        """
        scatter = (statistics.scatter + statistics.scatter.mT) / 2
        eigenvalues, eigenvectors = torch.linalg.eigh(scatter)
        least, greatest = float(eigenvalues[0]), float(eigenvalues[-1])
        float_error = 8 * statistics.features * _EPSILON * greatest
        allowed = statistics.rounding + float_error + _UNDECLARED
        if least < -allowed:
            raise NotPositive(
                f"S has the eigenvalue {least:.3g} (the largest is {greatest:.3g}), and rounding "
                f"explains none below −{allowed:.3g}: a contribution is wrong, or rows were "
                "subtracted that had not been added"
            )
        _check_cross(statistics)
        return cls(
            eigenvalues.clamp_min(0.0),
            eigenvectors,
            eigenvectors.mT @ statistics.cross,
            statistics.target_squares,
            statistics.count,
            statistics.rounding,
            inducing,
            left_out_of(statistics, inducing),
        )

    @property
    def resolved(self) -> Tensor:
        """Return which eigenvalues exceed the rounding, (M,) bool."""
        return self.eigenvalues > self.rounding

    def _trusted(self, hyperparameters: Hyperparameters) -> tuple[Tensor, Tensor]:
        """Return Λ and Qᵀb, (M, T), with 0 where they are only amplified rounding."""
        noise, prior = self._checked(hyperparameters)
        kept = (self.rounding * prior < noise) | self.resolved.unsqueeze(1)
        return self.eigenvalues.unsqueeze(1) * kept, self.cross * kept

    def posterior_variances(self, hyperparameters: Hyperparameters) -> Tensor:
        """Return the eigenvalues of A⁻¹, (M, T)."""
        noise, prior = self._checked(hyperparameters)
        return noise / (self._trusted(hyperparameters)[0] + noise / prior)

    def posterior_weights(self, hyperparameters: Hyperparameters) -> Tensor:
        """Return w̄ = σ⁻²A⁻¹b, (M, T), in the basis of the features."""
        noise, prior = self._checked(hyperparameters)
        eigenvalues, cross = self._trusted(hyperparameters)
        return self.eigenvectors @ (cross / (eigenvalues + noise / prior))

    def log_evidence(self, hyperparameters: Hyperparameters) -> Tensor:
        """Return log p(y | σ, λ) of each target, (T,), with its constant ([FedBNR] eq. 2.8 halved).

        −½[n log 2πσ² + Σ log(1 + Λλ²/σ²) + (yᵀy − Σ (Qᵀb)²/(Λ + σ²/λ²))/σ²], and for inducing
        features Titsias's bound, with −½(n − tr S_main)λ²/σ² in addition.
        """
        noise, prior = self._checked(hyperparameters)
        eigenvalues = self.eigenvalues[self.resolved].unsqueeze(1)
        explained = (self.cross[self.resolved] ** 2 / (eigenvalues + noise / prior)).sum(0)
        determinant = torch.log1p(eigenvalues * (prior / noise)).sum(0)
        residual = (self.target_squares - explained) / noise
        if self.inducing:
            residual = residual + self.left_out * prior / noise
        return -0.5 * (self.count * torch.log(2 * math.pi * noise) + determinant + residual)

    def _checked(self, hyperparameters: Hyperparameters) -> tuple[Tensor, Tensor]:
        targets, given = self.cross.shape[1], len(hyperparameters.noise_variance)
        if given != targets:
            raise HyperparameterError(
                f"the statistics have {targets} targets: noise_variance and prior_variance must "
                f"have one value for each, not {given}"
            )
        return hyperparameters.noise_variance, hyperparameters.prior_variance


def left_out_of(statistics: Statistics, inducing: int) -> float:
    """Return Σ[k(x, x) − ‖φ_main(x)‖²] = n − tr S_main over rows, at least 0; 0 without points."""
    if not inducing:
        return 0.0
    trace = math.fsum(statistics.scatter.diagonal()[:inducing].tolist())
    return max(0.0, statistics.count - trace)


def _check_cross(statistics: Statistics) -> None:
    """Refuse b if it violates the Cauchy–Schwarz inequality b_i² ≤ S_ii · yᵀy."""
    diagonal = statistics.scatter.diagonal().unsqueeze(1) + statistics.rounding + _UNDECLARED
    limit = diagonal.clamp_min(0.0) * (statistics.target_squares + _UNDECLARED) * (1 + 1e-6)
    if (statistics.cross**2 > limit + _UNDECLARED).any():
        raise StatisticsError(
            "b is larger than S and yᵀy allow (b_i² ≤ S_ii·yᵀy): a contribution is wrong, sum the "
            "statistics again"
        )


def rounding_of(*, resolution: float, clients: int, features: int) -> float:
    """Return a bound, exceeded with negligible probability, on the spectral norm of S's rounding.

    Each of C clients rounds each entry to a multiple of `resolution`, so an entry's error has
    variance C·resolution²/12, and a symmetric matrix of these errors has spectral norm 2√M times
    their standard deviation: √(C·M/3)·resolution. The bound is twice that.
    """
    return 2 * resolution * math.sqrt(clients * features / 3)


@dataclass(frozen=True, eq=False)
class Prediction:
    """Mean and latent variance of new targets, (rows, T), and their noise variance, (T,)."""

    mean: Tensor
    latent_variance: Tensor
    noise_variance: Tensor

    @property
    def variance(self) -> Tensor:
        """Return the variance of a new observation, σ² + φᵀA⁻¹φ, (rows, T)."""
        return self.latent_variance + self.noise_variance


@dataclass(frozen=True, eq=False)
class Posterior:
    """The posterior over the linear layer's weights, for each target.

    weights: w̄, (M, T). eigenvectors: those of w's covariance, (M, M) if all targets share them, or
    (T, M, M) if they differ (`kernels.noisy.noise_aware`). variances: its eigenvalues, (M, T).
    log_evidence: (T,). inducing: how many features are inducing, the first ones; predictions then
    have the variance that these leave out.
    """

    weights: Tensor
    eigenvectors: Tensor
    variances: Tensor
    hyperparameters: Hyperparameters
    log_evidence: Tensor
    inducing: int = 0

    @classmethod
    def of(cls, statistics: Statistics | Spectrum, hyperparameters: Hyperparameters) -> Self:
        """Return the posterior given statistics; without rows (n = 0) it is the prior.

        Of an inducing kernel a `Spectrum` is needed, which knows how many features are inducing.
        """
        spectrum = statistics if isinstance(statistics, Spectrum) else Spectrum.of(statistics)
        return cls(
            spectrum.posterior_weights(hyperparameters),
            spectrum.eigenvectors,
            spectrum.posterior_variances(hyperparameters),
            hyperparameters,
            spectrum.log_evidence(hyperparameters),
            spectrum.inducing,
        )

    def predict(self, features: Tensor) -> Prediction:
        """Predict at features (rows, M); a latent variance is a sum of squares, never negative."""
        phi = self._checked(features)
        if self.eigenvectors.ndim == 2:
            latent = (phi @ self.eigenvectors).square() @ self.variances
        else:
            latent = torch.stack([(root**2).sum(1) for root in self.roots(phi)], 1)
        if self.inducing:
            prior = self.hyperparameters.prior_variance
            latent = latent + torch.outer(left_out(phi, self.inducing), prior)
        return Prediction(phi @ self.weights, latent, self.hyperparameters.noise_variance)

    def covariance(self, target: int) -> Tensor:
        """Return w's covariance for one target, (M, M)."""
        basis = self._basis(target)
        return (basis * self.variances[:, target]) @ basis.mT

    def log_density(self, features: Tensor, targets: Tensor) -> Tensor:
        """Return the joint log density of new targets (rows, T) under the predictive, (T,).

        With R = ΦA^{-1/2} it is the density of N(Φw̄, RRᵀ + σ²I): the evidence of the residuals
        under a layer on R with a unit prior. It is that of the layer alone: what inducing features
        leave out is correlated between rows, and not known from their features.
        """
        phi = self._checked(features)
        y = targets.unsqueeze(1) if targets.ndim == 1 else targets
        if y.shape != (len(phi), self.weights.shape[1]):
            raise WrongShape(
                f"targets must have shape ({len(phi)}, {self.weights.shape[1]}), not "
                f"{tuple(y.shape)}"
            )
        residuals = y.double() - phi @ self.weights
        log_noise = self.hyperparameters.noise_variance.log() / 2
        densities = [
            -negative_log_evidence(
                root,
                residuals[:, target],
                log_noise=log_noise[target : target + 1],
                log_prior=torch.zeros(1, dtype=torch.float64),
            )
            for target, root in enumerate(self.roots(phi))
        ]
        return torch.stack(densities)

    def roots(self, phi: Tensor) -> Iterator[Tensor]:
        """Yield R = ΦQV^{1/2} of each target, (rows, M): RRᵀ is the latent covariance."""
        for target, variances in enumerate(self.variances.mT):
            yield (phi @ self._basis(target)) * variances.sqrt()

    def _basis(self, target: int) -> Tensor:
        return self.eigenvectors if self.eigenvectors.ndim == 2 else self.eigenvectors[target]

    def _checked(self, features: Tensor) -> Tensor:
        if features.ndim != 2 or features.shape[1] != len(self.weights):
            raise WrongShape(
                f"features must have shape (rows, {len(self.weights)}), not {tuple(features.shape)}"
            )
        if len(features) == 0:
            raise EmptyTable("features has no rows: pass at least one to predict")
        phi = features.detach().double()
        # A finite sum has finite terms: one pass without a temporary array.
        if not math.isfinite(float(phi.sum())) and not torch.isfinite(phi).all():
            raise NotFinite("features contains NaN or infinite values: check the table")
        return phi
