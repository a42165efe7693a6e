"""One Adam step on θ along a gradient of L/n, used by `exact` and `private_exact`.

The gradient's norm is clipped. The learning rate grows over the first steps and falls to zero along
a cosine. The weights stay on their grid (`kernels.rounds.shared.grid`).
"""

from dataclasses import replace
from typing import Protocol

from torch import Tensor

from kernels import adam
from kernels.reproducible import norm, on_grid
from kernels.rounds.shared.grid import WEIGHT_STEP

_DAMPING = 1e-6


class Recipe(Protocol):
    """The parameters of an algorithm that control its steps."""

    @property
    def steps(self) -> int:
        """The number of steps over which the learning rate falls to zero."""

    @property
    def learning_rate(self) -> float:
        """The maximum learning rate."""

    @property
    def warm_up(self) -> int:
        """The number of steps during which the learning rate grows."""

    @property
    def clip(self) -> float:
        """The maximum norm of the gradient of L/n."""


def stepped(optimiser: adam.State, gradient: Tensor, recipe: Recipe) -> adam.State:
    """Take one step; `optimiser` contains θ and the number of steps taken before."""
    gradient = gradient * min(1.0, recipe.clip / max(norm(gradient), 1e-300))
    rate = recipe.learning_rate * min(1.0, (optimiser.step + 1) / max(recipe.warm_up, 1))
    rate = adam.falling(rate, step=optimiser.step, steps=recipe.steps)
    after = adam.update(optimiser, gradient, learning_rate=rate, damping=_DAMPING)
    return replace(after, parameters=on_grid(after.parameters, WEIGHT_STEP))
