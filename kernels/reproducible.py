"""Arithmetic whose result is the same, to the last bit, on every machine.

Addition, multiplication, division and square root of two tensors, element by element, are rounded
as IEEE 754 says and are the same everywhere. Sums over many elements, products of matrices,
factorisations, fused operations (`lerp`, `addcmul`) and functions such as exp are not: their last
bits depend on the processor, the library and the number of threads. What a state is computed with
therefore uses the functions of this module, or is rounded to a grid that is far coarser than such
differences: two machines then differ only if a value lies between two multiples, within its noise.
"""

import math

import numpy as np
import torch
from torch import Tensor

_LOG2_HIGH = 2977044472 * 2.0**-32
_LOG2_LOW = -4.2009150726810846e-11
"""ln 2 in two parts; the first has 32 bits, so its products with small integers are exact."""
_TERMS = 17


def on_grid(values: Tensor, step: float | Tensor) -> Tensor:
    """Round to multiples of a power of two, detached from the autograd graph; zero has no sign.

    A tensor of steps has one for each element, as far as it broadcasts.

    >>> on_grid(torch.tensor([0.3, -0.9, -0.1]), 0.25).tolist()
    [0.25, -1.0, 0.0]
    """
    return values.detach().div(step).round_().mul_(step).add_(0.0)


def near(value: float, step: float) -> float:
    """Round a number to a multiple of a power of two.

    >>> near(0.3, 0.25)
    0.25
    """
    return round(value / step) * step + 0.0


def to_bits(values: Tensor, bits: int) -> Tensor:
    """Round to `bits` significant bits: the step is a share of each value.

    >>> to_bits(torch.tensor([5.3, 0.071], dtype=torch.float64), 3).tolist()
    [5.0, 0.078125]
    """
    mantissa, exponent = np.frexp(values.detach().double().numpy())
    rounded = np.ldexp(np.round(mantissa * 2.0**bits), exponent - bits)
    return torch.from_numpy(np.asarray(rounded)).add_(0.0)


def number_to_bits(value: float, bits: int) -> float:
    """Round a number to `bits` significant bits."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(mantissa, bits)), exponent - bits) + 0.0


def total(values: Tensor, dim: int = 0) -> Tensor:
    """Return the sum along a dimension, added in pairs, in the same order everywhere.

    >>> total(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])).tolist()
    [9.0, 12.0]
    """
    rest = values.movedim(dim, 0)
    while len(rest) > 1:
        half = len(rest) // 2
        pairs = rest[:half] + rest[half : 2 * half]
        rest = torch.cat([pairs, rest[2 * half :]]) if len(rest) % 2 else pairs
    return rest[0] if len(rest) else values.new_zeros(rest.shape[1:])


def norm(values: Tensor) -> float:
    """Return the Euclidean norm of all elements."""
    return math.sqrt(float(total(values.flatten().square())))


def product(matrix: Tensor, columns: Tensor) -> Tensor:
    """Return matrix (M, K) times columns (K, T), with memory for M·K numbers per column."""
    return torch.stack([total(matrix * column, dim=1) for column in columns.unbind(1)], 1)


def exp(values: Tensor) -> Tensor:
    """Return eˣ in float64 for |x| < 700, accurate to a few units in the last place.

    >>> float((exp(torch.tensor([1.0, -20.0])) - torch.tensor([1.0, -20.0]).double().exp())
    ...     .abs().max()) < 1e-15
    True
    """
    x = values.detach().double()
    doublings = (x / (_LOG2_HIGH + _LOG2_LOW)).round()
    rest = x - doublings * _LOG2_HIGH - doublings * _LOG2_LOW
    series = torch.ones_like(rest)
    for term in range(_TERMS, 0, -1):
        series = 1 + rest * series / term
    # torch's ldexp multiplies by a power, whose last bit is not the same everywhere.
    return torch.from_numpy(np.asarray(np.ldexp(series.numpy(), doublings.int().numpy())))


def power(base: float, exponent: int) -> float:
    """Return base to a power of at least 0, by repeated multiplication.

    >>> power(0.5, 5)
    0.03125
    """
    found = 1.0
    while exponent:
        if exponent % 2:
            found *= base
        base, exponent = base * base, exponent // 2
    return found
