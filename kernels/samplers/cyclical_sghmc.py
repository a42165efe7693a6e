"""Cyclical stochastic gradient Hamiltonian Monte Carlo ([ZhangR20], [ChenT14]).

    v ← (1 − α)v + η_k ∇ log p + √(2αη_kT)·ε,   θ ← θ + v
    η_k = η/2·(cos(πr) + 1),  r = (k mod L)/L

for k = 0, 1, … in cycles of L steps. A cycle begins with large steps without noise, which leave the
current mode, and ends with small steps: noise and samples only in the last `sampling_steps` of each
cycle. For a constant η the law tends to that of exp(log p / T) as η → 0.

This is the sampler of [PredBayes], whose "momentum term" of 0.9 is α here.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from kernels.errors import HyperparameterError
from kernels.samplers.sampler import (
    Batch,
    LogPosterior,
    Sampler,
    check_positive,
    gradient,
    noise_like,
)


@dataclass(frozen=True, kw_only=True)
class Cycle:
    """The schedule of η: L = `steps`, of which the last `sampling_steps` have noise."""

    steps: int
    sampling_steps: int

    def __post_init__(self) -> None:
        if not 1 <= self.sampling_steps <= self.steps:
            raise HyperparameterError(
                f"sampling_steps must be from 1 to steps, {self.steps}, not {self.sampling_steps}"
            )

    def share(self, step: int) -> float:
        """Return η_k/η of step k, counted from 0.

        >>> [round(Cycle(steps=4, sampling_steps=1).share(k), 3) for k in range(5)]
        [1.0, 0.854, 0.5, 0.146, 1.0]
        """
        return (math.cos(math.pi * (step % self.steps) / self.steps) + 1) / 2

    def samples(self, step: int) -> bool:
        """Return whether a step, counted from 0, has noise."""
        return step % self.steps >= self.steps - self.sampling_steps


@dataclass(frozen=True, eq=False)
class State:
    """The parameters of a chain and its velocity v."""

    parameters: Tensor
    velocity: Tensor
    step: int = 0


def build(
    log_posterior: LogPosterior,
    *,
    step_size: float,
    cycle: Cycle,
    friction: float = 0.9,
    temperature: float = 1.0,
) -> Sampler[State]:
    """Return the sampler with these η, L, α and T."""
    check_positive(step_size=step_size, friction=friction, temperature=temperature)
    step = partial(
        update,
        log_posterior=log_posterior,
        step_size=step_size,
        cycle=cycle,
        friction=friction,
        temperature=temperature,
    )
    return Sampler(init, step)


def init(parameters: Tensor) -> State:
    """Return the start of a chain at each vector, with velocity 0."""
    return State(parameters, torch.zeros_like(parameters))


def update(
    state: State,
    batch: Batch,
    generator: torch.Generator,
    *,
    log_posterior: LogPosterior,
    step_size: float,
    cycle: Cycle,
    friction: float,
    temperature: float,
) -> State:
    """Take one step."""
    now = step_size * cycle.share(state.step)
    slope = gradient(log_posterior, state.parameters, batch)
    velocity = (1 - friction) * state.velocity + now * slope
    if cycle.samples(state.step):
        spread = math.sqrt(2 * friction * now * temperature)
        velocity = velocity + spread * noise_like(velocity, generator)
    return State(state.parameters + velocity, velocity, state.step + 1)


def ends_of_epochs(cycle: Cycle, *, batches: int) -> Callable[[State], bool]:
    """Return a rule that keeps parameters after each epoch of `batches` steps with noise."""

    def keep(state: State) -> bool:
        return state.step % batches == 0 and cycle.samples(state.step - 1)

    return keep
