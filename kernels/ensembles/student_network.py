"""One network that predicts what a committee predicts: mean and variance ([PredBayes] §4.3.2).

    minimise over θ the mean over public rows of KL(teacher(x) ‖ student_θ(x))

The student has hidden layers and two outputs for each target, μ and log v. Predicting with it costs
as much as with one network, for any number of sites. This direction of the divergence maximises the
expected log-likelihood of draws from the teacher; [PredBayes] uses the other direction, which is
provided for comparison.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

import torch
from torch import Tensor

from kernels import adam
from kernels.ensembles.networks import NetworkSpec, layers, outputs, starting_parameters, through
from kernels.errors import EmptyTable, WeightsError, WrongShape
from kernels.reproducible import on_grid
from kernels.samplers.sampler import minibatches
from kernels.scores.gaussians import Gaussian, divergence

_LOG_VARIANCES = (-18.0, 18.0)
"""Bounds of log v, beyond any standardised target's; a hostile θ must not cause an overflow."""

PARAMETER_STEP = 2.0**-16
"""The grid of a student's parameters; the optimiser's first steps are a few hundred times that."""

_DAMPING = 1e-6
"""Adam's ε: a gradient that is only rounding must not become a step."""


class Direction(StrEnum):
    """The direction of the Kullback–Leibler divergence that is minimised."""

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
    """Return the student's predictions, (…, n, T), for rows x, (n, p), without gradients."""
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
    """Return θ, (…, P), after `epochs` of Adam on the teachers' moments, (…, n, T), at rows x.

    seed: of the starting θ, the same for all. The learning rate falls to 0 along half a cosine.
    Students of several teachers see the same batches, and each learns as it would alone; together
    they take less time. θ is rounded to PARAMETER_STEP after every step, so that another machine
    takes the same steps (`kernels.reproducible`).
    """
    if not len(x):
        raise EmptyTable("x has no rows: distilling needs at least one public row")
    shape = teacher.mean.shape
    if shape[-2:] != (len(x), spec.targets) or teacher.variance.shape != shape:
        raise WrongShape(
            f"the teacher's mean and variance must have shape (…, {len(x)}, {spec.targets}), not "
            f"{tuple(shape)} and {tuple(teacher.variance.shape)}"
        )
    start = on_grid(starting_parameters(spec.network, seed=seed).to(x.dtype), PARAMETER_STEP)
    state = adam.init(start.expand(*shape[:-2], -1))
    steps = epochs * math.ceil(len(x) / batch_rows)
    table = (x, teacher.mean.movedim(-2, 0), teacher.variance.movedim(-2, 0))
    for batch in minibatches(table, rows=batch_rows, epochs=epochs, generator=generator):
        gradient = _gradient(spec, state.parameters, batch, direction)
        if not bool(torch.isfinite(gradient).all()):
            raise WeightsError(
                f"distilling has diverged at learning_rate {learning_rate}: lower it"
            )
        rate = adam.falling(learning_rate, step=state.step, steps=steps)
        state = adam.update(state, gradient, learning_rate=rate, damping=_DAMPING)
        state = replace(state, parameters=on_grid(state.parameters, PARAMETER_STEP))
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
