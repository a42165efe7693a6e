"""q(w) = N(μ, V) from weighted sums: the Gaussian layer with σ = 1, its bound, and λ by the bound.

With the prior w ~ N(0, λ²I) and the rows' parabolas κf − ωf²/2 (`kernels.outcomes.weighted`),

    A = S_ω + λ⁻²I,   V = A⁻¹,   μ = A⁻¹b

are the posterior of a layer with σ = 1 whose rows are √ω·φ and whose targets are κ/√ω. The
eigenbasis of S_ω and what follows from it are therefore those of `kernels.layer.posterior`, with
its treatment of rounding. For any q, with t the expectation under q of log p or of a bound of it,

    log p(y) ≥ Σt − KL(q ‖ N(0, λ²I))

As a function of λ, with the parabolas held fixed and q the best for them, the right side is
½bᵀA⁻¹b − ½log|λ²A| + constant: what `refit` maximises over λ, together with log N(log λ; m, s²).
The gradient of the negative bound with respect to the sums is

    G_S = ½(V + μμᵀ),   G_b = −μ

with ω, κ and t held fixed, because the bound is stationary in q and in what they depend on.

**A part of the features may be stretched**: multiplied by a ratio ρ, as the linear part of a kernel
that is a sum (`kernels.features.linear_part`). S_ω and b of stretched features are DS_ωD and Db,
D = diag(1, …, ρ, …), so ρ is found with λ from the same sums. The sums of a layer are always those
of the features as they are; D is applied here.

**Inducing features** (`kernels.features.inducing`) leave out a part of the variance of f, which
predictions have in addition. The bound is that of the layer alone, a model of its own: what the
full process's bound would subtract, ½λ²Σω(k(x, x) − ‖φ‖²), needs Σω, which is not summed.

**With differential privacy** the sums are noisy, and q is `kernels.noisy.noise_aware`'s posterior
for σ = 1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels.errors import HyperparameterError, NotPositive, WrongShape
from kernels.features.inducing import left_out
from kernels.layer.evidence import PooledEvidence
from kernels.layer.posterior import SCALE_BITS, Hyperparameters, Posterior, Spectrum
from kernels.layer.refit import RefitOptions
from kernels.newton import polished
from kernels.noisy import noise_aware
from kernels.outcomes.weighted import Weighted
from kernels.reproducible import near, number_to_bits

_GRID = 193
_VALUE_STEP = 2.0**-12
"""The grid, in nats, of the values that ratios are compared by."""
_EPSILON = torch.finfo(torch.float64).eps
# An eigenvalue below 0 by more than this, the declared rounding and float64's error is refused.
_UNDECLARED = 2.0**-20


@dataclass(frozen=True, eq=False)
class Layer:
    """One latent function's q(w), held as the sums that it follows from and λ².

    The sums are the same for everyone, and λ² is rounded; μ and V pass through a factorisation,
    whose last digits depend on the machine, so everybody computes them. Without rows q is the
    prior. μ and V are of stretched features: those from stretched[0] to stretched[1] − 1 are
    multiplied by `ratio`.
    """

    STORED_AS: ClassVar[str] = "outcome.layer"

    sums: Weighted
    prior_variance: float
    ratio: float = 1.0
    stretched: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ratio) and self.ratio > 0):
            raise HyperparameterError(f"ratio must be positive and finite, not {self.ratio}")
        first, end = self.stretched
        if not 0 <= first <= end <= self.features:
            raise WrongShape(f"stretched must be a range of {self.features} features")
        if not (math.isfinite(self.prior_variance) and self.prior_variance > 0):
            raise HyperparameterError(
                f"prior_variance must be positive and finite, not {self.prior_variance}"
            )

    @classmethod
    def prior(
        cls, features: int, *, prior_variance: float = 1.0, stretched: tuple[int, int] = (0, 0)
    ) -> Self:
        """Return N(0, λ²I), from which the first sum starts."""
        return cls(Weighted.zero(features), prior_variance, stretched=stretched)

    @cached_property
    def stretching(self) -> Tensor | None:
        """D, (M,); None if it is the identity."""
        return _stretching(self.features, self.stretched, self.ratio)

    @property
    def features(self) -> int:
        """Return M."""
        return self.sums.features

    @cached_property
    def spectrum(self) -> Spectrum:
        """The eigenbasis of S_ω."""
        return spectrum_of(_applied(self.stretching, self.sums))

    @property
    def hyperparameters(self) -> Hyperparameters:
        """λ², with σ² = 1."""
        return Hyperparameters.of(noise_variance=1.0, prior_variance=self.prior_variance)

    @cached_property
    def posterior(self) -> Posterior:
        """Q as the posterior of a Gaussian layer with one target; its predictions are latent."""
        if self.sums.noise is not None:
            statistics = _applied(self.stretching, self.sums).as_statistics()
            return noise_aware.posterior(statistics, self.hyperparameters)
        return Posterior.of(self.spectrum, self.hyperparameters)

    @property
    def mean(self) -> Tensor:
        """μ, (M,)."""
        return self.posterior.weights[:, 0]

    @property
    def covariance(self) -> Tensor:
        """V, (M, M)."""
        return self.posterior.covariance(0)

    def latent(self, features: Tensor, *, inducing: int = 0) -> tuple[Tensor, Tensor]:
        """Return the mean φᵀμ and the variance φᵀVφ of f at rows of features, each (rows,).

        inducing: how many features are inducing, the first ones: the variance has in addition what
        these leave out, as every prediction should. Sums are made without it (see the module).
        """
        if features.ndim != 2 or features.shape[1] != self.features:
            raise WrongShape(
                f"features must have shape (rows, {self.features}), not {tuple(features.shape)}"
            )
        phi = self._stretched(features)
        variance = (phi @ self._basis).square() @ self.posterior.variances[:, 0]
        if inducing:
            variance = variance + self.prior_variance * left_out(features, inducing)
        return phi @ self.mean, variance

    def joint(self, features: Tensor, *, inducing: int = 0) -> tuple[Tensor, Tensor]:
        """Return the mean (rows, J) and covariance (rows, J, J) of f at J places of each row.

        features: (rows, M − J), which a row has at all of its places. The last J features of the
        layer are indicators of the place, as of one patient in J intervals. inducing: as in
        `latent`.
        """
        phi, places = self._stretched_parts(features)
        basis, own = self._basis, features.shape[1]
        deviations = self.posterior.variances[:, 0].sqrt()
        # (φ, e_j)B is φB for the first features and row j of B for the others: a product for each
        # row, not for each of its places.
        beside = basis[own:] * places.unsqueeze(1)
        root = ((phi @ basis[:own]).unsqueeze(1) + beside) * deviations
        mean = (phi @ self.mean[:own]).unsqueeze(1) + self.mean[own:] * places
        covariance = root @ root.mT
        if inducing:
            rest = self.prior_variance * left_out(features, inducing)
            covariance = covariance + rest[:, None, None]
        return mean, covariance

    @property
    def _basis(self) -> Tensor:
        """The eigenvectors of V, (M, M)."""
        basis = self.posterior.eigenvectors
        return basis[0] if basis.ndim == 3 else basis

    def _stretched(self, features: Tensor) -> Tensor:
        phi = features.detach().double()
        return phi if self.stretching is None else phi * self.stretching

    def _stretched_parts(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return features (rows, M − J), stretched, and by what the J indicators are."""
        phi, own = features.detach().double(), features.shape[1]
        if self.stretching is None:
            return phi, torch.ones(self.features - own, dtype=torch.float64)
        return phi * self.stretching[:own], self.stretching[own:]

    def divergence(self) -> float:
        """Return KL(q ‖ N(0, λ²I))."""
        ratios = self.posterior.variances[:, 0] / self.prior_variance
        size = float(self.mean.square().sum()) / self.prior_variance
        return 0.5 * (float((ratios - 1 - ratios.log()).sum()) + size)

    def bound(self, total: Weighted) -> float:
        """Return the bound on log p(y) at this q, from the sums of all rows *at this q*."""
        return total.terms - self.divergence()

    @cached_property
    def gradient(self) -> tuple[Tensor, Tensor]:
        """G_S, (M, M), and G_b, (M, 1), of the negative bound."""
        pooled = PooledEvidence.of(self.spectrum, self.hyperparameters)
        by = self.stretching
        if by is None:
            return pooled.scatter_gradient, pooled.cross_gradient
        scatter = pooled.scatter_gradient * by.unsqueeze(0) * by.unsqueeze(1)
        return scatter, pooled.cross_gradient * by.unsqueeze(1)


