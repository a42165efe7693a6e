"""How well a model's predictive variances tell its training rows from other rows, at most.

A row of features φ lowers the layer's variance at itself: with h = φᵀA⁻¹φ/σ² before it was added,
h/(1 + h) is left. Someone who knows the kernel, and other patients of the same population, computes
the h that a model without the row would have, up to chance: its deviation over tables of n rows is
h√(2/n) for Gaussian features, of which d are in effect free,

    d = tr(A⁻¹S)/σ² = Σ Λ/(Λ + σ²/λ²) ≤ M,    h ≈ d/n,    d' = h/√(2/n) = d/√(2n)

where d' is how far the reduction stands out from chance. The area under the curve of the best test
is then

    AUC = Φ(d'/√2) = Φ(d/(2√n))

It is 0.5 if nothing can be told. It falls with the *square* of the features: 10 of them need 400
rows for 0.60, 100 need 40,000. Measured (`tests/adversary/variance_oracle.py`), attacks stay below
it or within 0.02 for n ≥ 300: at the bound for columns alone (the linear kernel), well below it for
inducing points, whose h vary more than those of Gaussian features. It is an estimate of one attack
and not a guarantee, which only noise in the training gives: its ε = 1 allows an AUC of 0.606.

An exact copy of the sums tells about as much as all variances together, so the same number is used
for the model itself. Whoever has the records of nearly all patients learns more than this from both
(docs/threats.md, A27).
"""

from statistics import NormalDist

from torch import Tensor

from kernels.layer.posterior import Posterior
from kernels.model.model import Model, check_fitted, training_rows


def effective_features(posterior: Posterior) -> Tensor:
    """Return d of each target of a layer without noise, (T,)."""
    prior = posterior.hyperparameters.prior_variance
    return (1 - posterior.variances / prior).clamp_min(0.0).sum(0)


def most_effective_features(model: Model) -> float:
    """Return d of the layer that has most, over all targets of a fitted model."""
    check_fitted(model)
    posteriors = [] if model.statistics is None else [model.posterior]
    posteriors += [layer.posterior for own in model.outcomes or () for layer in own.layers]
    return max(float(effective_features(each).max()) for each in posteriors)


def membership_auc(model: Model) -> float:
    """Return the estimate for a fitted model whose sums have no noise, from 0.5 to 1."""
    rows = training_rows(model)
    if rows == 0:
        return 0.5
    return NormalDist().cdf(most_effective_features(model) / (2 * rows**0.5))
