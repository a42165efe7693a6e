"""The lower limit of any pairwise-masked sum: only its keystream bytes and its additions.

Both are measured without overhead, separately, in one thread, between the measurements that they
are compared with: AES-256-CTR into one buffer that stays in the cache, and numpy's addition of one
vector to another, neither of them newly allocated. The code that we compare with them does both in
one pass, and everything else that a secure sum needs.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

BUFFER_BYTES = 1 << 18


@dataclass(frozen=True)
class Limit:
    """CPU seconds per vector of one length: its keystream from one key, and one addition."""

    keystream_s: float
    addition_s: float

    def client(self, members: int) -> float:
        """Return a client's limit: a keystream per other member and one for itself, each added."""
        return members * (self.keystream_s + self.addition_s)

    def coordinator(self, members: int, dropped: int) -> float:
        """Return the limit of the coordinator.

        It adds each upload, and removes each survivor's self mask and its masks with the dropped
        members.
        """
        survivors = members - dropped
        masks = survivors * (1 + dropped)
        return masks * (self.keystream_s + self.addition_s) + survivors * self.addition_s


class Probe:
    """Samples the limit for vectors of one length; the median of its samples is the limit."""

    def __init__(self, length: int) -> None:
        self._bytes = 8 * length
        self._calls = max(3, 100_000 // length)
        self._zeros = memoryview(bytes(BUFFER_BYTES))
        self._buffer = bytearray(BUFFER_BYTES)
        self._total, self._mask = np.zeros(length, "<u8"), np.ones(length, "<u8")
        self._samples: list[tuple[float, float]] = []

    def sample(self) -> None:
        """Take one sample of the keystream and one of the addition."""
        self._samples.append((self._cpu_s(self._keystream), self._cpu_s(self._addition)))

    def limit(self) -> Limit:
        """Return the median of the samples so far."""
        keystream_s, addition_s = np.median(self._samples, axis=0)
        return Limit(float(keystream_s), float(addition_s))

    def _keystream(self) -> None:
        key = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
        for start in range(0, self._bytes, BUFFER_BYTES):
            key.update_into(self._zeros[: self._bytes - start], self._buffer)

    def _addition(self) -> None:
        np.add(self._total, self._mask, out=self._total)

    def _cpu_s(self, work: Callable[[], None]) -> float:
        work()  # warms the caches: a limit is measured with warm caches
        start = time.process_time()
        for _ in range(self._calls):
            work()
        return (time.process_time() - start) / self._calls
