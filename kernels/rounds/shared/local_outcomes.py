"""The outcomes of one site's rows while the kernel is trained there (`local_training`).

The bound of the site's own rows has the gradient ∂/∂Φ of ⟨G_S, S_ω⟩ + ⟨G_b, b⟩ at q
(`kernels.outcomes.variational`). q starts at the prior and takes one step for each step of θ, which
it follows; nothing of it leaves the site.
"""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from kernels.model.model import Model
from kernels.outcomes.classes import STRIDE
from kernels.outcomes.likelihood import Likelihood
from kernels.outcomes.variational import updated_together
from kernels.rounds.shared.weighted_sums import likelihoods_at, site_outcomes, starting
from kernels.rounds.site.site import Part, Site


class LocalOutcomes:
    """The site's training rows of every outcome, and the q of each so far."""

    def __init__(self, likelihoods: Sequence[Likelihood], columns: Sequence[Tensor]) -> None:
        self._likelihoods = list(likelihoods)
        self._columns = list(columns)

    @classmethod
    def of(cls, model: Model, site: Site) -> "LocalOutcomes":
        """Return those of a site, at their priors."""
        columns = site_outcomes(model, site, Part.TRAINING)
        return cls(likelihoods_at(model, starting(model)), columns)

    def loss(self, features: Tensor) -> Tensor:
        """Return a value whose gradient in the features, (n, M), is that of the negative bound."""
        total = features.new_zeros(())
        for index, columns in enumerate(self._columns):
            phi = features.detach()
            at = self._likelihoods[index]
            sums = at.sums(phi, columns)
            share = 1.0 if len(sums) == 1 else STRIDE
            layers = updated_together(at.fitted.layers, sums, share=share)
            at = replace(at, fitted=replace(at.fitted, layers=layers))
            self._likelihoods[index] = at
            total = total + (features * at.feature_gradient(phi, columns)).sum()
        return total
