"""Stochastic gradient Langevin dynamics [WellingTeh11].

    θ ← θ + η∇ log p + √(2ηT)·ε,   ε ~ N(0, I)

Its law tends to that of exp(log p / T) as η → 0. For a Gaussian with precision A the law at a
constant η is known: its covariance is T·(A(I − ηA/2))⁻¹, so η should be well below 2/‖A‖.
"""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from kernels.samplers.sampler import (
    Batch,
    LogPosterior,
    Sampler,
    check_positive,
    gradient,
    noise_like,
)


@dataclass(frozen=True, eq=False)
class State:
    """The parameters of a chain."""

    parameters: Tensor
    step: int = 0


def build(
    log_posterior: LogPosterior, *, step_size: float, temperature: float = 1.0
) -> Sampler[State]:
    """Return the sampler with these η and T."""
    check_positive(step_size=step_size, temperature=temperature)
    step = partial(
        update, log_posterior=log_posterior, step_size=step_size, temperature=temperature
    )
    return Sampler(init, step)


def init(parameters: Tensor) -> State:
    """Return the start of a chain at each vector."""
    return State(parameters)


def update(
    state: State,
    batch: Batch,
    generator: torch.Generator,
    *,
    log_posterior: LogPosterior,
    step_size: float,
    temperature: float,
) -> State:
    """Take one step."""
    drift = step_size * gradient(log_posterior, state.parameters, batch)
    spread = math.sqrt(2 * step_size * temperature)
    noise = spread * noise_like(state.parameters, generator)
    return State(state.parameters + drift + noise, state.step + 1)
