"""Networks that sites have trained together, as methods of a model: one of each algorithm.

Each of S samples θ_s of the parameters predicts N(f_s(x), v_s(x) + σ²), and together they predict
the mean and the variance of their mixture:

    mean f̄ = Σ f_s / S,   variance Σ [(f_s − f̄)² + v_s] / S + σ²

Networks of a `NetworkSpec` have no v_s: with one sample, a point, the variance is σ² at every row.
Those of a `StudentSpec` have a head for v_s, and σ² is 0.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import torch
from torch import Tensor

from kernels.ensembles import student_network
from kernels.ensembles.networks import NetworkSpec, outputs
from kernels.ensembles.student_network import StudentSpec
from kernels.errors import StateError
from kernels.scores.gaussians import Gaussian
from kernels.storage import check_rows, check_tensor

MOST_SAMPLES = 1000
"""The largest number of sampled networks in a model."""


class NetworkMethod(StrEnum):
    """The algorithms whose networks are served, each in its file in `kernels.rounds.compared`."""

    FEDPA = "fedpa"
    """Posterior averaging: one network."""
    EP_MCMC = "ep_mcmc"
    """Samples of the product of the sites' Gaussians over the parameters."""
    FEDYOGI = "fedyogi"
    """Averaging with an adaptive server: one network."""
    FEDBE = "fedbe"
    """A student of the sites' networks and of draws around their mean."""
    ONE_SHOT = "one_shot"
    """A student of the sites' networks, each trained alone."""


@dataclass(frozen=True, eq=False)
class Networks:
    """The networks of one method.

    samples: θ_s, (S, P). noise_variance: σ² of each standardised target, (T,); 0 if the networks
    have heads for the variance. rows: the number of training rows of all sites.
    """

    STORED_AS: ClassVar[str] = "networks"

    method: NetworkMethod
    spec: NetworkSpec | StudentSpec
    samples: Tensor
    noise_variance: Tensor
    rows: int

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "method", NetworkMethod(self.method))
        except ValueError:
            raise StateError(
                f"networks.method must be one of {', '.join(NetworkMethod)}, not "
                f"{self.method!r:.40}"
            ) from None
        check_rows(self.rows)

    @property
    def variance_depends_on_the_row(self) -> bool:
        """Whether a row's variance says anything about the row."""
        return isinstance(self.spec, StudentSpec) or len(self.samples) > 1

    def check(self, inputs: int, targets: int) -> None:
        """Refuse networks that do not match these numbers; they may come from untrusted bytes."""
        spec, noise = self.spec, self.noise_variance
        match spec:
            case NetworkSpec():
                sizes, network = (spec.inputs, spec.outputs), spec
            case StudentSpec():
                sizes, network = (spec.inputs, spec.targets), spec.network
            case _:
                raise StateError(
                    "networks.spec must be a NetworkSpec or a StudentSpec, not "
                    f"{type(spec).__name__}"
                )
        if sizes != (inputs, targets):
            raise StateError(
                f"the networks of {self.method} must have {inputs} inputs and {targets} targets, "
                f"as the model has, not {sizes[0]} and {sizes[1]}"
            )
        samples = len(self.samples) if isinstance(self.samples, Tensor) and self.samples.ndim else 0
        if not 1 <= samples <= MOST_SAMPLES:
            raise StateError(f"networks.samples must have 1 to {MOST_SAMPLES} rows, not {samples}")
        check_tensor("networks.samples", self.samples, (samples, network.parameters))
        check_tensor("networks.noise_variance", noise, (targets,))
        heads = isinstance(spec, StudentSpec)
        if not bool((noise == 0 if heads else noise > 0).all()):
            raise StateError(
                "networks.noise_variance must be positive, and 0 if the networks have heads for "
                "the variance"
            )

    def predict(self, x: Tensor) -> Gaussian:
        """Return predictions of standardised targets, (n, T), from standardised features (n, p)."""
        means, variances = self._each(x)
        mean = means.mean(0)
        spread = ((means - mean).square() + variances).mean(0)
        return Gaussian(mean, spread + self.noise_variance)

    def _each(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return f_s and v_s at rows x, each (S, n, T)."""
        if isinstance(self.spec, StudentSpec):
            said = student_network.predict(self.spec, self.samples, x)
            return said.mean, said.variance
        means = outputs(self.spec, self.samples, x)
        return means, torch.zeros_like(means)
