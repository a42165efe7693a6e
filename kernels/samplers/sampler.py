"""The interface of all samplers, and running a chain."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from kernels.errors import HyperparameterError, WeightsError
from kernels.tables.chunks import chunks

Batch = tuple[Tensor, ...]
LogPosterior = Callable[[Tensor, Batch], Tensor]
"""From (…, P) and a batch of rows to (…): a log density, up to a constant, for each vector."""

S = TypeVar("S")


class Sampler(NamedTuple, Generic[S]):
    """A sampler with its settings applied."""

    init: Callable[[Tensor], S]
    update: Callable[[S, Batch, torch.Generator], S]


def gradient(log_posterior: LogPosterior, parameters: Tensor, batch: Batch) -> Tensor:
    """Return ∇ log p at each vector of (…, P)."""
    with torch.enable_grad():
        point = parameters.detach().requires_grad_()
        (found,) = torch.autograd.grad(log_posterior(point, batch).sum(), point)
    return found


def noise_like(parameters: Tensor, generator: torch.Generator) -> Tensor:
    """Return standard normals of the parameters' shape."""
    return torch.randn(parameters.shape, generator=generator, dtype=parameters.dtype)


def minibatches(
    table: Batch, *, rows: int, epochs: int, generator: torch.Generator
) -> Iterator[Batch]:
    """Yield batches of at most `rows` rows, shuffled again in every epoch."""
    count = len(table[0])
    for _ in range(epochs):
        order = torch.randperm(count, generator=generator)
        for piece in chunks(count, rows):
            yield tuple(column[order[piece]] for column in table)


def run(
    sampler: Sampler[Any],
    start: Tensor,
    batches: Iterable[Batch],
    *,
    keep: Callable[[Any], bool],
    generator: torch.Generator,
) -> tuple[Any, Tensor]:
    """Take one step per batch; return the last state and the parameters kept, (S, …, P)."""
    state, kept = sampler.init(start), []
    for batch in batches:
        state = sampler.update(state, batch, generator)
        if keep(state):
            kept.append(state.parameters)
    if not bool(torch.isfinite(state.parameters).all()):
        raise WeightsError(
            f"the chain has diverged within {state.step} steps: lower step_size or temperature"
        )
    return state, torch.stack(kept) if kept else start.new_zeros((0, *start.shape))


def check_positive(**numbers: float) -> None:
    """Refuse numbers that are not positive and finite; the message names them."""
    for name, number in numbers.items():
        if not 0 < number < float("inf"):
            raise HyperparameterError(f"{name} must be a positive finite number, not {number!r}")
