"""Small Gaussian-likelihood networks as flat vectors of parameters, many of them at once.

    y | x, θ ~ N(f_θ(x), σ²),   f_θ: p → 100 → 100 → T with ReLU between layers

A vector θ has the layers in order, each with its weights row by row and then its biases. Every
function accepts any number of vectors at once, (…, P), as a batch dimension of its matrix products:
an ensemble or several chains need few calls. σ² is not part of θ: `local_posterior` estimates it.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from kernels.errors import SpecError, WeightsError, WrongShape
from kernels.features.seeded_random import uniforms
from kernels.tables.chunks import chunks

_MOST_WIDTH = 10_000
_MOST_LAYERS = 32

_ACTIVATIONS = 2**17
"""The most numbers of one layer's outputs to compute at once: more do not fit a cache."""

Layers = tuple[tuple[Tensor, Tensor], ...]
"""Weights (…, out, in) and biases (…, 1, out) of each layer."""


@dataclass(frozen=True, kw_only=True)
class NetworkSpec:
    """Everything that defines a network except θ.

    inputs: p. outputs: T. hidden: widths of the ReLU layers; if empty, f is linear in x.

    >>> NetworkSpec(inputs=3, hidden=(4,)).parameters
    21
    """

    STORED_AS: ClassVar[str] = "network.spec"

    inputs: int
    outputs: int = 1
    hidden: tuple[int, ...] = (100, 100)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        widths = (self.inputs, *self.hidden, self.outputs)
        if len(widths) > _MOST_LAYERS or not all(
            type(width) is int and 1 <= width <= _MOST_WIDTH for width in widths
        ):
            raise SpecError(
                f"a network must have at most {_MOST_LAYERS} layers of 1 to {_MOST_WIDTH} units, "
                f"not {widths}"
            )

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """(out, in) of each layer."""
        widths = (self.inputs, *self.hidden, self.outputs)
        return tuple(zip(widths[1:], widths[:-1], strict=True))

    @property
    def parameters(self) -> int:
        """P, the length of θ."""
        return sum(out * (into + 1) for out, into in self.shapes)


def starting_parameters(spec: NetworkSpec, *, seed: int) -> Tensor:
    """Return the starting parameters, (P,) in float64: a function of spec and seed alone.

    Weights and biases are uniform within ±1/√(inputs of the layer).
    """
    parts = [
        (2 * uniforms(seed, f"network/{number}", out * (into + 1)) - 1) / math.sqrt(into)
        for number, (out, into) in enumerate(spec.shapes)
    ]
    return torch.cat(parts)


def layers(spec: NetworkSpec, parameters: Tensor) -> Layers:
    """Return differentiable views of θ (…, P) as layers."""
    if parameters.shape[-1:] != (spec.parameters,):
        raise WeightsError(
            f"the parameters of this network must have shape (…, {spec.parameters}), not "
            f"{tuple(parameters.shape)}"
        )
    batch, first, found = parameters.shape[:-1], 0, []
    for out, into in spec.shapes:
        weights = parameters[..., first : first + out * into].reshape(*batch, out, into)
        first += out * into
        biases = parameters[..., first : first + out].unsqueeze(-2)
        first += out
        found.append((weights, biases))
    return tuple(found)


def through(network: Layers, x: Tensor) -> Tensor:
    """Return f_θ(x), (…, n, T), for rows x, (n, p)."""
    *hidden, (weights, biases) = network
    for weight, bias in hidden:
        x = torch.relu(x @ weight.mT + bias)
    return x @ weights.mT + biases


def outputs(spec: NetworkSpec, parameters: Tensor, x: Tensor) -> Tensor:
    """Return f_θ(x), (…, n, T), for every θ in (…, P) at rows x, (n, p), without gradients.

    Rows are processed in pieces that fit a cache, which is faster than all at once.
    """
    if x.ndim != 2 or x.shape[1] != spec.inputs:
        raise WrongShape(f"x must have shape (n, {spec.inputs}), not {tuple(x.shape)}")
    networks = max(1, math.prod(parameters.shape[:-1]))
    rows = max(1, _ACTIVATIONS // (networks * max(spec.hidden, default=spec.outputs)))
    with torch.no_grad():
        network = layers(spec, parameters)
        pieces = [through(network, x[piece]) for piece in chunks(len(x), rows)]
    empty = x.new_zeros((*parameters.shape[:-1], 0, spec.outputs))
    return torch.cat(pieces, dim=-2) if pieces else empty


def squared_errors(spec: NetworkSpec, parameters: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return Σ (f_θ(x) − y)² over rows and targets, (…), differentiable in θ.

    Multiplied by −1/2σ² it is log p(y | x, θ) up to a constant.
    """
    return (through(layers(spec, parameters), x) - y).square().sum(dim=(-2, -1))
