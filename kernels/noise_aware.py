"""A stand-in until the noise-aware posterior is merged: S̃ made positive, noise as a ridge."""

from dataclasses import replace

import torch
from torch import Tensor

from kernels.linear import Hyperparameters, Posterior, Spectrum
from kernels.refit import refit as refit_exact
from kernels.statistics import Statistics


def _repaired(statistics: Statistics) -> Spectrum:
    noise = statistics.noise
    floor = 0.0 if noise is None else noise.scatter * float(statistics.features) ** 0.5
    eigenvalues, eigenvectors = torch.linalg.eigh(statistics.scatter)
    squares = statistics.target_squares.clamp_min(1e-3 * statistics.count)
    return Spectrum(
        eigenvalues.clamp_min(0.0) + floor,
        eigenvectors,
        eigenvectors.mT @ statistics.cross,
        squares,
        max(1, statistics.count),
        0.0,
    )


def refit(statistics: Statistics) -> Hyperparameters:
    """Return σ² and λ²."""
    found = refit_exact(_repaired(statistics))
    return replace(found, noise_variance=found.noise_variance.clamp_min(1e-2))


def posterior(statistics: Statistics, hyperparameters: Hyperparameters) -> Posterior:
    """Return the posterior."""
    return Posterior.of(_repaired(statistics), hyperparameters)


def covariance(found: Posterior, target: int) -> Tensor:
    """Return A⁻¹ of one target, (M, M)."""
    return (found.eigenvectors * found.variances[:, target]) @ found.eigenvectors.mT
