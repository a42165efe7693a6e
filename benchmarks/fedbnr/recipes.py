"""The settings of FedBNR's rows, all chosen on validation rows of splits that are not reported."""

from collections.abc import Mapping
from typing import Any

from benchmarks.datasets import Split
from kernels.rounds import distillation, exact, fedavg
from kernels.rounds.public_set import Columns
from kernels.spec import KernelSpec

PENALTIES: Mapping[str, tuple[float, ...]] = {
    "skillcraft": (30.0,),
    "sml": (3.0,),
    "parkinsons": (3.0,),
    "bike": (3.0,),
    "ccpp": (3.0,),
}
"""τ of exact training by set."""


def kernel_of(split: Split) -> KernelSpec:
    """Return the kernel that every FedBNR row trains."""
    return kernel_of_inputs(len(split.dataset.schema.feature_names))


def kernel_of_inputs(inputs: int) -> KernelSpec:
    """Return the kernel for so many inputs."""
    return KernelSpec(inputs=inputs, latent=8, seed=1)


def exact_of(dataset: str, **changed: Any) -> exact.Spec:
    """Return phase 1 by the pooled gradient."""
    return exact.Spec(**{"penalties": PENALTIES[dataset], "steps": 200, **changed})


def averaging_of(_: str, clients: int) -> fedavg.Spec:
    """Return phase 1 by federated averaging."""
    return fedavg.Spec(rounds=20, local_steps=10 if clients == 10 else 5)


def distillation_of(_: str, clients: int, public: Columns) -> distillation.Spec:
    """Return phase 1 by distillation."""
    return distillation.Spec(
        public=public, rounds=10, local_steps=10 if clients == 10 else 5, alphas=(10.0,)
    )
