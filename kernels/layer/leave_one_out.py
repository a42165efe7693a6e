"""Predictions of a layer's own rows by the layer without them, in closed form.

A layer knows its training rows too well to be judged by them. But its posterior without a unit's
rows (a patient's, or a single row) follows from the posterior with them: with the unit's features
Φ, H = ΦA⁻¹Φᵀ/σ² and residuals r = y − Φw̄, taking ΦᵀΦ/σ² out of A leaves

    y − μ = (I − H)⁻¹r,   v = σ² diag H(I − H)⁻¹

(Sherman, Morrison, Woodbury). So a site that has the posterior predicts each of its training rows
as a new row, without another sum: the least that cross-fitting can leave out, and the whole of what
it learns. The kernel's weights, σ and λ stay those of all rows.

With R = ΦA^{-1/2}/σ = UsVᵀ, H = Us²Uᵀ, and both follow from s²/(1 − s²).
"""

import torch
from torch import Tensor

from kernels.layer.posterior import Posterior, Prediction

_MOST_LEVERAGE = 1 - 2.0**-20
"""A row's share in its own prediction is less than 1; rounding may bring it there."""


def predict_without_own(
    posterior: Posterior, features: Tensor, targets: Tensor, unit: Tensor
) -> Prediction:
    """Predict training rows, each by the posterior without the rows of its unit.

    features: (n, M), targets: (n, T). unit: (n,) int64, the unit of each row, with all its rows.
    """
    said = posterior.predict(features)
    residuals = targets - said.mean
    error, latent = residuals.clone(), said.latent_variance.clone()
    shared = _of_several_rows(unit)
    for target, root in enumerate(posterior.roots(features)):
        noise = posterior.hyperparameters.noise_variance[target]
        own = root.square().sum(1)
        # What inducing features leave out of the variance (`Posterior.predict`) stays as it is.
        left_out = latent[:, target] - own
        leverage = (own / noise).clamp_max(_MOST_LEVERAGE)
        error[:, target] /= 1 - leverage
        latent[:, target] = noise * leverage / (1 - leverage)
        for rows in shared:
            u, s, _ = torch.linalg.svd(root[rows] / noise.sqrt(), full_matrices=False)
            squares = s.square().clamp_max(_MOST_LEVERAGE)
            gain = squares / (1 - squares)
            r = residuals[rows, target]
            error[rows, target] = r + u @ (gain * (u.mT @ r))
            latent[rows, target] = noise * (u.square() @ gain)
        latent[:, target] += left_out
    return Prediction(targets - error, latent, said.noise_variance)


def _of_several_rows(unit: Tensor) -> list[Tensor]:
    """Return the positions of the rows of every unit that has more than one."""
    sizes = torch.bincount(unit)
    together = torch.split(unit.argsort(stable=True), sizes.tolist())
    return [rows for rows in together if len(rows) > 1]
