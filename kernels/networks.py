"""Small Gaussian-likelihood networks as flat vectors of parameters, many of them at once.

    y | x, θ ~ N(f_θ(x), σ²),   f_θ: p → 100 → 100 → T with ReLU between

A vector θ is the layers in order, each its weights row by row and then its biases, and after them
log σ of each target where σ is learned. Every function takes any number of vectors at once,
(…, P), as one more dimension of its matrix products: an ensemble or several chains cost few calls.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.chunks import chunks
from kernels.errors import SpecError, WeightsError, WrongShape
from kernels.hashed import uniforms

_MOST_WIDTH = 10_000
_MOST_LAYERS = 32

_ACTIVATIONS = 2**17
"""Numbers of one layer's outputs that are worth having at once: more do not fit a cache."""

Layers = tuple[tuple[Tensor, Tensor], ...]
"""Weights (…, out, in) and biases (…, 1, out) of each layer."""


@dataclass(frozen=True, kw_only=True)
class NetworkSpec:
    """All that fixes a network besides θ.

    inputs: p. outputs: T. hidden: widths of the ReLU layers. noise_variance: σ², or None where
    log σ of each output is learned, as the last T numbers of θ.

    >>> NetworkSpec(inputs=3, hidden=(4,), noise_variance=1.0).parameters
    21
    """

    inputs: int
    outputs: int = 1
    hidden: tuple[int, ...] = (100, 100)
    noise_variance: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        widths = (self.inputs, *self.hidden, self.outputs)
        if len(widths) > _MOST_LAYERS or not all(
            type(width) is int and 1 <= width <= _MOST_WIDTH for width in widths
        ):
            raise SpecError(
                f"a network has at most {_MOST_LAYERS} layers of 1 to {_MOST_WIDTH} units, not "
                f"{widths}"
            )
        if self.noise_variance is not None and not 0 < self.noise_variance < math.inf:
            raise SpecError(f"noise_variance is positive and finite, not {self.noise_variance!r}")

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """(out, in) of each layer."""
        widths = (self.inputs, *self.hidden, self.outputs)
        return tuple(zip(widths[1:], widths[:-1], strict=True))

    @property
    def weights(self) -> int:
        """How many numbers of θ are weights and biases."""
        return sum(out * (into + 1) for out, into in self.shapes)

    @property
    def parameters(self) -> int:
        """P, the length of θ."""
        return self.weights + (self.outputs if self.noise_variance is None else 0)


def starting_parameters(spec: NetworkSpec, *, seed: int) -> Tensor:
    """Return where training starts, (P,) in float64: a function of spec and seed, everywhere.

    Weights and biases are uniform within ±1/√(units into the layer), and log σ is 0.
    """
    parts = [
        (2 * uniforms(seed, f"network/{number}", out * (into + 1)) - 1) / math.sqrt(into)
        for number, (out, into) in enumerate(spec.shapes)
    ]
    rest = torch.zeros(spec.parameters - spec.weights, dtype=torch.float64)
    return torch.cat([*parts, rest])


def layers(spec: NetworkSpec, parameters: Tensor) -> Layers:
    """Return views of θ (…, P) as layers, differentiable."""
    if parameters.shape[-1:] != (spec.parameters,):
        raise WeightsError(
            f"a vector of this network has {spec.parameters} parameters, not "
            f"{tuple(parameters.shape[-1:])}"
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
    """Return f_θ(x), (…, n, T), of rows x, (n, p)."""
    *hidden, (weights, biases) = network
    for weight, bias in hidden:
        x = torch.relu(x @ weight.mT + bias)
    return x @ weights.mT + biases


def outputs(spec: NetworkSpec, parameters: Tensor, x: Tensor) -> Tensor:
    """Return f_θ(x), (…, n, T), of every θ in (…, P) at rows x, (n, p), without gradients.

    Many rows go through many networks in pieces that stay in a cache: all at once is slower.
    """
    if x.ndim != 2 or x.shape[1] != spec.inputs:
        raise WrongShape(f"rows must be (n, {spec.inputs}), not {tuple(x.shape)}")
    networks = max(1, math.prod(parameters.shape[:-1]))
    rows = max(1, _ACTIVATIONS // (networks * max(spec.hidden, default=spec.outputs)))
    with torch.no_grad():
        network = layers(spec, parameters)
        pieces = [through(network, x[piece]) for piece in chunks(len(x), rows)]
    empty = x.new_zeros((*parameters.shape[:-1], 0, spec.outputs))
    return torch.cat(pieces, dim=-2) if pieces else empty


def noise_variances(spec: NetworkSpec, parameters: Tensor) -> Tensor:
    """Return σ² of each target, (…, T), differentiable."""
    if spec.noise_variance is not None:
        shape = (*parameters.shape[:-1], spec.outputs)
        return parameters.new_full(shape, spec.noise_variance)
    return (2 * parameters[..., spec.weights :]).exp()


def log_likelihood(spec: NetworkSpec, parameters: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return Σ log N(y | f_θ(x), σ²) over rows and targets, (…), differentiable in θ."""
    variance = noise_variances(spec, parameters).unsqueeze(-2)
    squares = (through(layers(spec, parameters), x) - y).square() / variance
    return -(squares + (2 * math.pi * variance).log()).sum(dim=(-2, -1)) / 2


def log_prior(parameters: Tensor, *, variance: float) -> Tensor:
    """Return log N(θ | 0, variance·I) up to its constant, (…), differentiable."""
    return -parameters.square().sum(-1) / (2 * variance)
