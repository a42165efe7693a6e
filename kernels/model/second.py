"""A second kernel beside a model's own: a mixture of two that predicts better than either alone.

With the share s of the second, and N(μ_k, v_k + σ_k²) what the layer of each kernel predicts, a
model predicts the Gaussian with the mean and the variance of their mixture:

    μ = (1 − s)μ₁ + sμ₂
    v = (1 − s)v₁ + sv₂ + s(1 − s)(μ₁ − μ₂)²     latent: where the two disagree, less is known
    σ² = (1 − s)σ₁² + sσ₂²                        noise, the same in every row

Recalibration and scores are those of this Gaussian, as for a model with one kernel. Only for
targets that are real numbers, and without differential privacy.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from torch import Tensor

from kernels.errors import StateError
from kernels.features.spec import KernelSpec
from kernels.layer.posterior import Hyperparameters
from kernels.layer.statistics import Statistics
from kernels.model.withheld import Withheld

SHARES = 8
"""The share of the second kernel is a multiple of 1/8: between two of them, little changes."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Second:
    """A kernel beside that of a model, with its layer.

    share: the weight of its predictions, above 0 and below 1. The other fields are those of `Model`
    with the same names, for this kernel.
    """

    STORED_AS: ClassVar[str] = "second"

    kernel: KernelSpec
    share: float
    weights: Tensor | None = None
    hyperparameters: Hyperparameters | None = None
    statistics: Statistics | None = None
    withheld: Withheld | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, KernelSpec):
            raise StateError("model.second.kernel must be a KernelSpec")
        own = self.share * SHARES if type(self.share) is float else 0.0
        if not 0 < own < SHARES or not own.is_integer():
            raise StateError(
                f"model.second.share must be a multiple of 1/{SHARES} between 0 and 1, not "
                f"{self.share!r:.40}"
            )
        if self.withheld is not None and not isinstance(self.withheld, Withheld):
            raise StateError("model.second.withheld must be Withheld")

    @property
    def judged(self) -> Self:
        """The kernel with the layer that held-out rows are judged by."""
        if self.withheld is None:
            return self
        return replace(
            self,
            statistics=self.withheld.statistics,
            hyperparameters=self.withheld.hyperparameters,
            withheld=None,
        )

    @property
    def without_sums(self) -> Self:
        """The kernel before its layer is summed."""
        return replace(self, statistics=None, withheld=None)
