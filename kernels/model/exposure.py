"""How well a model's predictive variances tell its training rows from other rows, at most.

A row of features φ lowers the layer's variance at itself: with h = φᵀA⁻¹φ/σ² before it was added,
h/(1 + h) is left. Someone who knows the kernel, and other patients of the same population, computes
the h that a model without the row would have, up to chance: its deviation over tables of n rows is
h√(2/n) for M Gaussian features, and h ≈ M/n, so the reduction stands out from chance by
d' = h/√(2/n) = M/√(2n). The area under the curve of the best test is then

    AUC = Φ(d'/√2) = Φ(M/(2√n))

It is 0.5 if nothing can be told. It falls with the *square* of the features: 10 of them need 400
rows for 0.60, 100 need 40,000. All M features count, and not those that the prior leaves free,
d = tr(A⁻¹S)/σ² ≤ M: what the prior adds to the variances is known, does not change by chance, and
is taken away from variances in float64 as from the sums themselves. (With d, a linear layer of 100
columns with a weak signal had an estimate of .59, and the attack .85.) Of a mixture the features of
both kernels count.

Measured (`tests/adversary/variance_oracle.py`), attacks stay below it or within 0.02 for n ≥ 300:
at the bound for columns alone (the linear kernel), well below it for inducing points, whose h vary
more than those of Gaussian features. It is an estimate of one attack and not a guarantee, which
only noise in the training gives: its ε = 1 allows an AUC of 0.606.

An exact copy of the sums tells about as much as all variances together, so the same number is used
for the model itself, of the rows that its file shows alone: where held-out rows were added in the
end, the difference of both layers is their sum, and they are few. Whoever has the records of nearly
all patients learns more than this from both (docs/threats.md, A27).
"""

from statistics import NormalDist

from torch import Tensor

from kernels.layer.posterior import Posterior
from kernels.model.model import Model, check_fitted, training_rows


def effective_features(posterior: Posterior) -> Tensor:
    """Return d of each target of a layer without noise, (T,)."""
    prior = posterior.hyperparameters.prior_variance
    return (1 - posterior.variances / prior).clamp_min(0.0).sum(0)


def exposed_features(model: Model) -> int:
    """Return M of the layer that has most, and of a mixture of the layers of both kernels."""
    check_fitted(model)
    layers = [layer.features for own in model.outcomes or () for layer in own.layers]
    return sum(max([own.kernel.features, *layers]) for own, _ in model.members)


def rows_shown_alone(model: Model) -> int:
    """Return the rows of the smallest sum that a model's file shows: held-out rows, or all."""
    rows, apart = training_rows(model), model.withheld
    if apart is None:
        return rows
    before = training_rows(model.judging(apart))
    return min(before, rows - before)


def membership_auc(model: Model, *, rows: int | None = None) -> float:
    """Return the estimate for a fitted model whose sums have no noise, from 0.5 to 1.

    rows: of the sum that is attacked; by default all training rows.
    """
    rows = training_rows(model) if rows is None else rows
    if rows == 0:
        return 0.5
    return NormalDist().cdf(exposed_features(model) / (2 * rows**0.5))
