"""Fixed point: named blocks of float64 ↔ one vector of uint64, in two's complement.

A block with f fractional bits sends the element x as the integer nearest to x·2^f. With at most
`max_clients` contributions, none beyond the block's bound, every sum stays within ±2^60, so
arithmetic modulo 2^64 never wraps: overflow is impossible by construction. A client checks this
when the plan arrives, before it computes anything.

The only error is this rounding, at most 2^-(f+1) per client and element of the packed vector; off
the diagonal of a symmetric matrix it is smaller by √2, the factor of the packing. The
multiplication by √2 keeps more than float64's 53 bits, because up to 60 bits are sent. Sums of
integers are exact; decoding rounds each of them once to a float64.

`Encoding.finest` chooses the scales if no noise is added. With differential privacy,
`Encoding.noisy` derives them from the noise, whose tails need head-room too; privacy/scales.py
derives both. Noise is added to the integers before anything else is done with them. An encoding
with noise never returns integers without noise.
"""

import hashlib
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privacy.errors import (
    BlockMismatch,
    EncodingError,
    NoHeadRoom,
    NoiseError,
    ResolutionTooFine,
    TotalError,
    TotalOutOfBound,
)
from privacy.layout import Block, Layout, SecureTotal, _release_total
from privacy.packing import checked, largest, pack, to_floats, unpacked
from privacy.scales import (
    HEAD_ROOM_BITS,
    TAILS,
    finest_bits,
    fits,
    integer_sensitivity,
    largest_integer,
    noisy_bits,
    share_deviation,
)

MAX_CLIENTS = 1 << 20
"""The most clients in a tree of cohorts; one cohort has at most 200 members."""

_FLOAT_ROUNDING = 2.0**-51
"""Relative error of decoding: integer to float64, 1/√2 as a float64, and their product."""
_FORMAT = b"veilgp encoding 2\0"


