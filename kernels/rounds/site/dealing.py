"""How a site's rows are dealt: to parts, to folds, and which rows of a patient are kept.

Each decision is a function of 32 secret bytes of the site and of the row's key (the patient's hash,
or the hash of the row's content if the schema names no patient). It never depends on the row's
position, on other rows, or on anything that the coordinator sends. With a seed of the coordinator's
the part of every known patient could be computed, and a seed searched for under which a part is
empty unless one patient is in it. Without the secret, every decision is an independent random draw.

Each draw is 64 bits of BLAKE2b, keyed with the secret [RFC7693], personalised with its purpose: a
part says nothing about a fold. Sites with the same `Dealing` deal a row alike, however rows are
divided among them.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kernels.errors import DealingError
from kernels.tables.row_hashes import words

SECRET_BYTES = 32

_PART, _FOLD, _KEPT = b"veilgp/part/1", b"veilgp/fold/1", b"veilgp/kept/1"
_COMMITMENT = b"veilgp/dealt/1"


@dataclass(frozen=True)
class Dealing:
    """The secret by which a site's rows are dealt; `repr` does not show it.

    >>> Dealing(bytes(32))
    Dealing(commitment 9f6d353e…)
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if type(self.secret) is not bytes or len(self.secret) != SECRET_BYTES:
            raise DealingError(
                f"the secret of a dealing must be {SECRET_BYTES} random bytes: "
                "use Dealing.generate()"
            )

    @classmethod
    def generate(cls, random: Callable[[int], bytes] = os.urandom) -> "Dealing":
        """Return a dealing with a new secret."""
        return cls(random(SECRET_BYTES))

    @property
    def commitment(self) -> bytes:
        """32 bytes that identify the secret and do not reveal it."""
        return hashlib.blake2b(self.secret, digest_size=32, person=_COMMITMENT).digest()

    def parts(self, keys: Sequence[bytes], *, held_out: float) -> NDArray[np.uint8]:
        """Return each row's part, (n,): 0 training, 1 stopping, 2 calibration.

        held_out: the share held out, half for stopping and half for calibration.
        """
        draw = (self._drawn(keys, _PART) >> np.uint64(11)) * 2.0**-53
        return np.where(draw >= held_out, 0, np.where(draw < held_out / 2, 1, 2)).astype(np.uint8)

    def folds(self, keys: Sequence[bytes], count: int) -> NDArray[np.int64]:
        """Return each row's fold, (n,), from 0 to count − 1."""
        return (self._drawn(keys, _FOLD) % np.uint64(count)).astype(np.int64)

    def kept(
        self, keys: Sequence[bytes], hashes: Sequence[bytes], *, most: int
    ) -> NDArray[np.bool_]:
        """Return which rows stay, (n,): at most `most` per key, chosen by their keyed hashes.

        Which of a patient's rows stay depends on that patient's rows and the secret alone, so
        adding or removing a patient changes only that patient's own part of a sum. Equal rows of a
        patient are interchangeable.

        >>> patients, rows = [b"a" * 32, b"b" * 32, b"a" * 32], [bytes([i]) * 32 for i in range(3)]
        >>> int(Dealing(bytes(32)).kept(patients, rows, most=1).sum())
        2
        """
        if not keys:
            return np.zeros(0, dtype=np.bool_)
        patients, contents = words(keys), words(hashes)
        order = np.lexsort((*contents.T, self._drawn(hashes, _KEPT), *patients.T))
        ordered = patients[order]
        begins = np.ones(len(keys), dtype=np.bool_)
        begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        positions = np.arange(len(keys))
        place = positions - np.maximum.accumulate(np.where(begins, positions, 0))
        kept = np.empty(len(keys), dtype=np.bool_)
        kept[order] = place < most
        return kept

    def _drawn(self, keys: Sequence[bytes], purpose: bytes) -> NDArray[np.uint64]:
        keyed = hashlib.blake2b(key=self.secret, digest_size=8, person=purpose)
        drawn = []
        for key in keys:
            own = keyed.copy()
            own.update(key)
            drawn.append(own.digest())
        return np.frombuffer(b"".join(drawn), dtype="<u8")

    def __repr__(self) -> str:
        return f"Dealing(commitment {self.commitment.hex()[:8]}…)"
