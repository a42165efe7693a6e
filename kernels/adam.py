"""Adam [KingmaBa15] on one flat vector, as a function of its state.

Not torch's own, because its first step spends seconds loading a compiler. A step is the same to the
last bit on every machine (`kernels.reproducible`), so that a run's updates can be replayed.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.reproducible import near, power

DECAY = 0.9, 0.999
DAMPING = 1e-8

_COSINE_STEP = 2.0**-30
"""The grid of a cosine, whose last bit depends on the mathematical library."""


@dataclass(frozen=True, eq=False)
class State:
    """The parameters, and the running means of gradients and of their squares."""

    parameters: Tensor
    mean: Tensor
    square: Tensor
    step: int = 0


def init(parameters: Tensor) -> State:
    """Return the state before the first step, with means of 0."""
    nothing = torch.zeros_like(parameters)
    return State(parameters.detach(), nothing, nothing)


def update(
    state: State, gradient: Tensor, *, learning_rate: float, damping: float = DAMPING
) -> State:
    """Take one step against the gradient."""
    step = state.step + 1
    mean = DECAY[0] * state.mean + (1 - DECAY[0]) * gradient
    square = DECAY[1] * state.square + (1 - DECAY[1]) * gradient.square()
    scale = _scale(square, step, damping)
    moved = state.parameters - learning_rate * mean / (1 - power(DECAY[0], step)) / scale
    return State(moved, mean, square, step)


def scale(state: State, *, damping: float = DAMPING) -> Tensor:
    """Return √v̂ + ε, the divisor of the last step: the metric in which it was taken."""
    return _scale(state.square, state.step, damping)


def falling(learning_rate: float, *, step: int, steps: int) -> float:
    """Return the learning rate of `step` out of `steps`: it falls to 0 along half a cosine.

    >>> [falling(0.1, step=step, steps=2) for step in range(3)]
    [0.1, 0.05, 0.0]
    """
    return learning_rate * near(1 + math.cos(math.pi * step / steps), _COSINE_STEP) / 2


def _scale(square: Tensor, step: int, damping: float) -> Tensor:
    return (square / (1 - power(DECAY[1], step))).sqrt() + damping
