"""σ and λ re-optimised for given statistics: empirical Bayes from one eigendecomposition.

Maximises log p(y | σ, λ) + log N(log λ; m, s²) for each target within bounds; for inducing features
Titsias's bound of the first term (`kernels.layer.posterior`). In the eigenbasis an
evaluation costs O(M), so a grid over both finds the right mode (noise and signal can be mistaken
for each other, and a gradient method can stop at the wrong mode). A bounded quasi-Newton search
with closed-form gradients and a few Newton steps then find the optimum. This needs no
communication: the statistics have already been summed. The result is rounded to a few digits
(`Hyperparameters.rounded`), so that everyone who has the same sums has the same σ and λ.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from kernels.errors import EmptyTable, HyperparameterError
from kernels.layer.posterior import Hyperparameters, Spectrum
from kernels.newton import polished

_GRID = 25
_OVERSHOOT = 2.0**-15
"""How far rounding can move log σ or log λ beyond its bound."""
_EPSILON = torch.finfo(torch.float64).eps


@dataclass(frozen=True, kw_only=True)
class RefitOptions:
    """The bounds of σ and λ and the prior of λ, on the scale of standardised targets.

    noise_bounds, prior_bounds: the smallest and largest σ and λ (standard deviations).
    log_prior_mean, log_prior_scale: the prior log λ ~ N(mean, scale²).
    """

    noise_bounds: tuple[float, float] = (1e-3, 1e1)
    prior_bounds: tuple[float, float] = (1e-2, 1e3)
    log_prior_mean: float = 0.0
    log_prior_scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("noise_bounds", "prior_bounds"):
            least, most = getattr(self, name)
            if not (0 < least < most < np.inf):
                raise HyperparameterError(
                    f"{name} must be two finite numbers with 0 < least < most, not {least}, {most}"
                )
        if not (0 < self.log_prior_scale < np.inf and np.isfinite(self.log_prior_mean)):
            raise HyperparameterError(
                "log_prior_mean must be finite and log_prior_scale positive and finite, not "
                f"{self.log_prior_mean} and {self.log_prior_scale}"
            )


def refit(spectrum: Spectrum, options: RefitOptions | None = None) -> Hyperparameters:
    """Return the best σ² and λ² of each target."""
    options = options or RefitOptions()
    if spectrum.count == 0:
        raise EmptyTable("the statistics have no rows: fitting σ and λ needs at least one")
    found = [_refit_one(spectrum, target, options) for target in range(spectrum.cross.shape[1])]
    noise, prior = torch.tensor(found, dtype=torch.float64).mT.contiguous()
    return Hyperparameters((2 * noise).exp(), (2 * prior).exp()).rounded()


def objective(
    spectrum: Spectrum, hyperparameters: Hyperparameters, options: RefitOptions | None = None
) -> Tensor:
    """Return what `refit` minimises, the negative log posterior of each target's σ and λ, (T,).

    It is infinite outside the bounds.
    """
    options = options or RefitOptions()
    found = []
    scales = zip(hyperparameters.noise_variance, hyperparameters.prior_variance, strict=True)
    for target, (noise, prior) in enumerate(scales):
        point = np.array([math.log(float(noise)) / 2, math.log(float(prior)) / 2])
        ends = np.log([options.noise_bounds, options.prior_bounds])
        inside = (point >= ends[:, 0] - _OVERSHOOT) & (point <= ends[:, 1] + _OVERSHOOT)
        value = _objective(spectrum, target, options)(point[0], point[1])[0]
        found.append(float(value) if inside.all() else math.inf)
    return torch.tensor(found, dtype=torch.float64)


_Objective = Callable[
    [NDArray[np.float64], NDArray[np.float64]],
    tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
]


def _objective(spectrum: Spectrum, target: int, options: RefitOptions) -> _Objective:
    """Return a target's negative log posterior, with its derivatives, at log σ and log λ."""
    eigenvalues = spectrum.eigenvalues.numpy()
    # A direction without variance would explain any b for a small enough σ, so b is weighted by how
    # far its eigenvalue exceeds the rounding. The weight is smooth: at a threshold, the last bit of
    # an eigenvalue could cause a jump, which training would amplify.
    float_error = 8 * len(eigenvalues) * _EPSILON * float(eigenvalues.max())
    floor = max(spectrum.rounding, float_error, np.finfo(np.float64).tiny)
    squares = spectrum.cross[:, target].numpy() ** 2 * eigenvalues / (eigenvalues + floor)
    total, count = float(spectrum.target_squares[target]), spectrum.count
    left_out = spectrum.left_out  # 0 except for inducing features, and then added without effect

    def value_and_slopes(
        log_noise: NDArray[np.float64], log_prior: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        noise, prior = np.exp(2 * log_noise)[..., None], np.exp(2 * log_prior)[..., None]
        variances = 1 / (eigenvalues / noise + 1 / prior)
        signal = eigenvalues * variances / noise  # how far the data determine each direction
        weights = squares * (variances / noise) ** 2  # w̄² in the eigenbasis
        explained = (squares * variances).sum(-1) / noise[..., 0] ** 2
        unexplained = left_out * prior[..., 0] / noise[..., 0]
        misfit = total / noise[..., 0] - explained - weights.sum(-1) / prior[..., 0]
        standardised = (log_prior - options.log_prior_mean) / options.log_prior_scale
        value = 0.5 * (
            2 * count * log_noise
            + np.log1p(eigenvalues * prior / noise).sum(-1)
            + total / noise[..., 0]
            - explained
            + standardised**2
            + unexplained
        )
        by_noise = count - misfit - signal.sum(-1) - unexplained
        by_prior = signal.sum(-1) - weights.sum(-1) / prior[..., 0] + unexplained
        by_prior = by_prior + standardised / options.log_prior_scale
        return value, by_noise, by_prior

    return value_and_slopes


def _refit_one(spectrum: Spectrum, target: int, options: RefitOptions) -> tuple[float, float]:
    value_and_slopes = _objective(spectrum, target, options)

    def scalar(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, by_noise, by_prior = value_and_slopes(point[0], point[1])
        return float(value), np.array([by_noise, by_prior])

    bounds = [tuple(np.log(options.noise_bounds)), tuple(np.log(options.prior_bounds))]
    axes = [np.linspace(least, most, _GRID) for least, most in bounds]
    grid = np.meshgrid(*axes, indexing="ij")
    values = value_and_slopes(*grid)[0]
    start = np.array([axis.flat[values.argmin()] for axis in grid])
    best = minimize(
        scalar,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"ftol": 1e-15, "gtol": 1e-10},
    )
    point = best.x if best.fun <= values.min() else start
    point = polished(lambda at: scalar(at)[1], point, np.array(bounds))
    return float(point[0]), float(point[1])
