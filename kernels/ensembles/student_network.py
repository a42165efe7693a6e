"""One network that says what a whole committee says: mean and variance ([PredBayes] §4.3.2).

    minimise over θ the mean over public rows of KL(teacher(x) ‖ student_θ(x))

The student has a network's hidden layers and two outputs for each target, μ and log v. Predicting
with it costs what one network costs, however many sites taught it. The direction of the divergence
is that of the expected log-likelihood of what the teacher would draw; [PredBayes] has the
other one, which is here to compare with.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import torch
from torch import Tensor

from kernels import adam
from kernels.ensembles.networks import NetworkSpec, layers, outputs, starting_parameters, through
from kernels.errors import EmptyTable, WeightsError, WrongShape
from kernels.samplers.sampler import minibatches
from kernels.scores.gaussians import Gaussian, divergence

_LOG_VARIANCES = (-18.0, 18.0)
"""Standardised targets have no variance beyond; a hostile θ must not overflow."""


class Direction(StrEnum):
    """Which Kullback-Leibler divergence is minimised."""

    TEACHER_FIRST = "teacher_first"
    """KL(teacher ‖ student)."""
    STUDENT_FIRST = "student_first"
    """KL(student ‖ teacher), as in the code of [PredBayes]."""


@dataclass(frozen=True, kw_only=True)
class StudentSpec:
    """Inputs p, targets T and the hidden layers' widths."""

    STORED_AS: ClassVar[str] = "distilled.student.spec"

    inputs: int
    targets: int = 1
    hidden: tuple[int, ...] = (100, 100)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        _ = self.network

    @property
    def network(self) -> NetworkSpec:
        """The network of both heads."""
        return NetworkSpec(inputs=self.inputs, outputs=2 * self.targets, hidden=self.hidden)


def predict(spec: StudentSpec, parameters: Tensor, x: Tensor) -> Gaussian:
    """Return the student's predictions, (…, n, T), of rows x, (n, p), without gradients."""
    return _heads(spec, outputs(spec.network, parameters, x))


def distil(
    spec: StudentSpec,
    teacher: Gaussian,
    x: Tensor,
    *,
    seed: int,
    epochs: int = 100,
    batch_rows: int = 100,
    learning_rate: float = 0.005,
    direction: Direction = Direction.TEACHER_FIRST,
    generator: torch.Generator,
) -> Tensor:
    """Return θ, (…, P), after so many epochs of Adam on teachers' moments, (…, n, T), at rows x.

    seed: where every θ starts. The learning rate falls to nothing as half a cosine. Students of
    several teachers see the same batches, each learns as if it were alone, in less time for all.
    """
    if not len(x):
        raise EmptyTable("a student learns from public rows, and there are none")
    shape = teacher.mean.shape
    if shape[-2:] != (len(x), spec.targets) or teacher.variance.shape != shape:
        raise WrongShape(f"a teacher's moments must be ({len(x)}, {spec.targets})")
    start = starting_parameters(spec.network, seed=seed).to(x.dtype)
    state = adam.init(start.expand(*shape[:-2], -1))
    steps = epochs * math.ceil(len(x) / batch_rows)
    table = (x, teacher.mean.movedim(-2, 0), teacher.variance.movedim(-2, 0))
    for batch in minibatches(table, rows=batch_rows, epochs=epochs, generator=generator):
        gradient = _gradient(spec, state.parameters, batch, direction)
        if not bool(torch.isfinite(gradient).all()):
            raise WeightsError(
                f"distilling has diverged: lower the learning rate of {learning_rate}"
            )
        rate = learning_rate * (1 + math.cos(math.pi * state.step / steps)) / 2
        state = adam.update(state, gradient, learning_rate=rate)
    return state.parameters


def mean_divergence(spec: StudentSpec, parameters: Tensor, teacher: Gaussian, x: Tensor) -> float:
    """Return the mean over rows of KL(teacher ‖ student), summed over targets."""
    student = predict(spec, parameters, x)
    return float(divergence(teacher, student).sum(-1).mean())


def _gradient(
    spec: StudentSpec, parameters: Tensor, batch: tuple[Tensor, ...], direction: Direction
) -> Tensor:
    x, *moments = batch
    teacher = Gaussian(*(each.movedim(0, -2) for each in moments))
    point = parameters.detach().requires_grad_()
    with torch.enable_grad():
        student = _heads(spec, through(layers(spec.network, point), x))
        pair = (teacher, student)
        loss = divergence(*(pair if direction is Direction.TEACHER_FIRST else pair[::-1]))
        (found,) = torch.autograd.grad(loss.sum() / len(x), point)
    return found


def _heads(spec: StudentSpec, both: Tensor) -> Gaussian:
    mean, log_variance = both[..., : spec.targets], both[..., spec.targets :]
    return Gaussian(mean, log_variance.clamp(*_LOG_VARIANCES).exp())
