"""Shamir's sharing of a 32-byte key: any `threshold` shares give it, fewer say nothing about it.

The key is f(0) of a random polynomial f of degree `threshold` − 1 over the integers modulo the
Mersenne prime 2^521 − 1; the share at x is f(x). Any `threshold` points determine f; any fewer
leave f(0) uniform. Where a share belongs (x) is fixed by its receiver's place in the epoch and
never taken from a message.

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
    """Give the share at each of `points`; any `threshold` of them give the secret back."""
    if len(secret) != SECRET_BYTES:
        raise SharingError(f"A shared secret has {SECRET_BYTES} bytes.")
    if not 1 <= threshold <= len(points):
        raise SharingError(f"{len(points)} shares cannot have a threshold of {threshold}.")
    _check_points(points)
    # 521 random bits each; the only value out of range is PRIME itself, with chance 2^-521.
    noise = random(SHARE_BYTES * (threshold - 1))
    coefficients = [
        int.from_bytes(noise[i : i + SHARE_BYTES], "big") & PRIME
        for i in range(0, len(noise), SHARE_BYTES)
    ]
    coefficients.append(int.from_bytes(secret, "big"))
    return [_evaluate(coefficients, x).to_bytes(SHARE_BYTES, "big") for x in points]


def combine(shares: Mapping[int, bytes], weights: Mapping[int, int] | None = None) -> bytes:
    """Interpolate the secret from shares by their points; exactly as many as the threshold.

    `weights` are those of `weights_at_zero` for these points, to be made once for many secrets.

    Wrong shares give a wrong secret, or none that fits 32 bytes (`SharingError`): the caller
    checks the result against a commitment.
    """
    if weights is None:
        weights = weights_at_zero(tuple(shares))
    if weights.keys() != shares.keys():
        raise SharingError("The weights were made for other points than those of the shares.")
    total = sum(weights[x] * share_value(share) for x, share in shares.items()) % PRIME
    if total >= 1 << (8 * SECRET_BYTES):
        raise SharingError("These shares do not belong together: no 32-byte key fits them.")
    return total.to_bytes(SECRET_BYTES, "big")


def weights_at_zero(points: Sequence[int]) -> dict[int, int]:
    """Lagrange's weights at zero, the same for every secret that is shared at these points."""
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
    """Read a share, strictly: 66 bytes, below the prime."""
    value = int.from_bytes(share, "big")
    if len(share) != SHARE_BYTES or value >= PRIME:
        raise SharingError(f"A share has {SHARE_BYTES} bytes and is a number below 2^521 - 1.")
    return value


def _evaluate(coefficients: Sequence[int], x: int) -> int:
    """Horner's rule, highest coefficient first.

    Points are small: a number that grows by a few bits a step is cheaper than a division a step.
    """
    value = 0
    for coefficient in coefficients:
        value = value * x + coefficient
    return value % PRIME


def _check_points(points: Sequence[int]) -> None:
    if not points or min(points) < 1 or max(points) >= 2**16 or len(set(points)) != len(points):
        raise SharingError("The points of shares are distinct positive numbers below 2^16.")
