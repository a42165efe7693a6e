"""Layouts and totals: the named, bounded blocks of a vector, and the sum of such vectors.

A round declares the `Layout` of what each hospital contributes. `privacy.encoding` turns these
contributions into integers and their sum back into a `SecureTotal`, the only thing that a round's
`update` accepts. This module imports nothing from `privacy` except its errors, so that
`kernels.rounds` can use layouts and totals without importing cryptography.

Symmetric matrices are sent as their diagonal followed by the rows of the strict upper triangle, the
latter times √2. This halves the traffic, and the Euclidean norm of the packed vector is the
Frobenius norm of the matrix, so a sensitivity means the same before and after packing.
"""

import hashlib
import math
import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn, Self, SupportsIndex, final

import numpy as np
from numpy.typing import NDArray

from privacy.errors import LayoutError, TotalError

MAX_LENGTH = 1 << 27
"""Elements of the longest vector: 1 GiB per client and sum."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:-]{0,99}")
_LEAST, _GREATEST = 1e-100, 1e100
"""Outside this range, the scales of bounds and resolutions could not be represented exactly."""
_MAX_DIMENSIONS = 8
_MAX_BLOCKS = 0xFFFF
_FORMAT = b"veilgp layout 2\0"


@final
@dataclass(frozen=True)
class Block:
    """One named array of a contribution.

    `bound`: no element of one client's array exceeds it in absolute value.
    `resolution`: the coarsest step between representable values that the algorithm accepts.
    `sensitivity`: the most that adding or removing one patient changes the block of one client, in
    Euclidean (for matrices Frobenius) norm; None if the algorithm does not know it.
    `weight`: with differential privacy, the block's part of the sum's cost, relative to the other
    blocks: its noise is proportional to sensitivity / √weight.
    `symmetric`: a square matrix that equals its transpose, packed as described above.
    """

    name: str
    shape: tuple[int, ...]
    bound: float
    resolution: float
    sensitivity: float | None = None
    symmetric: bool = False
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise LayoutError(
                "a block's `name` must be 1 to 100 ASCII letters, digits or _./:- and start with a "
                f"letter, a digit or _, not {self.name!r:.120}"
            )
        if (
            not isinstance(self.shape, tuple)
            or len(self.shape) > _MAX_DIMENSIONS
            or any(type(side) is not int or side < 0 for side in self.shape)
        ):
            raise LayoutError(
                f"block {self.name}: `shape` must be a tuple of at most {_MAX_DIMENSIONS} "
                f"non-negative integers, not {self.shape!r}"
            )
        for what, number in (
            ("bound", self.bound),
            ("resolution", self.resolution),
            ("weight", self.weight),
        ):
            if not _is_positive(number):
                raise LayoutError(
                    f"block {self.name}: `{what}` must be a number from {_LEAST} to {_GREATEST}, "
                    f"not {number!r}"
                )
        if self.sensitivity is not None and not _is_positive(self.sensitivity):
            raise LayoutError(
                f"block {self.name}: `sensitivity` must be None or a number from {_LEAST} to "
                f"{_GREATEST}, not {self.sensitivity!r}"
            )
        for field in ("bound", "resolution", "sensitivity", "weight"):
            number = getattr(self, field)
            object.__setattr__(self, field, None if number is None else float(number))
        if type(self.symmetric) is not bool:
            raise LayoutError(f"block {self.name}: `symmetric` must be True or False")
        if self.symmetric and (len(self.shape) != 2 or self.shape[0] != self.shape[1]):
            raise LayoutError(
                f"block {self.name}: `shape` must be that of a square matrix if `symmetric` is "
                f"True, not {self.shape}"
            )
        if math.prod(self.shape) > MAX_LENGTH:
            raise LayoutError(
                f"block {self.name}: a block must have at most {MAX_LENGTH} elements, which the "
                f"shape {self.shape} exceeds"
            )

    @property
    def length(self) -> int:
        """The number of elements of the packed block."""
        if self.symmetric:
            return self.shape[0] * (self.shape[0] + 1) // 2
        return math.prod(self.shape)


@final
@dataclass(frozen=True)
class Layout:
    """The blocks of one contribution, in the order of the vector.

    >>> layout = Layout((
    ...     Block("scatter", (3, 3), bound=1e6, resolution=2**-30, symmetric=True),
    ...     Block("rows", (), bound=1e6, resolution=1.0),
    ... ))
    >>> layout.length, layout.offset("rows")
    (7, 6)
    >>> Layout.from_bytes(layout.to_bytes()) == layout
    True
    """

    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.blocks, tuple) or not all(
            isinstance(block, Block) for block in self.blocks
        ):
            raise LayoutError("`blocks` must be a tuple of Block objects")
        if not 0 < len(self.blocks) <= _MAX_BLOCKS:
            raise LayoutError(
                f"a layout must have 1 to {_MAX_BLOCKS} blocks, not {len(self.blocks)}"
            )
        times = Counter(block.name for block in self.blocks)
        if repeated := sorted(name for name, count in times.items() if count > 1):
            raise LayoutError(
                f"the names of blocks must be unique; repeated: {', '.join(repeated)}"
            )
        if self.length > MAX_LENGTH:
            raise LayoutError(
                f"a layout must have at most {MAX_LENGTH} elements, not {self.length}"
            )

    @cached_property
    def length(self) -> int:
        """The number of elements of the packed vector."""
        return sum(block.length for block in self.blocks)

    def block(self, name: str) -> Block:
        """Return the block with this name."""
        for block in self.blocks:
            if block.name == name:
                return block
        raise LayoutError(f"this layout has no block {name!r}; it has {self._names()}")

    def offset(self, name: str) -> int:
        """Return the index in the vector at which the packed block with this name begins."""
        position = self.blocks.index(self.block(name))
        return sum(block.length for block in self.blocks[:position])

    def to_bytes(self) -> bytes:
        """Return the only canonical form, which digests and messages carry."""
        parts = [_FORMAT, struct.pack(">H", len(self.blocks))]
        for block in self.blocks:
            name = block.name.encode("ascii")
            parts += [
                struct.pack(">B", len(name)),
                name,
                struct.pack(f">B{len(block.shape)}Q", len(block.shape), *block.shape),
                struct.pack(">dd", block.bound, block.resolution),
                # Zero is not a valid sensitivity, so it can stand for "none declared".
                struct.pack(">ddB", block.sensitivity or 0.0, block.weight, block.symmetric),
            ]
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read the canonical form, and nothing else."""
        try:
            layout = cls(_read_blocks(data))
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise LayoutError("these bytes are not a layout: truncated or damaged") from error
        if layout.to_bytes() != data:
            raise LayoutError("these bytes are not a layout in its canonical form")
        return layout

    def digest(self) -> bytes:
        """Return the SHA-256 of the canonical form."""
        return hashlib.sha256(self.to_bytes()).digest()

    def _names(self) -> str:
        return ", ".join(block.name for block in self.blocks)


