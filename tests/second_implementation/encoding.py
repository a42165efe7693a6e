"""Layouts, scales and fixed point: section 12 of docs/protocol.md."""

import math
import struct
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .wire import require

HEAD_ROOM = 2**60


@dataclass(frozen=True)
class Block:
    """One named array of a layout."""

    name: str
    shape: tuple[int, ...]
    bound: float
    resolution: float
    sensitivity: float | None
    weight: float
    symmetric: bool

    @property
    def length(self) -> int:
        """Elements when packed."""
        side = self.shape[0] if self.symmetric else 0
        return side * (side + 1) // 2 if self.symmetric else math.prod(self.shape)

    @property
    def packing_squared(self) -> int:
        """p²: 2 for symmetric matrices of more than one element, 1 otherwise."""
        return 2 if self.symmetric and self.shape[0] > 1 else 1

    def greatest(self, bits: int) -> int:
        """⌊√⌈(p·bound·2^f)²⌉⌋ + 1, the bound on an encoded element."""
        square = self.packing_squared * Fraction(self.bound) ** 2 * Fraction(4) ** bits
        return math.isqrt(math.ceil(square)) + 1


def scale(block: Block, max_clients: int) -> int:
    """Fractional bits without noise: the most that leave room for all clients."""
    bits = 61 - math.frexp(block.bound)[1]  # above it even one client has no room
    while max_clients * block.greatest(bits) >= HEAD_ROOM:
        bits -= 1
    require(Fraction(2) ** -bits <= Fraction(block.resolution), "encoding.resolution")
    return bits


def noisy_scale(
    block: Block, max_clients: int, multiplier: float, honest: int, all_weights: float
) -> tuple[int, int]:
    """Fractional bits and deviation of each member's share of noise."""
    if block.sensitivity is None:
        require(False, "encoding.sensitivity")
    delta = block.sensitivity
    root = math.sqrt(block.length)
    packing = math.sqrt(block.packing_squared)
    nu = multiplier / math.sqrt(block.weight / all_weights * honest)
    bits = math.ceil(math.log2(max(2**30 / nu, 2**10 * root) / delta))
    while True:
        spread = delta * (1 + 2**-20) + 2 * 2**-40 * block.bound * packing * root
        deviation = math.ceil(nu * (2.0**bits * spread + root))
        require(deviation >= 2**20, "encoding.head_room")
        greatest = max_clients * (block.greatest(bits) + 16 * deviation)
        if deviation <= 2**53 and greatest < HEAD_ROOM:
            return bits, deviation
        bits -= 1


def canonical_bytes(
    blocks: list[Block], max_clients: int, bits: list[int], deviations: list[int]
) -> bytes:
    """The canonical form of an encoding."""
    layout = b"veilgp layout 2\0" + struct.pack(">H", len(blocks))
    for block in blocks:
        name = block.name.encode("ascii")
        layout += struct.pack(">B", len(name)) + name
        layout += struct.pack(f">B{len(block.shape)}Q", len(block.shape), *block.shape)
        numbers = (block.bound, block.resolution, block.sensitivity or 0.0, block.weight)
        layout += struct.pack(">4dB", *numbers, block.symmetric)
    head = struct.pack(">IHH", max_clients, len(blocks), len(deviations))
    scales = struct.pack(f">{len(bits)}h{len(deviations)}Q", *bits, *deviations)
    return b"veilgp encoding 2\0" + head + scales + layout


def read_canonical(data: bytes) -> tuple[list[Block], int, list[int], list[int]]:
    """Blocks, clients, bits and deviations of an encoding; the bytes must be canonical."""
    at = len(b"veilgp encoding 2\0")

    def take(form: str) -> tuple[Any, ...]:
        nonlocal at
        at += struct.calcsize(form)
        return struct.unpack_from(form, data, at - struct.calcsize(form))

    max_clients, count, noisy = take(">IHH")
    bits, deviations = list(take(f">{count}h")), list(take(f">{noisy}Q"))
    at += len(b"veilgp layout 2\0") + 2
    blocks = []
    for _ in range(count):
        (size,) = take(">B")
        name = take(f">{size}s")[0].decode("ascii")
        (dimensions,) = take(">B")
        shape = take(f">{dimensions}Q")
        bound, resolution, sensitivity, weight, symmetric = take(">4dB")
        blocks.append(
            Block(name, shape, bound, resolution, sensitivity or None, weight, symmetric == 1)
        )
    require(canonical_bytes(blocks, max_clients, bits, deviations) == data, "layout.invalid")
    return blocks, max_clients, bits, deviations


def pack(block: Block, values: Any, bits: int) -> list[int]:
    """The integers of one block of a contribution."""
    flat = _flat(values)
    require(len(flat) == math.prod(block.shape), "encoding.wrong_shape")
    require(all(math.isfinite(v) for v in flat), "encoding.not_finite")
    require(all(abs(v) <= block.bound for v in flat), "encoding.out_of_bound")
    if not block.symmetric:
        return [round(Fraction(v) * Fraction(2) ** bits) for v in flat]
    side = block.shape[0]
    mirrored = all(values[i][j] == values[j][i] for i in range(side) for j in range(i))
    require(mirrored, "encoding.not_symmetric")
    diagonal = [round(Fraction(values[i][i]) * Fraction(2) ** bits) for i in range(side)]
    upper = [values[i][j] for i in range(side) for j in range(i + 1, side)]
    return diagonal + [_times_root_two(v, bits) for v in upper]


def _flat(values: Any) -> list[float]:
    return [v for row in values for v in _flat(row)] if isinstance(values, list) else [values]


def _times_root_two(value: float, bits: int) -> int:
    """The integer nearest to value·√2·2^bits, exactly: √2 is irrational, so there are no ties."""
    square = 2 * Fraction(value) ** 2 * Fraction(4) ** bits
    nearest = (math.isqrt(math.floor(4 * square)) + 1) // 2
    return nearest if value >= 0 else -nearest
