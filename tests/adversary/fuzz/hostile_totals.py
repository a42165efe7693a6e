"""Hostile totals: what a colluding member, who holds the group key, can pass off as a sum.

A total is a vector of signed integers below 2⁶⁰ that has valid tags. Every member replays the same
update from it. So what the updates make of it must be a state like any other, or a declared error.
"""

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privacy.encoding import Encoding

LIMIT = (1 << 60) - 1
Integers = NDArray[np.int64]


def damaged_total(
    honest: Integers, encoding: Encoding, members: int, chance: random.Random
) -> tuple[Integers, str]:
    """Change an honest total in one to three ways; return it, and what was done."""
    total, done = honest.copy(), []
    for _ in range(chance.choice((1, 1, 2, 3))):
        chosen = chance.randrange(len(encoding.layout.blocks))
        block, bits = encoding.layout.blocks[chosen], encoding.fractional_bits[chosen]
        start = encoding.layout.offset(block.name)
        part = total[start : start + block.length]
        most = min(LIMIT, int(members * block.bound * 2.0**bits))
        how = _damage(part, max(most, 1), chance) if len(part) else "no numbers"
        done.append(f"{block.name}: {how}")
    return np.clip(total, -LIMIT, LIMIT), "; ".join(done)


def _damage(part: Any, most: int, chance: random.Random) -> str:
    """Change a block in place, mostly within what members may sum to."""
    where = chance.randrange(len(part))
    size = min(LIMIT, max(1, most // chance.choice((1, 1, 2, 10**3, 10**6, 10**12))))
    match chance.randrange(9):
        case 0:
            part[:] = 0
            return "zero"
        case 1:
            part[:] = -part
            return "negative"
        case 2 | 3:
            part[where] = chance.choice((-size, size, 1, 0))
            return f"one element {part[where]} of {most}"
        case 4:
            part[:] = chance.choice((-size, size, LIMIT))
            return f"all {part[0]} of {most}"
        case 5:
            part[:] = np.clip(part.astype(float) * chance.choice((2, 1e3, 1e6)), -size, size)
            return f"larger, below {size}"
        case 6:
            part[:] = part // chance.choice((2, 1000, 10**6))
            return "smaller"
        case 7:
            part[:] = part[::-1].copy()
            return "reversed"
        case _:
            part[:] = [chance.randrange(-size, size + 1) for _ in range(len(part))]
            return f"random below {size} of {most}"
