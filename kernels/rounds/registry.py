"""The algorithms that are installed here, by name and version."""

from collections.abc import Mapping
from typing import Any

from kernels.committee import Committee
from kernels.errors import UnknownAlgorithm
from kernels.evaluation import Evaluation, Judged
from kernels.gaussians import Gaussian
from kernels.linear import Hyperparameters
from kernels.metrics import Scores
from kernels.recalibration import Recalibration
from kernels.rounds import (
    beta,
    distillation,
    elbo,
    ep_mcmc,
    evaluation,
    exact,
    fedavg,
    fedbe,
    fedpa,
    fedyogi,
    linear,
    linear_two_sums,
    moments,
    one_shot,
    predictive,
    recalibration,
    refinement,
    update,
)
from kernels.rounds.algorithm import Algorithm
from kernels.rounds.distilled import Distilled, Lesson, Opinion, Student
from kernels.rounds.model import Centre, Model
from kernels.rounds.private import Privacy
from kernels.rounds.storage import decode, kinds_of
from kernels.schema import Categorical, Numeric, Schema, Target
from kernels.spec import KernelSpec
from kernels.standardiser import Scale, Shares, Standardiser
from kernels.statistics import Noise, Statistics
from kernels.student import StudentT
from kernels.student_network import StudentSpec

_INSTALLED: tuple[Algorithm, ...] = (
    moments,
    fedavg,
    distillation,
    exact,
    elbo,
    linear,
    linear_two_sums,
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

_KINDS = kinds_of(
    Model,
    Centre,
    Privacy,
    Schema,
    Numeric,
    Categorical,
    Target,
    KernelSpec,
    Standardiser,
    Scale,
    Shares,
    Hyperparameters,
    Statistics,
    Noise,
    Recalibration,
    StudentT,
    Evaluation,
    Judged,
    Scores,
    Committee,
    Gaussian,
    Distilled,
    Lesson,
    Opinion,
    Student,
    StudentSpec,
    exact.Broadcast,
    exact.Best,
    exact.Progress,
    fedavg.Best,
    fedavg.Progress,
    distillation.Best,
    distillation.Progress,
    linear_two_sums.Inverse,
    *(kind for algorithm in _INSTALLED for kind in (algorithm.Spec, algorithm.State)),
)


def installed(name: str, version: int) -> Algorithm:
    """Return an algorithm, or say what to install."""
    algorithm = ALGORITHMS.get(name) if isinstance(name, str) else None
    if algorithm is None:
        raise UnknownAlgorithm(
            f"no algorithm {name!r} is installed here; there are {', '.join(sorted(ALGORITHMS))}"
        )
    if type(version) is not int:
        raise UnknownAlgorithm(f"the version of {name} is a whole number, not {version!r}")
    if version != algorithm.VERSION:
        older = "upgrade veilgp here" if version > algorithm.VERSION else "upgrade the other side"
        raise UnknownAlgorithm(
            f"{name} is installed here in version {algorithm.VERSION}, not {version}: {older}"
        )
    return algorithm


def algorithm_of(spec: object) -> Algorithm:
    """Return the algorithm whose parameters these are."""
    for algorithm in _INSTALLED:
        if type(spec) is algorithm.Spec:
            return algorithm
    raise UnknownAlgorithm(f"{type(spec).__name__} are not the parameters of any algorithm here")


def restore(data: bytes) -> Any:
    """Return the state, or the broadcast, that these bytes are; they are not trusted."""
    return decode(data, _KINDS)
