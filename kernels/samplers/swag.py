"""SWAG [Maddox19]: a Gaussian around the mean of the iterates of plain SGD.

    θ ← θ + η∇ log p;  after `burn_in` steps, every `interval`-th iterate is added to θ̄
    and to the mean of θ², and the last K deviations from θ̄ are the columns of D
    θ̃ = θ̄ + √½·diag(mean θ² − θ̄²)^½ ε₁ + √(1/(2(K − 1)))·D ε₂

The spread comes from the gradients of batches: for a log p that is a mean over N rows with
curvature A, and random batches of B rows, SGD near its mode has the covariance η/(2B)·I if the
gradients' covariance is the curvature [Mandt17]. It is nearest to that of the posterior, (NA)⁻¹, at
η = 2B·P/(N·tr A).
"""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from kernels.errors import NotFitted
from kernels.samplers.sampler import Batch, LogPosterior, Sampler, check_positive, gradient


@dataclass(frozen=True, eq=False)
class State:
    """The parameters of SGD, and the moments of its iterates.

    mean, squares: the means of the iterates and of their squares, (…, P). count: the number of
    iterates. deviations: the latest K, (K, …, P).
    """

    parameters: Tensor
    mean: Tensor
    squares: Tensor
    deviations: Tensor
    count: int = 0
    step: int = 0

    @property
    def variance(self) -> Tensor:
        """The iterates' variance in each coordinate."""
        return (self.squares - self.mean.square()).clamp_min(0.0)


def build(
    log_posterior: LogPosterior,
    *,
    step_size: float,
    burn_in: int,
    interval: int = 1,
    rank: int = 20,
) -> Sampler[State]:
    """Return the sampler with this η; K is `rank`, and iterates are collected as stated above."""
    check_positive(step_size=step_size, interval=interval, rank=rank)
    step = partial(
        update,
        log_posterior=log_posterior,
        step_size=step_size,
        burn_in=burn_in,
        interval=interval,
        rank=rank,
    )
    return Sampler(init, step)


def init(parameters: Tensor) -> State:
    """Return the start at each vector, with no iterates collected."""
    nothing = torch.zeros_like(parameters)
    return State(parameters, nothing, nothing, parameters.new_zeros((0, *parameters.shape)))


def update(
    state: State,
    batch: Batch,
    _generator: torch.Generator,
    *,
    log_posterior: LogPosterior,
    step_size: float,
    burn_in: int,
    interval: int,
    rank: int,
) -> State:
    """Take one step, and collect the iterate if it is due; the noise is that of the batches."""
    slope = gradient(log_posterior, state.parameters, batch)
    moved, step = state.parameters + step_size * slope, state.step + 1
    if step <= burn_in or (step - burn_in) % interval:
        return State(moved, state.mean, state.squares, state.deviations, state.count, step)
    count = state.count + 1
    mean = state.mean + (moved - state.mean) / count
    squares = state.squares + (moved.square() - state.squares) / count
    deviations = torch.cat([state.deviations, (moved - mean).unsqueeze(0)])[-rank:]
    return State(moved, mean, squares, deviations, count, step)


def sample(state: State, count: int, *, generator: torch.Generator) -> Tensor:
    """Draw from the Gaussian, (count, …, P)."""
    rank = len(state.deviations)
    if rank < 2:
        raise NotFitted(f"SWAG has collected {rank} iterates and needs at least 2: run more steps")
    dtype = state.mean.dtype
    shape = (count, *state.mean.shape)
    own = torch.randn(shape, generator=generator, dtype=dtype) * state.variance.sqrt()
    # Each chain has its own draws.
    weights = torch.randn(
        (count, rank, *state.mean.shape[:-1], 1), generator=generator, dtype=dtype
    )
    shared = (weights * state.deviations).sum(1) / math.sqrt(rank - 1)
    return state.mean + (own + shared) / math.sqrt(2)