def updated(
    layer: Layer,
    total: Weighted,
    options: RefitOptions | None = None,
    *,
    share: float = 1.0,
    fixed_prior: bool = False,
) -> Layer:
    """Return the layer that follows from the sums of all rows at `layer`, as `updated_together`."""
    return updated_together((layer,), (total,), options, share=share, fixed_prior=fixed_prior)[0]


RATIOS: tuple[float, ...] = tuple(2.0**step for step in range(-4, 5))
"""The ratios of a stretched part that the bound chooses from."""


def updated_together(
    layers: Sequence[Layer],
    totals: Sequence[Weighted],
    options: RefitOptions | None = None,
    *,
    share: float = 1.0,
    fixed_prior: bool = False,
    choose_ratio: bool = False,
) -> tuple[Layer, ...]:
    """Return the layers, with one λ, that follow from the sums of all rows at `layers`.

    share: how far to go along the natural gradient; 1 is all the way. fixed_prior: keep λ and the
    ratio. choose_ratio: of a stretched part, find the ratio with λ; otherwise it is kept.
    """
    pairs = zip(layers, totals, strict=True)
    moved = [replace(layer, sums=layer.sums.towards(total, share)) for layer, total in pairs]
    if fixed_prior or not any(own.sums.count for own in moved):
        return tuple(moved)
    if any(own.sums.noise is not None for own in moved):
        noisy = [_applied(own.stretching, own.sums).as_statistics() for own in moved]
        prior = noise_aware.refit_prior(noisy, options)
        return tuple(replace(own, prior_variance=prior) for own in moved)
    first, end = moved[0].stretched
    ratios = RATIOS if choose_ratio and end > first else (moved[0].ratio,)
    return max((_refitted(moved, ratio, options) for ratio in ratios), key=itemgetter(0))[1]


