"""One step of Adam on θ along a gradient of L/n: what `exact` and `private_exact` do with theirs.

The gradient's norm is clipped, the learning rate grows over the first steps and falls to zero along
a cosine, and the weights stay on their grid (`kernels.rounds.shared.grid`).
"""

import math
from typing import Protocol

from torch import Tensor

from kernels import adam
from kernels.rounds.shared.grid import WEIGHT_STEP, on_grid

_DECAY = (0.9, 0.999)
_DAMPING = 1e-6


class Recipe(Protocol):
    """The parameters of an algorithm that are about its steps."""

    @property
    def steps(self) -> int:
        """Over how many steps the learning rate falls to zero."""

    @property
    def learning_rate(self) -> float:
        """The greatest."""

    @property
    def warm_up(self) -> int:
        """How many steps the learning rate grows for."""

    @property
    def clip(self) -> float:
        """The greatest norm of the gradient of L/n."""


def stepped(optimiser: adam.State, gradient: Tensor, recipe: Recipe) -> adam.State:
    """Take one step; `optimiser` has θ and how many steps were taken before."""
    before, time = optimiser.step, optimiser.step + 1
    gradient = gradient * min(1.0, recipe.clip / max(float(gradient.norm()), 1e-300))
    first = _DECAY[0] * optimiser.mean + (1 - _DECAY[0]) * gradient
    second = _DECAY[1] * optimiser.square + (1 - _DECAY[1]) * gradient**2
    rate = recipe.learning_rate * min(1.0, time / max(recipe.warm_up, 1))
    rate *= 0.5 * (1 + math.cos(math.pi * before / recipe.steps))
    direction = first / (1 - _DECAY[0] ** time)
    direction = direction / ((second / (1 - _DECAY[1] ** time)).sqrt() + _DAMPING)
    weights = on_grid(optimiser.parameters - rate * direction, WEIGHT_STEP)
    return adam.State(weights, first, second, time)
