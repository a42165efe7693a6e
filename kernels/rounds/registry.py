"""The installed algorithms, by name and version."""

from collections.abc import Mapping
from typing import Any

from kernels.errors import UnknownAlgorithm
from kernels.model.stored import MODEL_KINDS
from kernels.rounds.algorithm import Algorithm
from kernels.rounds.columns import moments
from kernels.rounds.compared import ep_mcmc, fedbe, fedpa, fedyogi, one_shot
from kernels.rounds.ensemble import beta, predictive
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.kernel import distillation, elbo, exact, fedavg, private_exact, search
from kernels.rounds.layer import completion, linear, linear_two_sums, outcomes, refinement, update
from kernels.storage import decode, kinds_of

_INSTALLED: tuple[Algorithm, ...] = (
    moments,
    fedavg,
    distillation,
    exact,
    search,
    private_exact,
    elbo,
    linear,
    linear_two_sums,
    outcomes,
    completion,
    predictive,
    beta,
    fedpa,
    ep_mcmc,
    fedyogi,
    fedbe,
    one_shot,
    refinement,
    recalibration,
    evaluation,
    update,
)

ALGORITHMS: Mapping[str, Algorithm] = {algorithm.NAME: algorithm for algorithm in _INSTALLED}

_KINDS = kinds_of(*MODEL_KINDS, *(kind for own in _INSTALLED for kind in own.STORED))


def installed(name: str, version: int) -> Algorithm:
    """Return an algorithm; if it is not installed, the error states what to install."""
    algorithm = ALGORITHMS.get(name) if isinstance(name, str) else None
    if algorithm is None:
        raise UnknownAlgorithm(
            f"no algorithm {name!r} is installed here; installed: {', '.join(sorted(ALGORITHMS))}"
        )
    if type(version) is not int:
        raise UnknownAlgorithm(f"the version of {name} must be an integer, not {version!r}")
    if version != algorithm.VERSION:
        older = "upgrade veilgp here" if version > algorithm.VERSION else "upgrade the other side"
        raise UnknownAlgorithm(
            f"{name} is installed here in version {algorithm.VERSION}, not {version}: {older}"
        )
    return algorithm


def algorithm_of(spec: object) -> Algorithm:
    """Return the algorithm that these parameters belong to."""
    for algorithm in _INSTALLED:
        if type(spec) is algorithm.Spec:
            return algorithm
    raise UnknownAlgorithm(f"{type(spec).__name__} is not the Spec of any algorithm installed here")


def restore(data: bytes) -> Any:
    """Decode a state or a broadcast; `data` is not trusted."""
    return decode(data, _KINDS)
