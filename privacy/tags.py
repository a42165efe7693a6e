"""Tags: what members add to a sum so that they notice if the coordinator changes the total.

Two primes p = 2³¹ − 1 and p' = 2³¹ − 19, four rows each. For a vector x of signed integers and the
row k with prime p_k, a member's tag is the residue

    t_k = r_k·(x, 1) = Σ_e r_ke·x_e + r_kL   mod p_k

with coefficients r that all members derive from the group key and the sum's context. Tags are
linear, so the tags of the members add up to r_k·(T, |U|) modulo p_k, where T is the total. A member
that is told T checks exactly this.

**Coefficients.** r_ke is the lower 31 bits of the little-endian 32-bit word 8e + k of the keystream
(masks.py) of a key for this sum and purpose. It is not reduced, so a residue has probability 2⁻³¹,
or 2⁻³⁰ for the residues 0 to 18 that two such numbers share.

**Soundness.** The coordinator knows T and the sums of the tags, τ_k = r_k·(T, |U|), and nothing
else about r. It wants other T', τ' that pass: r_k·(T' − T, 0) = τ'_k − τ_k for all k. Since |T| and
|T'| are below 2⁶⁰, the entries of e = T' − T are below 2⁶¹ < p·p', so an entry that is not zero is
not zero modulo one of the primes at least: that is why there are two, with one T + p would pass.
For that prime, (e, 0) and (T, |U|) are linearly independent, because 0 < |U| < p: that is why the
constant is under the tag, otherwise c·T with c·τ would pass. Hence for one row, solving for two
coefficients,

    P(r_k·(e, 0) = δ | r_k·(T, |U|) = τ_k) ≤ (2⁻³⁰)² / 2⁻³¹ = 2⁻²⁹,

and for the four rows of the prime at most 2⁻¹¹⁶ for each attempt, besides telling the keystream
from random bytes. x is taken *after* noise: a tag of the vector before noise would reveal more than
was charged. It is taken as *signed* integers, because 2⁶⁴ is not 0 modulo p.

**What the sum of tags shows.** Residues are added as integers by the secure sum, and how often that
sum passes p would depend on who contributed what. So members mask their residues modulo p first,
with pair masks that cancel, each within 2⁻⁹⁷ of uniform (`residue_masks`): then the integers of the
honest members are uniform among those with the same sum modulo p, whatever they contributed.

**Failure.** The coordinate `failed` is a residue modulo p, 0 or uniform among the others. It is
masked as tags are, and has eight tags of its own, r'_k·(failed, 1) modulo p, with other
coefficients. One failed site or several give the same distribution of the sum, up to 2⁻³¹.

**Speed.** The rows are one product of float64 matrices, block by block: 16-bit halves of the
coefficients times 16-bit quarters of the integers. Every sum in it is an integer below 2⁵³, so
float64 is exact, on any BLAS and in any order.
"""

import numpy as np
from numpy.typing import NDArray

from privacy.masks import keystream

PRIMES = (2**31 - 1, 2**31 - 19)
ROWS = 8
DATA_PRIMES = (PRIMES[0],) * 4 + (PRIMES[1],) * 4
FAILED_PRIMES = (PRIMES[0],) * ROWS
RESIDUE_PRIMES = (PRIMES[0], *DATA_PRIMES, *FAILED_PRIMES)
"""The moduli of the residues in a vector: `failed`, the data tags, the tags of `failed`."""
BOUND = 1 << 60
"""Totals and forged totals are below this in absolute value."""

_HALVES = 2 * ROWS
_QUARTERS = 4
_COEFFICIENT_BYTES = 4 * ROWS
_BLOCK = 1 << 12
"""Elements per block: the float64 halves take 512 KiB and stay in a core's cache."""
_LOWER_31 = np.uint64(0x7FFFFFFF_7FFFFFFF)
_MODULI = np.array(RESIDUE_PRIMES, dtype=np.uint64)
_TWO_64 = np.array([2**64 % prime for prime in RESIDUE_PRIMES], dtype=np.uint64)


def data_tags(key: bytes, values: NDArray[np.int64], constant: int) -> tuple[int, ...]:
    """Return the eight residues r·(values, constant); `values` is contiguous, of type '<i8'.

    >>> values = np.array([5, -3], dtype="<i8")
    >>> one, two = data_tags(bytes(32), values, 1), data_tags(bytes(32), 2 * values, 2)
    >>> all((a + a - b) % p == 0 for a, b, p in zip(one, two, DATA_PRIMES))
    True
    """
    stream = keystream(key)
    products = np.zeros((_HALVES, _QUARTERS), dtype=np.int64)
    size = min(values.size, _BLOCK)
    halves, quarters = np.empty((size, _HALVES)), np.empty((size, _QUARTERS))
    buffer = bytearray(size * _COEFFICIENT_BYTES)
    pairs, words = np.frombuffer(buffer, "<u8"), np.frombuffer(buffer, "<u2")
    zeros = memoryview(bytes(len(buffer)))
    for start in range(0, values.size, _BLOCK):
        block = values[start : start + _BLOCK]
        n = block.size
        stream.update_into(zeros[: n * _COEFFICIENT_BYTES], buffer)
        np.bitwise_and(pairs[: n * 4], _LOWER_31, out=pairs[: n * 4])
        halves[:n] = words[: n * _HALVES].reshape(n, _HALVES)
        quarters[:n] = block.view("<u2").reshape(n, _QUARTERS)
        quarters[:n, -1] = block.view("<i2")[_QUARTERS - 1 :: _QUARTERS]  # the quarter with a sign
        products += (halves[:n].T @ quarters[:n]).astype(np.int64)
    last = _coefficients(stream.update(bytes(_COEFFICIENT_BYTES)))
    return tuple(
        (_whole(products[2 * k]) + (_whole(products[2 * k + 1]) << 16) + last[k] * constant) % prime
        for k, prime in enumerate(DATA_PRIMES)
    )


def failed_tags(key: bytes, failed: int, constant: int) -> tuple[int, ...]:
    """Return the eight residues r'·(failed, constant)."""
    stream = keystream(key)
    first = _coefficients(stream.update(bytes(_COEFFICIENT_BYTES)))
    second = _coefficients(stream.update(bytes(_COEFFICIENT_BYTES)))
    return tuple(
        (a * failed + b * constant) % prime
        for a, b, prime in zip(first, second, FAILED_PRIMES, strict=True)
    )


def residue_masks(key: bytes) -> NDArray[np.int64]:
    """Return a pair's masks, one residue for each prime of `RESIDUE_PRIMES`.

    Each is a 128-bit number of the keystream, lower half first, modulo its prime.
    """
    words = np.frombuffer(keystream(key).update(bytes(16 * _MODULI.size)), "<u8").reshape(-1, 2)
    return reduced(words[:, 0], words[:, 1])


def reduced(lower: NDArray[np.uint64], upper: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return (upper·2⁶⁴ + lower) modulo the primes of `RESIDUE_PRIMES`."""
    residues = (upper % _MODULI * _TWO_64 + lower % _MODULI) % _MODULI
    return residues.astype(np.int64)


def _coefficients(data: bytes) -> list[int]:
    return [int(word) & 0x7FFFFFFF for word in np.frombuffer(data, "<u4")]


def _whole(quarters: NDArray[np.int64]) -> int:
    """Return the number that has these quarters of 16 bits, which may be longer and negative."""
    return sum(int(quarter) << (16 * place) for place, quarter in enumerate(quarters))
