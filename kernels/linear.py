"""The global Bayesian linear layer (004, §2.1): y = φ(x)ᵀw + ε, w ~ N(0, λ²I), ε ~ N(0, σ²).

With A = σ⁻²S + λ⁻²I the posterior is w ~ N(w̄, A⁻¹), w̄ = σ⁻²A⁻¹b, and a new target is
N(φᵀw̄, σ² + φᵀA⁻¹φ) (eq. 2.4, 2.6).

All of it is computed in the eigenbasis S = QΛQᵀ, where A is diagonal for every σ and λ, so that
targets with their own σ and λ share one factorisation. Statistics that went through a fixed-point
sum are rounded, and may be slightly indefinite, which no Cholesky survives. Negative eigenvalues
become zero, which moves the mean by about τλ²/σ² predictive standard deviations, τ being the
rounding of S. Where that is no longer small (τλ² ≥ σ²), eigenvalues below τ are noise that
λ²/σ² amplifies: the data's word along them is dropped, and the posterior there is the prior.
Dropping them always would cost a hundred times more accuracy in the ordinary case: a direction
of small variance still carries Φᵀy.
"""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from kernels.errors import EmptyTable, HyperparameterError, NotFinite, NotPositive, WrongShape
from kernels.statistics import Statistics

# An eigenvalue this far below zero, relative to the largest, is no rounding of anyone's.
_INDEFINITE = 1e-6


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """The noise variance σ² and the prior variance λ² of each target: two float64 tensors (T,)."""

    noise_variance: Tensor
    prior_variance: Tensor

    def __post_init__(self) -> None:
        for name in ("noise_variance", "prior_variance"):
            value = getattr(self, name)
            if value.ndim != 1 or value.dtype != torch.float64:
                raise HyperparameterError(
                    f"{name} must be a float64 tensor of one value per target"
                )
            if not (torch.isfinite(value).all() and (value > 0).all()):
                raise HyperparameterError(
                    f"{name} must be positive and finite, not {value.tolist()}"
                )
        if len(self.noise_variance) != len(self.prior_variance):
            raise HyperparameterError("σ² and λ² must both have one value per target")

    @classmethod
    def of(cls, *, noise_variance: float, prior_variance: float, targets: int = 1) -> Self:
        """Return the same σ² and λ² for every target."""
        return cls(
            torch.full((targets,), float(noise_variance), dtype=torch.float64),
            torch.full((targets,), float(prior_variance), dtype=torch.float64),
        )


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Statistics in the eigenbasis of S: all that evidence and posterior need, for any σ and λ.

    eigenvalues: Λ, (M,), not negative. eigenvectors: Q, (M, M). cross: Qᵀb, (M, T).
    rounding: τ, a bound on the error of Λ.
    """

    eigenvalues: Tensor
    eigenvectors: Tensor
    cross: Tensor
    target_squares: Tensor
    count: int
    rounding: float

    @classmethod
    def of(cls, statistics: Statistics) -> Self:
        """Factor S, and refuse it where no rounding explains a negative eigenvalue."""
        scatter = (statistics.scatter + statistics.scatter.mT) / 2
        eigenvalues, eigenvectors = torch.linalg.eigh(scatter)
        least, greatest = float(eigenvalues[0]), float(eigenvalues[-1])
        allowed = max(statistics.rounding, _INDEFINITE * greatest)
        if least < -allowed:
            raise NotPositive(
                f"S has the eigenvalue {least:.3g} where the largest is {greatest:.3g}, below "
                f"−{allowed:.3g}, which rounding explains: a contribution is wrong, or more was "
                "subtracted than was ever added"
            )
        return cls(
            eigenvalues.clamp_min(0.0),
            eigenvectors,
            eigenvectors.mT @ statistics.cross,
            statistics.target_squares,
            statistics.count,
            statistics.rounding,
        )

    def _informative(self, hyperparameters: Hyperparameters) -> Tensor:
        """Return Qᵀb without what is but amplified rounding, (M, T)."""
        noise, prior = hyperparameters.noise_variance, hyperparameters.prior_variance
        harmless = self.rounding * prior < noise
        return self.cross * (harmless | (self.eigenvalues > self.rounding).unsqueeze(1))

    def posterior_variances(self, hyperparameters: Hyperparameters) -> Tensor:
        """Return the eigenvalues of A⁻¹, (M, T)."""
        noise, prior = hyperparameters.noise_variance, hyperparameters.prior_variance
        return 1 / (self.eigenvalues.unsqueeze(1) / noise + 1 / prior)

    def posterior_weights(self, hyperparameters: Hyperparameters) -> Tensor:
        """Return w̄ = σ⁻²A⁻¹b, (M, T), in the features' own basis."""
        shrunk = self.posterior_variances(hyperparameters) / hyperparameters.noise_variance
        return self.eigenvectors @ (self._informative(hyperparameters) * shrunk)

    def log_evidence(self, hyperparameters: Hyperparameters) -> Tensor:
        """Return log p(y | σ, λ) of each target, (T,), its constant included (eq. 2.8, halved).

        −½[n log 2πσ² + Σ log(1 + Λλ²/σ²) + yᵀy/σ² − σ⁻⁴ Σ (Qᵀb)²/(Λ/σ² + λ⁻²)].
        """
        noise, prior = hyperparameters.noise_variance, hyperparameters.prior_variance
        determinant = torch.log1p(self.eigenvalues.unsqueeze(1) * (prior / noise)).sum(0)
        squares = self._informative(hyperparameters) ** 2
        explained = (squares * self.posterior_variances(hyperparameters)).sum(0) / noise**2
        residual = self.target_squares / noise - explained
        return -0.5 * (self.count * torch.log(2 * math.pi * noise) + determinant + residual)


