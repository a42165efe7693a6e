"""What two machines that replay one run may differ in: the grids of a state, and how often.

Both compute `update(state, total)` from the same total. Nearly all of the result is the same to the
last bit; what passes through a factorisation or a search is rounded to a grid, and may be one step
off if a value lies between two multiples. `kernels.rounds.agreement` compares two states. No field
without a grid may differ at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kernels.layer.posterior import SCALE_BITS
from kernels.noisy.realisable import DEVIATION_BITS


@dataclass(frozen=True)
class Step:
    """Multiples of one number, a power of two."""

    size: float


@dataclass(frozen=True)
class Bits:
    """Numbers with so many significant bits: the step is a share of the number."""

    bits: int


@dataclass(frozen=True)
class OwnStep:
    """Multiples of the largest power of two that divides all elements of one's own tensor.

    For a grid that follows from the noise of a sum, which the state does not contain.
    """


Grid = Step | Bits | OwnStep


@dataclass(frozen=True, kw_only=True)
class Replay:
    """How the states of an algorithm are compared.

    grids: the grid of each field that may differ, by the names of the fields that lead to it from
        the state, joined by dots; the elements of a tuple have the name of the tuple.
    budget: how many elements may be one step off in all sums of a stage together, ten times the
        most that was measured (docs/algorithms.md, "Replay").
    """

    grids: Mapping[str, Grid]
    budget: int


LEAST_BUDGET = 10
"""The budget of a stage for which no deviation was measured."""


def scales(*where: str) -> Mapping[str, Grid]:
    """Return the grids of σ² and λ², by the names of the fields that lead to them."""
    names = ("noise_variance", "prior_variance")
    return {f"{each}.{name}": Bits(SCALE_BITS) for each in where for name in names}


SCALES: Mapping[str, Grid] = MappingProxyType(
    scales("model.hyperparameters", "model.second.hyperparameters")
)
"""σ² and λ² of the model's kernel, and of a second one."""

REPAIRED: Mapping[str, Grid] = MappingProxyType(
    {
        "model.statistics.scatter": OwnStep(),
        "model.statistics.noise.scatter": Bits(DEVIATION_BITS),
    }
)
"""The repaired S of a model with differential privacy."""

WITHHELD: Mapping[str, Grid] = MappingProxyType(
    {
        "statistics.scatter": OwnStep(),
        "statistics.noise.scatter": Bits(DEVIATION_BITS),
        "hyperparameters.noise_variance": Bits(SCALE_BITS),
        "hyperparameters.prior_variance": Bits(SCALE_BITS),
        "outcomes.layers.prior_variance": Bits(SCALE_BITS),
        "outcomes.dispersion": Bits(SCALE_BITS),
    }
)
"""The fields of a model's layers without its held-out rows."""

BITWISE = Replay(grids=MappingProxyType({}), budget=0)
"""The states of an algorithm whose updates are the same to the last bit everywhere."""