def _refitted(
    layers: Sequence[Layer], ratio: float, options: RefitOptions | None
) -> tuple[float, tuple[Layer, ...]]:
    """Return layers with a ratio and the λ that is best for it, and how good they are together.

    The value is rounded, so that all machines prefer the same ratio.
    """
    at_ratio = [replace(own, ratio=ratio) for own in layers]
    prior, value = _likeliest([own.spectrum for own in at_ratio], options)
    found = tuple(replace(own, prior_variance=prior) for own in at_ratio)
    return near(value, _VALUE_STEP), found


def spectrum_of(sums: Weighted) -> Spectrum:
    """Factor S_ω; refuse it if rounding cannot explain a negative eigenvalue."""
    scatter = (sums.scatter + sums.scatter.mT) / 2
    eigenvalues, eigenvectors = torch.linalg.eigh(scatter)
    least, greatest = float(eigenvalues[0]), float(eigenvalues[-1])
    allowed = sums.rounding + 8 * sums.features * _EPSILON * max(greatest, 0.0) + _UNDECLARED
    if least < -allowed and sums.noise is None:
        raise NotPositive(
            f"S_ω has the eigenvalue {least:.3g} (the largest is {greatest:.3g}), and rounding "
            f"explains none below −{allowed:.3g}: a contribution is wrong"
        )
    return Spectrum(
        eigenvalues.clamp_min(0.0),
        eigenvectors,
        (eigenvectors.mT @ sums.cross).unsqueeze(1),
        torch.zeros(1, dtype=torch.float64),
        sums.count,
        sums.rounding,
    )


def refit(spectra: Sequence[Spectrum], options: RefitOptions | None = None) -> float:
    """Return the λ² that maximises Σ[½bᵀA⁻¹b − ½log|λ²A|] + log N(log λ; m, s²), rounded.

    The sum is over the latent functions that share λ. Of the options those of λ are used. The value
    is rounded (`SCALE_BITS`), so that everyone who has the same sums has the same λ.
    """
    return _likeliest(spectra, options)[0]


def _likeliest(spectra: Sequence[Spectrum], options: RefitOptions | None) -> tuple[float, float]:
    """Return λ², and the value that it maximises."""
    options = options or RefitOptions()
    parts = [_objective(spectrum) for spectrum in spectra]

    def objective(at: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        away = (at - options.log_prior_mean) / options.log_prior_scale
        found = [part(at) for part in parts]
        value = sum((own[0] for own in found), start=away**2 / 2)
        return value, sum((own[1] for own in found), start=away / options.log_prior_scale)

    ends = np.log([options.prior_bounds])
    axis = np.linspace(ends[0, 0], ends[0, 1], _GRID)
    start = axis[objective(axis)[0].argmin()]
    # Newton's steps start within a cell of the grid's best point and must not leave its neighbours.
    cell = (ends[0, 1] - ends[0, 0]) / (_GRID - 1)
    near = np.array([[max(ends[0, 0], start - cell), min(ends[0, 1], start + cell)]])
    point = polished(lambda at: objective(at)[1], np.array([start]), near)
    value = -float(objective(point)[0][0])
    return number_to_bits(math.exp(2 * float(point[0])), SCALE_BITS), value


def log_prior(prior_variance: float, options: RefitOptions | None = None) -> float:
    """Return log N(log λ; m, s²) without its constant."""
    options = options or RefitOptions()
    away = math.log(prior_variance) / 2 - options.log_prior_mean
    return -((away / options.log_prior_scale) ** 2) / 2


def _stretching(features: int, part: tuple[int, int], ratio: float) -> Tensor | None:
    if ratio == 1 or part[0] == part[1]:
        return None
    by = torch.ones(features, dtype=torch.float64)
    by[part[0] : part[1]] = ratio
    return by


def _applied(by: Tensor | None, sums: Weighted) -> Weighted:
    return sums if by is None else sums.stretched(by)


_Objective = Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]]


def _objective(spectrum: Spectrum) -> _Objective:
    """Return −½bᵀA⁻¹b + ½log|λ²A|, with its slope, at values of log λ."""
    eigenvalues = spectrum.eigenvalues.numpy()
    # As in `kernels.layer.refit`: b counts as far as its eigenvalue exceeds the rounding.
    float_error = 8 * len(eigenvalues) * _EPSILON * float(eigenvalues.max())
    floor = max(spectrum.rounding, float_error, np.finfo(np.float64).tiny)
    squares = spectrum.cross[:, 0].numpy() ** 2 * eigenvalues / (eigenvalues + floor)

    def value_and_slope(
        log_prior: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        prior = np.exp(2 * log_prior)[..., None]
        variances = 1 / (eigenvalues + 1 / prior)
        value = np.log1p(eigenvalues * prior).sum(-1) - (squares * variances).sum(-1)
        slope = (eigenvalues * variances).sum(-1) - (squares * variances**2 / prior).sum(-1)
        return value / 2, slope

    return value_and_slope
