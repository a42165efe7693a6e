"""A ridge that takes noisy statistics for exact ones, as one would who ignores the noise.

One release of S, b and yᵀy of random features on pooled rows, in equal parts, with Gaussian noise
for the whole (ε, δ). Eigenvalues of S below the noise's own (`floor` of its spectral radius s√2M)
are raised to that, or noise in b would be divided by next to nothing; σ and λ by the evidence. Its
variances know nothing of the noise.

Tuned (`benchmarks.dp.tuning`, mean log RMSE on validation rows, m and floor): 25, 1 1.000; 50, ¼
1.049; 50, ½ .980; 50, 1 .978; 50, 2 1.035; 100, ½ .984; without a floor it explodes.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from benchmarks.dp.pooled import Pooled
from benchmarks.dp.routes import DELTA, TARGET_CLIP, public_kernel
from benchmarks.dp.scores import Score
from kernels.features.urk import URK
from kernels.layer.posterior import Posterior, Prediction, Spectrum
from kernels.layer.refit import refit
from kernels.layer.statistics import Statistics
from kernels.noisy.realisable import symmetric_normals
from privacy.accounting.planning import Stage, multipliers


@dataclass(frozen=True)
class Tuned:
    """m, and the floor under eigenvalues in spectral radii of the noise."""

    samples: int
    floor: float


RIDGE = Tuned(samples=50, floor=1.0)


def ridge(pooled: Pooled, epsilon: float, seed: int) -> Score:
    """Score the test rows."""
    predicted = fitted(pooled, epsilon, seed, RIDGE)[1]
    return pooled.score(predicted.mean[:, 0].numpy(), predicted.variance[:, 0].numpy())


def fitted(
    pooled: Pooled, epsilon: float, seed: int, tuned: Tuned
) -> tuple[Prediction, Prediction]:
    """Return predictions of the validation and the test rows."""
    random = np.random.default_rng([seed, 2])
    x, y = pooled.training
    kernel = URK(replace(public_kernel(x.shape[1])[0], samples=tuned.samples))
    own = Statistics.of_table(
        kernel, torch.from_numpy(x), torch.from_numpy(y.clip(-TARGET_CLIP, TARGET_CLIP))
    )
    (z,) = multipliers([Stage(part="training")], epsilon=float(epsilon), delta=DELTA)
    third = z * math.sqrt(3)
    scatter = own.scatter + third * symmetric_normals(seed, "ridge", own.features)
    cross = own.cross + third * TARGET_CLIP * torch.from_numpy(
        random.normal(size=(own.features, 1))
    )
    squares = own.target_squares + third * TARGET_CLIP**2 * random.normal()
    values, basis = torch.linalg.eigh(scatter)
    floor = tuned.floor * third * math.sqrt(2 * own.features)
    spectrum = Spectrum(
        values.clamp_min(floor), basis, basis.mT @ cross, squares.clamp_min(1.0), own.count, 1e-9
    )
    posterior = Posterior.of(spectrum, refit(spectrum))
    held_out, tested = (
        posterior.predict(kernel.features(torch.from_numpy(part[0])).detach())
        for part in (pooled.validation, pooled.test)
    )
    return held_out, tested
