"""The sums of a model of two kernels: those of each, the second's under names of their own."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from kernels.model.model import Model
from kernels.rounds.algorithm import Contribution
from kernels.rounds.shared.weighted_sums import all_statistics_blocks, outcome_numbers
from privacy.layout import Block

SECOND = "second."
"""Before the names of the blocks of the second kernel (`SecureTotal.part`)."""


def blocks_of_each(model: Model, blocks: Callable[[Model], Iterable[Block]]) -> tuple[Block, ...]:
    """Return the blocks of a model of each kernel alone."""
    other = () if model.other is None else blocks(model.other)
    return (*blocks(model), *(replace(own, name=SECOND + own.name) for own in other))


def contribution_of_each(
    model: Model, contribution: Callable[[Model], Contribution]
) -> Contribution:
    """Return what a site contributes for a model of each kernel alone."""
    other = {} if model.other is None else contribution(model.other)
    return {**contribution(model), **{SECOND + name: own for name, own in other.items()}}


def layer_numbers(model: Model) -> int:
    """Return how many numbers one sum over rows for every layer of a model has, at most."""
    real = blocks_of_each(model, lambda own: all_statistics_blocks(own, ()))
    return sum(block.length for block in real) + outcome_numbers(model)