@final
class SecureTotal:
    """The sum of the contributions of `contributors` members, by block: what an update accepts.

    Only `Encoding.decode` makes one, from the integers of a finished sum. It cannot be constructed,
    subclassed, copied, pickled or changed, and its arrays are read-only. This does not protect
    against hostile code in the same process. It prevents accidents: passing an individual's vector
    to an update is a type error for mypy and an exception at run time. To store a sum, store its
    integers and decode them again.
    """

    __slots__ = ("_arrays", "_contributors", "_layout", "_noises", "_roundings")
    _arrays: Mapping[str, NDArray[np.float64]]
    _contributors: int
    _layout: Layout
    _noises: Mapping[str, float]
    _roundings: Mapping[str, float]

    def __new__(cls, *_: object, **__: object) -> Self:
        """Refuse: a total is only made from a sum."""
        raise TotalError("a SecureTotal is only made by the secure sum: see Encoding.decode")

    def __init_subclass__(cls, **_: object) -> NoReturn:
        raise TotalError("SecureTotal cannot be subclassed: it is only made by the secure sum")

    @property
    def layout(self) -> Layout:
        """The layout of every contribution."""
        return self._layout

    @property
    def contributors(self) -> int:
        """The number of members whose contributions are in the sum."""
        return self._contributors

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        """Return the sum of a block in the block's shape, symmetric matrices in full."""
        return self._arrays[self._layout.block(name).name]

    def part(self, prefix: str) -> "SecureTotal":
        """Return the blocks whose names begin with a prefix, without it, as a sum of their own.

        For an algorithm whose sum consists of several others'.
        """
        names = {
            block.name.removeprefix(prefix): block.name
            for block in self._layout.blocks
            if block.name.startswith(prefix)
        }
        blocks = (replace(self._layout.block(whole), name=own) for own, whole in names.items())
        return _release_total(
            Layout(tuple(blocks)),
            contributors=self._contributors,
            arrays={own: self._arrays[whole] for own, whole in names.items()},
            roundings={own: self._roundings[whole] for own, whole in names.items()},
            noises={own: self._noises[whole] for own, whole in names.items()},
        )

    def rounding(self, name: str) -> float:
        """Return a bound on the rounding error of each element of a block's sum.

        It is contributors × 2^-(f+1) for the fixed point with f fractional bits, plus float64's
        rounding of the largest packed element. For symmetric blocks this is the bound on the
        diagonal; off the diagonal the error is smaller by √2.
        """
        return self._roundings[self._layout.block(name).name]

    def noise(self, name: str) -> float:
        """Return the standard deviation of the noise in each packed element of a block; 0 if none.

        For matrix elements off the diagonal of a symmetric block, divide it by √2.
        """
        return self._noises[self._layout.block(name).name]

    def __repr__(self) -> str:
        return f"<SecureTotal of {self._contributors} members: {self._layout._names()}>"

    def __setattr__(self, name: str, _: object) -> NoReturn:
        raise TotalError(f"a SecureTotal is read-only: its {name} cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise TotalError(f"a SecureTotal is read-only: its {name} cannot be deleted")

    def __reduce_ex__(self, _: SupportsIndex) -> NoReturn:
        raise TotalError(
            "a SecureTotal cannot be copied or pickled: store the sum's integers and decode them"
        )


def _release_total(
    layout: Layout,
    *,
    contributors: int,
    arrays: Mapping[str, NDArray[np.float64]],
    roundings: Mapping[str, float],
    noises: Mapping[str, float],
) -> SecureTotal:
    """Return a total; only `Encoding.decode` calls this, with a sum whose masks are removed.

    (And `SecureTotal.part`, with the numbers of such a total.)
    """
    for array in arrays.values():
        array.flags.writeable = False
    total = object.__new__(SecureTotal)
    for name, value in (
        ("_layout", layout),
        ("_contributors", contributors),
        ("_arrays", dict(arrays)),
        ("_roundings", dict(roundings)),
        ("_noises", dict(noises)),
    ):
        object.__setattr__(total, name, value)
    return total


def _is_positive(number: object) -> bool:
    return (
        isinstance(number, int | float)
        and not isinstance(number, bool)
        and _LEAST <= number <= _GREATEST
    )


def _read_blocks(data: bytes) -> tuple[Block, ...]:
    if data[: len(_FORMAT)] != _FORMAT:
        raise LayoutError("these bytes are not a layout in the format of this version of veilgp")
    (count,) = struct.unpack_from(">H", data, len(_FORMAT))
    position = len(_FORMAT) + 2
    blocks = []
    for _ in range(count):
        name = data[position + 1 : position + 1 + data[position]].decode("ascii")
        position += 1 + data[position]
        shape = struct.unpack_from(f">{data[position]}Q", data, position + 1)
        position += 1 + 8 * data[position]
        numbers = struct.unpack_from(">ddddB", data, position)
        bound, resolution, sensitivity, weight, symmetric = numbers
        position += 33
        blocks.append(
            Block(
                name,
                shape,
                bound,
                resolution,
                sensitivity or None,
                symmetric=bool(symmetric),
                weight=weight,
            )
        )
    return tuple(blocks)
