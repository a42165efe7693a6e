"""The linear layer of all rows at one θ, as a state holds it: the sums, and what follows from them.

A state holds the sums themselves, which come from a total and are the same for everyone, with σ and
λ, which are rounded. It does not hold A⁻¹, w̄ or a gradient: these pass through a factorisation,
whose last digits depend on the machine, and rounding them would not help. Where λ²/σ² is large, the
large entries of A⁻¹ cancel in ΦA⁻¹, so that a grid coarse enough to hide the differences is far too
coarse for training. Everyone who needs them factorises the sums.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from torch import Tensor

from kernels.errors import StateError
from kernels.features.spec import KernelSpec
from kernels.layer.posterior import Hyperparameters, Spectrum, left_out_of
from kernels.layer.statistics import Statistics
from kernels.model.model import Model, known
from kernels.reproducible import near

EVIDENCE_STEP = 2.0**-20
"""The grid of L/n, which is only reported."""


@dataclass(frozen=True, eq=False)
class Pooled:
    """(S, b, yᵀy, n) of all training rows; the factorisation is made once, when it is needed."""

    STORED_AS: ClassVar[str] = "pooled"

    statistics: Statistics

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.statistics.count

    def spectrum(self, kernel: KernelSpec) -> Spectrum:
        """Return the eigendecomposition of S, the features of which are the kernel's."""
        inducing = kernel.inducing_features
        if not inducing:
            return self._spectrum
        left_out = left_out_of(self.statistics, inducing)
        return replace(self._spectrum, inducing=inducing, left_out=left_out)

    @cached_property
    def _spectrum(self) -> Spectrum:
        return Spectrum.of(self.statistics)

    def evidence(self, kernel: KernelSpec, scales: Hyperparameters) -> float:
        """Return L/n, the negative log evidence per row, rounded to EVIDENCE_STEP."""
        value = -float(self.spectrum(kernel).log_evidence(scales).sum()) / max(self.rows, 1)
        return near(value, EVIDENCE_STEP)


def posterior_weights(pooled: Pooled, model: Model) -> Tensor:
    """Return w̄, (M, T), of all rows at the model's σ and λ."""
    spectrum = pooled.spectrum(model.kernel)
    return spectrum.posterior_weights(known(model.hyperparameters, "linear"))


def check_pooled(pooled: object, model: Model) -> None:
    """Refuse sums of another kernel or without rows; they may come from untrusted bytes."""
    if not isinstance(pooled, Pooled) or not isinstance(pooled.statistics, Statistics):
        raise StateError("state.pooled must be Pooled statistics")
    found = pooled.statistics.features, pooled.statistics.targets
    expected = model.kernel.features, model.targets
    if found != expected:
        raise StateError(
            f"state.pooled must have {expected[0]} features and {expected[1]} targets, not "
            f"{found[0]} and {found[1]}"
        )
    if pooled.rows < 1:
        raise StateError("state.pooled must have at least one row")
