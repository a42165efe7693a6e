"""The size of what is sealed: a multiple of a step, so that it does not follow from the content.

    length (8 bytes, big-endian) ‖ content ‖ zeros, up to the next multiple of the step
    step = max(4096, the largest power of two ≤ (8 + length)/8)

Stored states have numbers in decimal digits, so their length depends on totals: three tables gave
2280, 2283 and 2274 bytes. In a box all of them have 4096. What the size still says is between which
two multiples the length is; from 64 kB on the step, and so what is added, is at most an eighth.
"""

from privacy.securesum.errors import UnreadableBox

_LENGTH_BYTES = 8
_LEAST_STEP = 4096


def padded(content: bytes) -> bytes:
    """Return what is sealed for a content."""
    return (len(content).to_bytes(_LENGTH_BYTES, "big") + content).ljust(_size(len(content)), b"\0")


def unpadded(data: bytes) -> bytes:
    """Return the content of what was sealed; refuse all but the one form that `padded` returns."""
    length = int.from_bytes(data[:_LENGTH_BYTES], "big")
    end = _LENGTH_BYTES + length
    if len(data) != _size(length) or data[end:] != bytes(len(data) - end):
        raise UnreadableBox("What was sealed is not padded as it must be.")
    return data[_LENGTH_BYTES:end]


def _size(length: int) -> int:
    """Return the size of a padded content of this length."""
    least = _LENGTH_BYTES + length
    step = max(_LEAST_STEP, 1 << (max(1, least // 8).bit_length() - 1))
    return -(-least // step) * step