@final
@dataclass(frozen=True)
class Encoding:
    """How the blocks of a layout become integers.

    fractional_bits: one integer per block, in the layout's order.
    share_deviations: one per block, in the same order: the standard deviation, in integer steps,
        of the discrete Gaussian that each member adds to every element of the block. Empty without
        differential privacy.

    >>> layout = Layout((Block("rows", (), bound=1e6, resolution=1.0),))
    >>> encoding = Encoding.finest(layout, max_clients=10)
    >>> encoding.fractional_bits
    (36,)
    >>> sites = [encoding.encode({"rows": rows}) for rows in (310.0, 250.0, 90.0)]
    >>> total = encoding.decode(np.add.reduce(sites), contributors=3)
    >>> float(total["rows"])
    650.0
    """

    layout: Layout
    max_clients: int
    fractional_bits: tuple[int, ...]
    share_deviations: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if type(self.max_clients) is not int or not 1 <= self.max_clients <= MAX_CLIENTS:
            raise EncodingError(
                f"`max_clients` must be an integer from 1 to {MAX_CLIENTS}, "
                f"not {self.max_clients!r:.40}"
            )
        if not isinstance(self.fractional_bits, tuple) or any(
            type(bits) is not int or not -400 <= bits <= 400 for bits in self.fractional_bits
        ):
            raise EncodingError("`fractional_bits` must be a tuple of integers from -400 to 400")
        if len(self.fractional_bits) != len(self.layout.blocks):
            raise EncodingError(
                f"`fractional_bits` must have one integer per block: {len(self.layout.blocks)}, "
                f"not {len(self.fractional_bits)}"
            )
        if not isinstance(self.share_deviations, tuple) or any(
            type(share) is not int or share < 1 for share in self.share_deviations
        ):
            raise EncodingError("`share_deviations` must be a tuple of positive integers")
        if len(self.share_deviations) not in (0, len(self.layout.blocks)):
            raise EncodingError(
                "`share_deviations` must be empty or have one integer per block: "
                f"{len(self.layout.blocks)}, not {len(self.share_deviations)}"
            )
        for block, bits, share in self._blocks():
            if share:
                self._check_noisy(block, bits, share)
            else:
                self._check_silent(block, bits)

    def _check_silent(self, block: Block, bits: int) -> None:
        if not fits(block, self.max_clients, bits):
            raise EncodingError(
                f"block {block.name}: the sum of {self.max_clients} clients within "
                f"±{block.bound:g} can overflow {HEAD_ROOM_BITS} bits with {bits} fractional bits: "
                "use fewer fractional bits"
            )
        if Fraction(2) ** -bits > Fraction(block.resolution):
            raise ResolutionTooFine(
                f"block {block.name}: {bits} fractional bits are too coarse for its resolution "
                f"{block.resolution:g}; 64-bit sums of {self.max_clients} clients within "
                f"±{block.bound:g} allow {finest_bits(block, self.max_clients)} fractional bits: "
                "lower the bound, or accept a coarser resolution"
            )

    def _check_noisy(self, block: Block, bits: int, share: int) -> None:
        integer_sensitivity(block, bits)
        if not fits(block, self.max_clients, bits, share):
            raise NoHeadRoom(
                f"block {block.name}: the sum of {self.max_clients} clients within "
                f"±{block.bound:g}, each with noise of deviation {share}, can overflow "
                f"{HEAD_ROOM_BITS} bits with {bits} fractional bits: use fewer fractional bits"
            )

    @classmethod
    def finest(cls, layout: Layout, *, max_clients: int) -> Self:
        """Return the encoding without noise: per block the largest scale that cannot overflow.

        Scales are powers of two.
        """
        if type(max_clients) is not int or not 1 <= max_clients <= MAX_CLIENTS:
            raise EncodingError(
                f"`max_clients` must be an integer from 1 to {MAX_CLIENTS}, not {max_clients!r:.40}"
            )
        bits = tuple(finest_bits(block, max_clients) for block in layout.blocks)
        return cls(layout, max_clients, bits)

    @classmethod
    def noisy(cls, layout: Layout, *, multiplier: float, honest: int, max_clients: int) -> Self:
        """Return the encoding with which a sum has the noise multiplier z, or slightly more.

        The noise of `honest` members suffices for z. privacy/scales.py derives the formulas.

        >>> scatter = Block("scatter", (3, 3), bound=1e5, resolution=1.0, sensitivity=1.0)
        >>> encoding = Encoding.noisy(Layout((scatter,)), multiplier=4, honest=9, max_clients=10)
        >>> encoding.fractional_bits, encoding.share_deviations
        ((30,), (1431657916,))
        """
        if type(max_clients) is not int or not 1 <= max_clients <= MAX_CLIENTS:
            raise EncodingError(
                f"`max_clients` must be an integer from 1 to {MAX_CLIENTS}, not {max_clients!r:.40}"
            )
        if type(honest) is not int or not 1 <= honest <= max_clients:
            raise EncodingError(
                f"`honest` must be an integer from 1 to `max_clients` = {max_clients}, "
                f"not {honest!r:.40}"
            )
        if type(multiplier) not in (int, float) or not 1e-6 <= multiplier <= 1e6:
            raise EncodingError(
                f"`multiplier` must be a number from 1e-6 to 1e6, not {multiplier!r:.40}"
            )
        weights = math.fsum(block.weight for block in layout.blocks)
        bits, shares = [], []
        for block in layout.blocks:
            noise = multiplier / math.sqrt(block.weight / weights * honest)
            bits.append(noisy_bits(block, max_clients, noise))
            shares.append(share_deviation(block, bits[-1], noise))
        return cls(layout, max_clients, tuple(bits), tuple(shares))

    @classmethod
    def of_sum(cls, layout: Layout, *, multiplier: float | None, honest: int, members: int) -> Self:
        """Return the encoding of a sum over `members` members; client and coordinator agree on it.

        multiplier: the noise multiplier z, or None for a sum without noise, which ignores `honest`.
        """
        if multiplier is None:
            return cls.finest(layout, max_clients=members)
        return cls.noisy(layout, multiplier=multiplier, honest=honest, max_clients=members)

    def multiplier(self, *, honest: int) -> float:
        """Return the noise multiplier z of a sum with the noise of `honest` members.

        z⁻² = Σ Δ_int²/(h·s²) over the blocks, with Δ_int the integers' sensitivity to one unit.
        """
        if not self.share_deviations:
            raise NoiseError(
                "this encoding has no noise, so it has no noise multiplier; use Encoding.noisy"
            )
        inverse = math.fsum(
            (integer_sensitivity(block, bits) / share) ** 2 / honest
            for block, bits, share in self._blocks()
        )
        return 1 / math.sqrt(inverse)

    def noises(self, *, contributors: int) -> dict[str, float]:
        """Return the deviation of the noise in each element of a total's blocks; 0 without noise.

        contributors: how many members' vectors are in the total, each with its share of noise.
        """
        return {
            block.name: math.ldexp(math.sqrt(contributors) * share, -bits)
            for block, bits, share in self._blocks()
        }

    def encode(
        self, values: Mapping[str, ArrayLike], *, noise: NDArray[np.int64] | None = None
    ) -> NDArray[np.uint64]:
        """Return a contribution as a vector of `layout.length` integers modulo 2^64.

        Every block is checked before the first is encoded. An error names the block and its
        bound, never the value. `noise` holds the integers of a fresh `privacy.noise.draw`; it is
        required if this encoding has noise, and refused if it does not.
        """
        self._check_noise(noise)
        names = {block.name for block in self.layout.blocks}
        if missing := sorted(names - set(values)):
            raise BlockMismatch(f"the contribution lacks these blocks: {', '.join(missing)}")
        if unknown := len(set(values) - names):
            raise BlockMismatch(
                f"the contribution has {unknown} blocks that are not in its layout: remove them"
            )
        arrays = [checked(block, values[block.name]) for block in self.layout.blocks]
        vector = np.empty(self.layout.length, dtype="<u8")
        integers = vector.view("<i8")
        start = 0
        for block, bits, array in zip(
            self.layout.blocks, self.fractional_bits, arrays, strict=True
        ):
            pack(block, 2.0**bits, array, integers[start : start + block.length])
            start += block.length
        if noise is not None:
            integers += noise
        return vector

    def decode(self, total: NDArray[np.uint64], *, contributors: int) -> SecureTotal:
        """Return the sum of `contributors` encoded vectors as named blocks of float64.

        Refuse a total that is impossible for contributions within their bounds (`TotalOutOfBound`).
        """
        if not isinstance(total, np.ndarray) or total.dtype != np.dtype("<u8"):
            raise TotalError("a total must be a numpy array of little-endian uint64 ('<u8')")
        if total.shape != (self.layout.length,):
            raise TotalError(
                f"a total of this layout must have shape ({self.layout.length},), not {total.shape}"
            )
        if type(contributors) is not int or not 1 <= contributors <= self.max_clients:
            raise TotalError(
                f"`contributors` must be an integer from 1 to {self.max_clients}, "
                f"not {contributors!r:.40}"
            )
        arrays, roundings, noises = {}, {}, {}
        start = 0
        for block, bits, share in self._blocks():
            integers = total[start : start + block.length].view("<i8")
            start += block.length
            packed, extreme = to_floats(integers, 2.0**-bits)
            noise = math.sqrt(contributors) * share
            if extreme > contributors * largest_integer(block, bits) + TAILS * math.ceil(noise):
                raise TotalOutOfBound(
                    f"block {block.name}: the total is larger than {contributors} contributions "
                    f"within ±{block.bound:g} can sum to: at least one member exceeded its bound"
                )
            arrays[block.name] = unpacked(block, packed)
            noises[block.name] = math.ldexp(noise, -bits)
            roundings[block.name] = math.ldexp(contributors, -bits - 1) + (
                _FLOAT_ROUNDING * math.ldexp(extreme, -bits)
            )
        return _release_total(
            self.layout,
            contributors=contributors,
            arrays=arrays,
            roundings=roundings,
            noises=noises,
        )

    def to_bytes(self) -> bytes:
        """Return the only canonical form, including the layout, for a task's context."""
        bits, shares = self.fractional_bits, self.share_deviations
        head = struct.pack(f">IHH{len(bits)}h", self.max_clients, len(bits), len(shares), *bits)
        noise = struct.pack(f">{len(shares)}Q", *shares)
        return _FORMAT + head + noise + self.layout.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read the canonical form, and nothing else; every check of the constructor applies."""
        if data[: len(_FORMAT)] != _FORMAT:
            raise EncodingError(
                "these bytes are not an encoding in the format of this version of veilgp"
            )
        try:
            max_clients, count, noisy = struct.unpack_from(">IHH", data, len(_FORMAT))
            position = len(_FORMAT) + 8
            bits = struct.unpack_from(f">{count}h", data, position)
            position += 2 * count
            shares = struct.unpack_from(f">{noisy}Q", data, position)
            position += 8 * noisy
        except struct.error as error:
            raise EncodingError("these bytes are not an encoding: they are truncated") from error
        return cls(Layout.from_bytes(data[position:]), max_clients, bits, shares)

    def digest(self) -> bytes:
        """Return the SHA-256 of the canonical form."""
        return hashlib.sha256(self.to_bytes()).digest()

    def _blocks(self) -> Iterator[tuple[Block, int, int]]:
        """Return each block with its fractional bits and share deviation (0 without noise)."""
        shares = self.share_deviations or (0,) * len(self.layout.blocks)
        return zip(self.layout.blocks, self.fractional_bits, shares, strict=True)

    def _check_noise(self, noise: NDArray[np.int64] | None) -> None:
        if noise is None:
            if self.share_deviations:
                raise NoiseError(
                    "`noise` is required, because this encoding adds noise: draw it with "
                    "privacy.noise.draw"
                )
            return
        if not self.share_deviations:
            raise NoiseError("`noise` must be None, because this encoding has no noise")
        if noise.dtype != np.dtype("<i8") or noise.shape != (self.layout.length,):
            raise NoiseError(
                f"`noise` must be an int64 array of shape ({self.layout.length},), "
                f"not {noise.dtype} of shape {noise.shape}"
            )
        start = 0
        for block, _, share in self._blocks():
            if largest(noise[start : start + block.length]) > TAILS * share:
                raise NoiseError(
                    f"block {block.name}: noise exceeds {TAILS} deviations of {share}, which a "
                    "correct sampler never draws: the source of noise is broken; nothing was sent"
                )
            start += block.length
