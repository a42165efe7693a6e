"""Adam (Kingma and Ba 2015) on one flat vector, as a function of its state.

By hand, because the first step of torch's own loads a compiler for seconds.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

DECAY = 0.9, 0.999
DAMPING = 1e-8


@dataclass(frozen=True, eq=False)
class State:
    """The parameters, and running means of gradients and of their squares."""

    parameters: Tensor
    mean: Tensor
    square: Tensor
    step: int = 0


def init(parameters: Tensor) -> State:
    """Start with nothing known of gradients."""
    nothing = torch.zeros_like(parameters)
    return State(parameters.detach(), nothing, nothing)


def update(state: State, gradient: Tensor, *, learning_rate: float) -> State:
    """Take one step down."""
    step = state.step + 1
    mean = state.mean.lerp(gradient, 1 - DECAY[0])
    square = state.square.lerp(gradient.square(), 1 - DECAY[1])
    scale = (square / (1 - DECAY[1] ** step)).sqrt() + DAMPING
    moved = state.parameters - learning_rate / (1 - DECAY[0] ** step) * mean / scale
    return State(moved, mean, square, step)
