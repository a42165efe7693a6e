"""Small specs of every architecture, shared by the tests of `kernels`."""

from collections.abc import Mapping
from typing import Any

from kernels.features.spec import Architecture, Ending, KernelSpec, Replication

NETWORK: Mapping[str, Any] = {"hidden": (6, 5), "latent": 4}

# One spec of every architecture and of every ending, by name.
EVERY_SPEC: Mapping[str, KernelSpec] = {
    **{
        name.value: KernelSpec(architecture=name, inputs=3, samples=10, seed=5)
        for name in Architecture
        if name not in (Architecture.DEEP, Architecture.SHIFTED, Architecture.REPLICATED)
    },
    "polynomial-3": KernelSpec(
        architecture=Architecture.POLYNOMIAL, inputs=3, samples=10, degree=3, offset=0.5
    ),
    "deep": KernelSpec(architecture=Architecture.DEEP, inputs=3, samples=10, **NETWORK),
    "shifted": KernelSpec(
        architecture=Architecture.SHIFTED, inputs=3, samples=10, shifter_hidden=3, **NETWORK
    ),
    "replicated": KernelSpec(architecture=Architecture.REPLICATED, inputs=3, samples=10, **NETWORK),
    "replicated-multiply-linear": KernelSpec(
        architecture=Architecture.REPLICATED,
        inputs=3,
        samples=10,
        replication=Replication.MULTIPLY,
        ending=Ending.LINEAR,
        **NETWORK,
    ),
}
