"""Preconditioned SGLD [LiC16]: each coordinate has its own step size.

    V ← γV + (1 − γ)(∇ log p)²,  G = 1/(√(V/(1 − γᵗ)) + δ)
    θ ← θ + ηG∇ log p + √(2ηTG)·ε

A G that keeps adapting to θ would need an additional drift term, Σ_j ∂G_ij/∂θ_j, which [LiC16]
leave out, at the cost of a bias. Here G adapts for `adaptation_steps` and is then held constant:
from then on the chain is SGLD in another metric, and its law needs no correction. Discard the
samples before.
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
    """The parameters of a chain; squares: V, of the same shape."""

    parameters: Tensor
    squares: Tensor
    step: int = 0


def build(
    log_posterior: LogPosterior,
    *,
    step_size: float,
    adaptation_steps: int,
    temperature: float = 1.0,
    decay: float = 0.99,
    damping: float = 1e-5,
) -> Sampler[State]:
    """Return the sampler with these η, T, γ and δ; G adapts for `adaptation_steps`."""
    check_positive(
        step_size=step_size,
        temperature=temperature,
        adaptation_steps=adaptation_steps,
        damping=damping,
    )
    step = partial(
        update,
        log_posterior=log_posterior,
        step_size=step_size,
        adaptation_steps=adaptation_steps,
        temperature=temperature,
        decay=decay,
        damping=damping,
    )
    return Sampler(init, step)


def init(parameters: Tensor) -> State:
    """Return the start of a chain at each vector."""
    return State(parameters, torch.zeros_like(parameters))


def preconditioner(
    squares: Tensor, *, steps: int, decay: float = 0.99, damping: float = 1e-5
) -> Tensor:
    """Return G's diagonal after `steps` updates of V."""
    return 1 / ((squares / (1 - decay**steps)).sqrt() + damping)


def update(
    state: State,
    batch: Batch,
    generator: torch.Generator,
    *,
    log_posterior: LogPosterior,
    step_size: float,
    adaptation_steps: int,
    temperature: float,
    decay: float,
    damping: float,
) -> State:
    """Take one step."""
    slope = gradient(log_posterior, state.parameters, batch)
    adapts = state.step < adaptation_steps
    squares = state.squares.lerp(slope.square(), 1 - decay) if adapts else state.squares
    steps = min(state.step + 1, adaptation_steps)
    metric = preconditioner(squares, steps=steps, decay=decay, damping=damping)
    noise = math.sqrt(2 * step_size * temperature) * noise_like(state.parameters, generator)
    moved = state.parameters + step_size * metric * slope + metric.sqrt() * noise
    return State(moved, squares, state.step + 1)
