"""Small specs of every architecture, shared by the tests of `kernels`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kernels.features.spec import Architecture, Ending, KernelSpec, Replication

_NETWORKS = Architecture.DEEP, Architecture.SHIFTED, Architecture.REPLICATED

NETWORK: Mapping[str, Any] = {"hidden": (6, 5), "latent": 4}

# One spec of every architecture and of every ending, by name, without a linear part.
_ALONE: Mapping[str, KernelSpec] = {
    **{
        name.value: KernelSpec(architecture=name, inputs=3, samples=10, seed=5)
        for name in Architecture
        if name not in (*_NETWORKS, Architecture.LINEAR)
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

EVERY_SPEC: Mapping[str, KernelSpec] = {
    **_ALONE,
    "linear": KernelSpec(architecture=Architecture.LINEAR, inputs=3),
    **{f"{name}+linear": replace(spec, linear_part=True) for name, spec in _ALONE.items()},
}
"""The same with the linear kernel, and with a linear part beside every other."""
