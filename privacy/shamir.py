"""Shamir's secret sharing of a 32-byte key [Shamir79].

Any `threshold` shares determine the key; fewer reveal nothing about it. The key is f(0) of a random
polynomial f of degree `threshold` − 1 over the integers modulo the Mersenne prime 2^521 − 1; the
share at x is f(x). Any `threshold` points determine f; fewer leave f(0) uniform. The point x of a
share follows from its receiver's rank in the epoch and is never taken from a message.

>>> shares = split(b"k" * 32, threshold=2, points=[1, 2, 3], random=lambda n: b"7" * n)
>>> combine({1: shares[0], 3: shares[2]}) == b"k" * 32
True
"""

from collections.abc import Callable, Mapping, Sequence

from privacy.errors import SharingError

PRIME = 2**521 - 1
SECRET_BYTES = 32
SHARE_BYTES = 66


def split(
    secret: bytes, *, threshold: int, points: Sequence[int], random: Callable[[int], bytes]
) -> list[bytes]:
    """Return the share at each of `points`; any `threshold` of them determine the secret."""
    if len(secret) != SECRET_BYTES:
        raise SharingError(f"A shared secret must have {SECRET_BYTES} bytes, not {len(secret)}.")
    if not 1 <= threshold <= len(points):
        raise SharingError(
            f"The threshold must be from 1 to the number of shares, {len(points)}, not {threshold}."
        )
    _check_points(points)
    # 521 random bits each; the only value out of range is PRIME itself, with probability 2^-521.
    noise = random(SHARE_BYTES * (threshold - 1))
    coefficients = [
        int.from_bytes(noise[i : i + SHARE_BYTES], "big") & PRIME
        for i in range(0, len(noise), SHARE_BYTES)
    ]
    coefficients.append(int.from_bytes(secret, "big"))
    return [_evaluate(coefficients, x).to_bytes(SHARE_BYTES, "big") for x in points]


def combine(shares: Mapping[int, bytes], weights: Mapping[int, int] | None = None) -> bytes:
    """Return the secret, interpolated from shares by point; exactly as many as the threshold.

    `weights` is the result of `weights_at_zero` for these points, computed once for many secrets.

    Wrong shares give a wrong secret, or a number too large for 32 bytes (`SharingError`): the
    caller must check the result against a commitment.
    """
    if weights is None:
        weights = weights_at_zero(tuple(shares))
    if weights.keys() != shares.keys():
        raise SharingError("The weights must be for the same points as the shares.")
    total = sum(weights[x] * share_value(share) for x, share in shares.items()) % PRIME
    if total >= 1 << (8 * SECRET_BYTES):
        raise SharingError("These shares do not belong together: they give no 32-byte key.")
    return total.to_bytes(SECRET_BYTES, "big")


def weights_at_zero(points: Sequence[int]) -> dict[int, int]:
    """Return Lagrange's weights at zero, the same for every secret shared at these points."""
    _check_points(points)
    weights = {}
    for x in points:
        numerator, denominator = 1, 1
        for other in points:
            if other != x:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - x) % PRIME
        weights[x] = numerator * pow(denominator, -1, PRIME) % PRIME
    return weights


def share_value(share: bytes) -> int:
    """Return a share as a number; it must be 66 bytes and below the prime."""
    value = int.from_bytes(share, "big")
    if len(share) != SHARE_BYTES or value >= PRIME:
        raise SharingError(
            f"A share must be a number below 2^521 - 1 in {SHARE_BYTES} bytes; this one is not."
        )
    return value


def _evaluate(coefficients: Sequence[int], x: int) -> int:
    """Return the polynomial's value at x by Horner's rule, highest coefficient first.

    Points are small, so letting the number grow by a few bits per step is cheaper than reducing it
    modulo the prime at every step.
    """
    value = 0
    for coefficient in coefficients:
        value = value * x + coefficient
    return value % PRIME


def _check_points(points: Sequence[int]) -> None:
    if not points or min(points) < 1 or max(points) >= 2**16 or len(set(points)) != len(points):
        raise SharingError("The points of shares must be distinct integers from 1 to 2^16 - 1.")
