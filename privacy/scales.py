"""The scale of a block's fixed point and the size of each member's noise, within 64 bits.

Without noise a block uses the largest power-of-two scale 2^f at which the sum of `max_clients`
contributions within its bound stays below 2^60. With noise the scale follows from the noise.

**Sensitivity of the integers.** Adding a unit to a table changes the block's packed array of d
elements by at most Δ, the block's `sensitivity`, in Euclidean norm: symmetric packing is an
isometry. The integers that are sent can change by more, for three reasons, and the noise must
cover what is sent:

- features and rows are themselves rounded, in float32 to 2^-24: Δ·(1 + 2^-20);
- a sum over rows in float64 depends on how the rows are divided into blocks, and one more row can
  change that everywhere [Casacuberta22]. Each element is within 2^-40 times the packed bound of the
  exact sum: 2^13 additions in sequence reach this error, sums of blocks of rows only much later.
  The errors of both tables count;
- each element is rounded to an integer, which changes a difference by less than 1.

So ‖x − x'‖ ≤ Δ_int = 2^f·(Δ·(1 + 2^-20) + 2^-39·bound·√(d·packing)) + √d for integers x, x' of
neighbouring tables.

**Shares.** A sum of several blocks with deviations σ_j is one Gaussian mechanism after dividing
each block by its σ_j: its sensitivity is then √(Σ Δ_int,j²/σ_j²) = 1/z. With weights w_j that add
up to one, σ_j = z·Δ_int,j/√w_j satisfies this. Each member's noise has deviation s_j = ⌈σ_j/√h⌉, so
that the h honest members of the smallest possible sum reach σ_j on their own.

**Scale.** f is the least integer at which s ≥ 2^30, where the difference between integer shares and
one Gaussian is far below any δ (privacy.accounting.distributed), and at which rounding costs less
than a thousandth of the sensitivity. If there is no room for that, f is the largest that fits, down
to s = 2^20. The scale leaves room for shares up to 16·s, which are exceeded with probability
2e^-128: sums including noise stay below 2^60.
"""

import math
from fractions import Fraction

from privacy.errors import NoHeadRoom, NoSensitivity
from privacy.layout import Block

HEAD_ROOM_BITS = 60
"""Totals stay below 2^60, where two primes of 31 bits authenticate them (privacy/tags.py)."""
TAILS = 16
"""A member's noise is never larger than this number of deviations of its share."""
SHARE_DEVIATION = 1 << 30
"""The least deviation of a member's share, in integer steps, if there is room for it."""
LEAST_SHARE_DEVIATION = 1 << 20
MOST_SHARE_DEVIATION = 1 << 53
"""Up to here float64, which OpenDP takes as its scale, represents every integer."""

_ROW_ROUNDING = 2.0**-20
_SUM_ROUNDING = 2.0**-40
_ROUNDING_COST = 2.0**-10


def finest_bits(block: Block, max_clients: int) -> int:
    """Return the largest f with max_clients × packed bound × 2^f below 2^60."""
    reach = max_clients * block.bound * math.sqrt(packing_squared(block))
    bits = HEAD_ROOM_BITS - math.frexp(reach)[1]
    # The float product may round across a power of two; the exact predicate decides.
    while not fits(block, max_clients, bits):
        bits -= 1
    while fits(block, max_clients, bits + 1):
        bits += 1
    return bits


def noisy_bits(block: Block, max_clients: int, noise: float) -> int:
    """Return f for shares of `noise` × Δ_int, as described above; refuse if no f fits."""
    steps = max(SHARE_DEVIATION / noise, math.sqrt(block.length) / _ROUNDING_COST)
    mantissa, bits = math.frexp(steps / _sensitivity(block))
    bits -= mantissa == 0.5
    while (share := share_deviation(block, bits, noise)) >= LEAST_SHARE_DEVIATION:
        if fits(block, max_clients, bits, share):
            return bits
        bits -= 1
    raise NoHeadRoom(
        f"block {block.name}: the sum of {max_clients} clients within ±{block.bound:g} and their "
        f"noise for a sensitivity of {block.sensitivity:g} do not fit into {HEAD_ROOM_BITS} bits: "
        "lower the bound (fewer rows per site), or the noise"
    )


def integer_sensitivity(block: Block, bits: int) -> float:
    """Return Δ_int: how much one unit can change one client's integers of a block, at f = bits."""
    d = math.sqrt(block.length)
    summed = 2 * _SUM_ROUNDING * block.bound * math.sqrt(packing_squared(block)) * d
    return math.ldexp(_sensitivity(block) * (1 + _ROW_ROUNDING) + summed, bits) + d


def share_deviation(block: Block, bits: int, noise: float) -> int:
    """Return the deviation of one member's noise, in integer steps."""
    return math.ceil(noise * integer_sensitivity(block, bits))


def fits(block: Block, max_clients: int, bits: int, share: int = 0) -> bool:
    """Return whether max_clients contributions and their noise stay below 2^60; exact."""
    if share:
        most = largest_integer(block, bits) + TAILS * share
        return share <= MOST_SHARE_DEVIATION and max_clients * most < 1 << HEAD_ROOM_BITS
    return max_clients * largest_integer(block, bits) < 1 << HEAD_ROOM_BITS


def packing_squared(block: Block) -> int:
    """Return the square of the factor that packing multiplies the block's bound by."""
    return 2 if block.symmetric and block.shape[0] > 1 else 1


def largest_integer(block: Block, bits: int) -> int:
    """Return an integer that no encoded element of one client exceeds in absolute value."""
    squared = packing_squared(block) * (Fraction(block.bound) * Fraction(2) ** bits) ** 2
    return math.isqrt(math.ceil(squared)) + 1


def _sensitivity(block: Block) -> float:
    if block.sensitivity is None:
        raise NoSensitivity(
            f"block {block.name} has no declared sensitivity, so noise cannot protect it: declare "
            "its `sensitivity`, or leave it out of sums with differential privacy"
        )
    return block.sensitivity
