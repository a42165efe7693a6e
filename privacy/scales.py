"""How fine a block's fixed point is, and how large each member's noise: 64 bits, divided up.

Without noise a block takes the largest power-of-two scale 2^f at which `max_clients` contributions
within its bound stay below 2^62. With noise the scale follows from the noise.

**Sensitivity of the integers.** Adding a unit to a table changes the block's packed array of d
elements by at most Δ, the block's `sensitivity`, in Euclidean norm: symmetric packing is an
isometry. What is sent is another number, for three reasons, and noise has to cover what is sent:

- features and rows are themselves rounded, float32 ones to 2^-24: Δ·(1 + 2^-20);
- a sum over rows in float64 depends on how it is blocked, and another row can change that
  everywhere (Casacuberta et al., Widespread underestimation of sensitivity, 2022). Each element is
  within 2^-40 of the packed bound of the exact sum, which 2^13 additions in sequence reach, blocks
  of rows added up far later; both tables' errors count;
- each element is rounded to an integer, which moves a difference by less than 1.

So ‖x − x'‖ ≤ Δ_int = 2^f·(Δ·(1 + 2^-20) + 2^-39·bound·√(d·packing)) + √d for integers x, x' of
neighbouring tables.

**Shares.** A sum of several blocks with deviations σ_j is one Gaussian mechanism after dividing
each by its σ_j: its sensitivity is then √(Σ Δ_int,j²/σ_j²) = 1/z. With weights w_j that add up to
one, σ_j = z·Δ_int,j/√w_j gives exactly that. Each member adds s_j = ⌈σ_j/√h⌉, so that the h honest
ones among the fewest that a sum can be over reach σ_j alone.

**Scale.** f is the least at which s ≥ 2^30, where the difference between shares of integers and one
Gaussian is far below any δ (privacy.accounting.distributed), and at which rounding costs less than
a thousandth of the sensitivity. If there is no room for that, f is what fits, down to s = 2^20.
A share beyond 16·s is drawn with probability 2e^-128; with it, sums stay below 2^62.
"""

import math
from fractions import Fraction

from privacy.errors import NoHeadRoom, NoSensitivity
from privacy.layout import Block

HEAD_ROOM_BITS = 62
TAILS = 16
"""Deviations of its share that no member's noise is beyond."""
SHARE_DEVIATION = 1 << 30
"""The least deviation of a member's share, in integer steps, where there is room for it."""
LEAST_SHARE_DEVIATION = 1 << 20
MOST_SHARE_DEVIATION = 1 << 53
"""Up to here an integer is a float64, which is how OpenDP is told."""

_ROW_ROUNDING = 2.0**-20
_SUM_ROUNDING = 2.0**-40
_ROUNDING_COST = 2.0**-10


def finest_bits(block: Block, max_clients: int) -> int:
    """Return the largest f with max_clients × packed bound × 2^f below 2^62."""
    reach = max_clients * block.bound * math.sqrt(packing_squared(block))
    bits = HEAD_ROOM_BITS - math.frexp(reach)[1]
    # The float product may round across a power of two; the exact predicate decides.
    while not fits(block, max_clients, bits):
        bits -= 1
    while fits(block, max_clients, bits + 1):
        bits += 1
    return bits


def noisy_bits(block: Block, max_clients: int, noise: float) -> int:
    """Return f for shares of `noise` × Δ_int, as the module says; refuse where nothing fits."""
    steps = max(SHARE_DEVIATION / noise, math.sqrt(block.length) / _ROUNDING_COST)
    mantissa, bits = math.frexp(steps / _sensitivity(block))
    bits -= mantissa == 0.5
    while (share := share_deviation(block, bits, noise)) >= LEAST_SHARE_DEVIATION:
        if fits(block, max_clients, bits, share):
            return bits
        bits -= 1
    raise NoHeadRoom(
        f"block {block.name}: {max_clients} clients within ±{block.bound:g} and their noise for a "
        f"sensitivity of {block.sensitivity:g} do not fit into {HEAD_ROOM_BITS} bits: lower the "
        "bound (fewer rows of a site), or the noise"
    )


def integer_sensitivity(block: Block, bits: int) -> float:
    """Return Δ_int: how far one unit moves one client's integers of a block, at f = bits."""
    d = math.sqrt(block.length)
    summed = 2 * _SUM_ROUNDING * block.bound * math.sqrt(packing_squared(block)) * d
    return math.ldexp(_sensitivity(block) * (1 + _ROW_ROUNDING) + summed, bits) + d


def share_deviation(block: Block, bits: int, noise: float) -> int:
    """Return the deviation of one member's noise, in integer steps."""
    return math.ceil(noise * integer_sensitivity(block, bits))


def fits(block: Block, max_clients: int, bits: int, share: int = 0) -> bool:
    """Say, exactly, whether max_clients contributions and their noise stay below 2^62."""
    if share:
        most = largest_integer(block, bits) + TAILS * share
        return share <= MOST_SHARE_DEVIATION and max_clients * most < 1 << HEAD_ROOM_BITS
    reach = max_clients * Fraction(block.bound) * Fraction(2) ** bits
    return bool(packing_squared(block) * reach * reach < 1 << (2 * HEAD_ROOM_BITS))


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
            f"block {block.name}: how far one patient can move it is not known, so no noise covers "
            "it: leave it out of private sums, or declare its sensitivity"
        )
    return block.sensitivity
