"""The masks of a sum: PRG(key) is the AES-256-CTR keystream of the key, read as uint64.

The nonce is zero, because every key is used for one vector only (docs/protocol.md: a fresh key per
sum). The bytes are read as little-endian integers on every machine, and added to a vector modulo
2^64, the natural wrap-around of uint64.

The counter starts at two, so that this is also the keystream of AES-256-GCM with nonce zero:
OpenSSL's GCM is 1.5 times as fast as its CTR on processors with vector AES, although it also
computes a tag, which is discarded. CTR can start anywhere, so threads work on disjoint parts of
the vector and share nothing; OpenSSL and numpy release the interpreter lock while they work.

A keystream is never held as a whole. It is made block by block in one small buffer that stays in
the processor's cache, and added from there: a new allocation per key would cost five times as much
as the cipher itself.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from privacy.errors import MaskError

KEY_BYTES = 32

_ELEMENT_BYTES = 8
_ELEMENTS_PER_COUNTER = 2
_FIRST_COUNTER = 2
_NONCE = bytes(12)
_BLOCK = 1 << 14
"""Elements per block: 128 KiB, so that vector, keystream and zeros fit into a core's cache."""
_ZEROS = memoryview(bytes(_BLOCK * _ELEMENT_BYTES))
_WORTH_A_THREAD = 1 << 22
"""Elements of keystream (32 MiB, about 7 ms) below which a thread is not worth starting."""


def apply_masks(
    vector: NDArray[np.uint64],
    *,
    add: Sequence[bytes] = (),
    subtract: Sequence[bytes] = (),
    workers: int | None = None,
) -> None:
    """Add PRG(key) to `vector` in place for each key in `add`, and subtract it for `subtract`.

    `vector` must be one-dimensional, contiguous, writable and of type '<u8'. `workers` is the
    largest number of threads, by default the number of processors that this process may use. The
    result is the same for any number, and small amounts of work run in the caller's thread.

    >>> vector = np.arange(3, dtype="<u8")
    >>> apply_masks(vector, add=[bytes(32)])
    >>> vector
    array([7956559051536508878, 1773841811996233224, 8370685615964119156],
          dtype=uint64)
    >>> apply_masks(vector, subtract=[bytes(32)])
    >>> vector
    array([0, 1, 2], dtype=uint64)
    """
    _check(vector, add, subtract, workers)
    keys = len(add) + len(subtract)
    if vector.size == 0 or keys == 0:
        return
    usable = _processors() if workers is None else workers
    parts = max(1, min(usable, vector.size * keys // _WORTH_A_THREAD, vector.size // _BLOCK))
    if parts == 1:
        _mask_from(vector, 0, add, subtract)
        return
    length = -(-vector.size // (parts * _BLOCK)) * _BLOCK
    starts = range(0, vector.size, length)
    with ThreadPoolExecutor(max_workers=parts) as pool:
        for done in [
            pool.submit(_mask_from, vector[start : start + length], start, add, subtract)
            for start in starts
        ]:
            done.result()


def _mask_from(
    part: NDArray[np.uint64], start: int, add: Sequence[bytes], subtract: Sequence[bytes]
) -> None:
    """Mask the part of a vector that begins at element `start`, a multiple of two."""
    added = [keystream(key, start) for key in add]
    subtracted = [keystream(key, start) for key in subtract]
    buffer = bytearray(min(part.size, _BLOCK) * _ELEMENT_BYTES)
    numbers: NDArray[np.uint64] = np.frombuffer(buffer, dtype="<u8")
    for first in range(0, part.size, _BLOCK):
        block = part[first : first + _BLOCK]
        zeros, stream = _ZEROS[: block.nbytes], numbers[: block.size]
        for generator in added:
            generator.update_into(zeros, buffer)
            np.add(block, stream, out=block)
        for generator in subtracted:
            generator.update_into(zeros, buffer)
            np.subtract(block, stream, out=block)


def keystream(key: bytes, start: int = 0) -> CipherContext:
    """Return the keystream of a key from element `start` on, by GCM where it can be used."""
    mode: modes.CTR | modes.GCM
    if start == 0:
        mode = modes.GCM(_NONCE)
    else:
        counter = _FIRST_COUNTER + start // _ELEMENTS_PER_COUNTER
        mode = modes.CTR(counter.to_bytes(16, "big"))
    return Cipher(algorithms.AES256(key), mode).encryptor()


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


def _check(
    vector: NDArray[np.uint64],
    add: Sequence[bytes],
    subtract: Sequence[bytes],
    workers: int | None,
) -> None:
    if not isinstance(vector, np.ndarray) or vector.dtype != np.dtype("<u8"):
        raise MaskError("`vector` must be a numpy array of little-endian uint64 ('<u8')")
    if vector.ndim != 1 or not vector.flags.c_contiguous or not vector.flags.writeable:
        raise MaskError(
            "`vector` must be one-dimensional, contiguous and writable, because masks are added in "
            f"place; it has shape {vector.shape} and strides {vector.strides}"
        )
    for key in (*add, *subtract):
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            raise MaskError(f"a mask key must be {KEY_BYTES} bytes; derive it with HKDF")
    if workers is not None and workers < 1:
        raise MaskError(f"`workers` must be at least 1, or None for all processors, not {workers}")