def rounding_of(*, resolution: float, clients: int, features: int) -> float:
    """Return a bound, exceeded with negligible probability, on the spectral norm of S's rounding.

    Each of C clients rounds each entry to a multiple of `resolution`, so an entry's error has
    variance C·resolution²/12, and a symmetric matrix of such entries has spectral norm
    2√M times their standard deviation: √(C·M/3)·resolution. Twice that is returned.
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

    weights: w̄, (M, T). eigenvectors: Q, (M, M). variances: the eigenvalues of A⁻¹, (M, T).
    log_evidence: (T,).
    """

    weights: Tensor
    eigenvectors: Tensor
    variances: Tensor
    hyperparameters: Hyperparameters
    log_evidence: Tensor

    @classmethod
    def of(cls, statistics: Statistics | Spectrum, hyperparameters: Hyperparameters) -> Self:
        """Condition on statistics; with none (n = 0) this is the prior."""
        spectrum = statistics if isinstance(statistics, Spectrum) else Spectrum.of(statistics)
        targets = spectrum.cross.shape[1]
        if len(hyperparameters.noise_variance) != targets:
            raise HyperparameterError(
                f"{targets} targets need {targets} values of σ² and λ², "
                f"not {len(hyperparameters.noise_variance)}"
            )
        return cls(
            spectrum.posterior_weights(hyperparameters),
            spectrum.eigenvectors,
            spectrum.posterior_variances(hyperparameters),
            hyperparameters,
            spectrum.log_evidence(hyperparameters),
        )

    def predict(self, features: Tensor) -> Prediction:
        """Predict at features (rows, M); a latent variance is a sum of squares, never negative."""
        phi = self._checked(features)
        rotated = phi @ self.eigenvectors
        return Prediction(
            phi @ self.weights, rotated**2 @ self.variances, self.hyperparameters.noise_variance
        )

    def latent_covariance(self, features: Tensor) -> Tensor:
        """Return ΦA⁻¹Φᵀ of each target, (T, rows, rows)."""
        rotated = self._checked(features) @ self.eigenvectors
        return torch.stack([(rotated * variance) @ rotated.mT for variance in self.variances.mT])

    def sample_weights(self, count: int, *, generator: torch.Generator) -> Tensor:
        """Draw w ~ N(w̄, A⁻¹), (count, M, T); φ(x)ᵀw is then one function at every x."""
        shape = (count, *self.weights.shape)
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        return self.weights + self.eigenvectors @ (self.variances.sqrt() * noise)

    def log_density(self, features: Tensor, targets: Tensor) -> Tensor:
        """Return the joint log density of new targets (rows, T) under the predictive, (T,).

        By the chain rule it is the log evidence of the new rows under the posterior as a prior:
        with R = ΦA^{-1/2}, the Gaussian N(Φw̄, RRᵀ + σ²I), evaluated in the smaller of the two
        dimensions.
        """
        phi = self._checked(features)
        y = targets.unsqueeze(1) if targets.ndim == 1 else targets
        if y.shape != (len(phi), self.weights.shape[1]) or not torch.isfinite(y).all():
            raise WrongShape(f"targets must be finite and ({len(phi)}, {self.weights.shape[1]})")
        residuals = y.double() - phi @ self.weights
        rotated = phi @ self.eigenvectors
        densities = []
        for target, noise in enumerate(self.hyperparameters.noise_variance):
            root = rotated * self.variances[:, target].sqrt()
            whitened = Statistics.of_features(root, residuals[:, target])
            unit_prior = Hyperparameters(noise.reshape(1), torch.ones(1, dtype=torch.float64))
            densities.append(Spectrum.of(whitened).log_evidence(unit_prior)[0])
        return torch.stack(densities)

    def _checked(self, features: Tensor) -> Tensor:
        if features.ndim != 2 or features.shape[1] != len(self.weights):
            raise WrongShape(
                f"features must be (rows, {len(self.weights)}), not {tuple(features.shape)}"
            )
        if len(features) == 0:
            raise EmptyTable("no rows to predict")
        if not torch.isfinite(features).all():
            raise NotFinite("features are not finite: check the table before predicting")
        return features.detach().double()
