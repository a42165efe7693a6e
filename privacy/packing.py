"""From a block of a contribution to its integers in the vector, and back: check, pack, round.

Symmetric matrices are packed as their diagonal and the strict upper triangle times √2
(`privacy.layout`). The multiplication by √2 keeps more than float64's 53 bits, because up to 62
bits are sent.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privacy.errors import NotFinite, NotSymmetric, OutOfBound, WrongShape
from privacy.layout import Block

_CHUNK = 1 << 15
"""Elements encoded at a time, so that every pass after the first finds them in the cache."""
_SYMMETRY = 2.0**-40
"""Relative difference of the two triangles that is accepted as rounding of a matrix product."""

# √2 as a float64, that float64 split into 27 and 26 bits, and its difference from √2.
_ROOT = math.sqrt(2.0)
_ROOT_HIGH = math.ldexp(math.floor(math.ldexp(_ROOT, 26)), -26)
_ROOT_LOW = _ROOT - _ROOT_HIGH
_ROOT_REMAINDER = float(Fraction(math.isqrt(2 << 280), 1 << 140) - Fraction(_ROOT))
_SPLITTER = 2.0**27 + 1.0


def largest(array: NDArray[np.float64] | NDArray[np.int64]) -> float:
    """Return the largest absolute value without a temporary array; NaN if the array has one."""
    if array.size == 0:
        return 0
    extreme: float = max(-array.min().item(), array.max().item())
    return extreme


def checked(block: Block, value: ArrayLike) -> NDArray[np.float64]:
    """Return a block's array as float64; refuse it unless it is as the block declares."""
    given = np.asarray(value)
    if given.dtype.kind not in "biuf" or given.dtype.itemsize > 8:
        raise WrongShape(f"block {block.name} must be an array of float64, not {given.dtype}")
    if given.shape != block.shape:
        raise WrongShape(f"block {block.name} must have shape {block.shape}, not {given.shape}")
    array: NDArray[np.float64] = np.ascontiguousarray(given, dtype=np.float64).reshape(block.shape)
    extreme = largest(array)
    if not math.isfinite(extreme):
        raise NotFinite(f"block {block.name} contains NaN or infinite values; nothing was sent")
    if extreme > block.bound:
        raise OutOfBound(
            f"block {block.name} contains a value beyond its bound ±{block.bound:g}; nothing was "
            "sent"
        )
    if (
        block.symmetric
        and not np.array_equal(array, array.T)
        and np.any(np.abs(array - array.T) > _SYMMETRY * extreme)
    ):
        raise NotSymmetric(f"block {block.name} is declared symmetric, but is not symmetric")
    return array


def pack(block: Block, scale: float, array: NDArray[np.float64], out: NDArray[np.int64]) -> None:
    """Set `out` to the nearest integers of a block's packed elements × scale."""
    if not block.symmetric:
        _round(array.reshape(-1), scale, out)
        return
    side = block.shape[0]
    _round(np.ascontiguousarray(array.diagonal()), scale, out[:side])
    _round_times_root_two(array[_strict_upper(side)], scale, out[side:])


def _strict_upper(side: int) -> NDArray[np.bool_]:
    """Return the mask of the elements above the diagonal; indexing takes them row by row."""
    return ~np.tri(side, dtype=np.bool_)


def _round(values: NDArray[np.float64], scale: float, out: NDArray[np.int64]) -> None:
    """Set `out` to the integers nearest to values × scale; a power of two scales exactly."""
    scratch = np.empty(min(values.size, _CHUNK))
    for first in range(0, values.size, _CHUNK):
        chunk = values[first : first + _CHUNK]
        scaled = scratch[: chunk.size]
        np.multiply(chunk, scale, out=scaled)
        np.rint(scaled, out=scaled)
        out[first : first + chunk.size] = scaled


def _round_times_root_two(
    values: NDArray[np.float64], scale: float, out: NDArray[np.int64]
) -> None:
    """Set `out` to the integers nearest to √2 × values × scale, to within 2^-40 of a tie.

    With √2 = R + r for a float64 R, x·√2 = p + e + x·r, where p is the float64 product x·R and e
    its error, computed exactly by splitting both factors [Dekker71]. p is rounded to an integer;
    its remainder, e and x·r are added up and rounded.
    """
    scratch = np.empty((6, min(values.size, _CHUNK)))
    for first in range(0, values.size, _CHUNK):
        chunk = values[first : first + _CHUNK]
        x, high, low, product, rest, term = scratch[:, : chunk.size]
        np.multiply(chunk, scale, out=x)
        np.multiply(x, _SPLITTER, out=high)
        high -= np.subtract(high, x, out=term)
        np.subtract(x, high, out=low)
        np.multiply(x, _ROOT, out=product)
        np.multiply(high, _ROOT_HIGH, out=rest)
        rest -= product
        rest += np.multiply(high, _ROOT_LOW, out=term)
        rest += np.multiply(low, _ROOT_HIGH, out=term)
        rest += np.multiply(low, _ROOT_LOW, out=term)
        rest += np.multiply(x, _ROOT_REMAINDER, out=term)
        nearest = np.rint(product, out=term)
        product -= nearest
        rest += product
        whole = out[first : first + chunk.size]
        whole[:] = nearest
        whole += np.rint(rest, out=rest).astype(np.int64)


def to_floats(integers: NDArray[np.int64], step: float) -> tuple[NDArray[np.float64], float]:
    """Return integers × step, and the largest absolute value of the integers."""
    floats = np.empty(integers.size)
    extreme: float = 0
    for first in range(0, integers.size, _CHUNK):
        chunk = integers[first : first + _CHUNK]
        np.multiply(chunk, step, out=floats[first : first + chunk.size])
        extreme = max(extreme, largest(chunk))
    return floats, extreme


def unpacked(block: Block, packed: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return packed elements in the block's shape; `packed` may be overwritten."""
    if not block.symmetric:
        return packed.reshape(block.shape)
    side = block.shape[0]
    packed[side:] *= math.sqrt(0.5)
    matrix = np.empty(block.shape)
    np.fill_diagonal(matrix, packed[:side])
    above = _strict_upper(side)
    matrix[above] = matrix.T[above] = packed[side:]
    return matrix
