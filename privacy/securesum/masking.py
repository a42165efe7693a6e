"""One client's part in a sum: the masked vector, the shares of its self key, and the mask keys.

    y_i = x_i + PRG(k_i) + Σ_{j>i} PRG(p_ij) − Σ_{j<i} PRG(p_ij)   over the active members j

with a fresh self key k_i and p_ij = HKDF(r_ij, context). In the sum over all active members the
pair masks cancel. The self masks are removed once their keys are revealed or recovered from shares.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from privacy.framing import Label, derive, digest
from privacy.identity import Identity, Randomness
from privacy.masks import apply_masks
from privacy.securesum.epoch import Epoch, PairSecrets
from privacy.securesum.errors import WrongBody, WrongVector
from privacy.securesum.messages import Task, Upload, rank_bytes
from privacy.shamir import split

CONSTANT = 1
"""Appended to every vector: its sum must be the number of survivors."""
_NONCE = bytes(12)
"""Every AES-GCM key here is derived for one message only."""


@dataclass(frozen=True)
class MaskedUpload:
    """A signed header, the masked vector to send with it, and the key that the client keeps."""

    header: Upload
    body: memoryview = field(repr=False)
    self_key: bytes = field(repr=False)


def make_upload(
    epoch: Epoch,
    identity: Identity,
    task: Task,
    context: bytes,
    vector: NDArray[np.uint64],
    pairs: Mapping[int, PairSecrets],
    random: Randomness,
) -> MaskedUpload:
    """Mask a vector of ring elements for one task, and share the key of its self mask."""
    check_vector(task, vector)
    own = epoch.rank(identity.key)
    others = tuple(rank for rank in task.active if rank != own)
    self_key = random(32)
    masked = np.empty(task.length + 1, dtype="<u8")
    masked[:-1] = vector
    masked[-1] = CONSTANT
    apply_masks(
        masked,
        add=[self_key, *(pair_key(pairs[j], context) for j in others if j > own)],
        subtract=[pair_key(pairs[j], context) for j in others if j < own],
    )
    body = memoryview(masked.data).cast("B").toreadonly()
    shares = split(
        self_key,
        threshold=epoch.quorum,
        points=[share_point(j) for j in task.active],
        random=random,
    )
    share_of = dict(zip(task.active, shares, strict=True))
    header = Upload.signed(
        identity,
        epoch_id=epoch.epoch_id,
        slot=task.slot,
        context=context,
        rank=own,
        commitment=commitment(self_key, context, own),
        receivers=others,
        sealed_shares=tuple(seal_share(share_of[j], pairs[j], context, own, j) for j in others),
        share_hashes=tuple(share_hash(share_of[j], context, own, j) for j in others),
    )
    return MaskedUpload(header, body, self_key)


def check_vector(task: Task, vector: NDArray[np.uint64]) -> None:
    """Refuse a vector whose type or length does not match the task."""
    if not isinstance(vector, np.ndarray) or vector.dtype != np.uint64 or vector.ndim != 1:
        raise WrongVector("The vector must be a one-dimensional numpy array of uint64.")
    if vector.size != task.length:
        raise WrongVector(
            f"The vector must have {task.length} elements, as the task says, not {vector.size}."
        )


def body_bytes(length: int) -> int:
    """Return the size in bytes of a masked vector of `length` elements and the constant."""
    return 8 * (length + 1)


def pair_key(pair: PairSecrets, context: bytes) -> bytes:
    """Return the key of a pair's mask in one sum."""
    return derive(pair.seed, Label.PAIR_MASK, context)


def commitment(self_key: bytes, context: bytes, rank: int) -> bytes:
    """Return the commitment to its self key that a client sends with its upload."""
    return digest(Label.COMMITMENT, context, rank_bytes(rank), self_key)


def check_commitment(self_key: bytes, context: bytes, rank: int, committed: bytes) -> bool:
    """Return whether a key is the one that was committed to."""
    return hmac.compare_digest(commitment(self_key, context, rank), committed)


def share_point(rank: int) -> int:
    """Return the point of a member's shares on the polynomial: its rank + 1."""
    return rank + 1


def share_hash(share: bytes, context: bytes, dealer: int, receiver: int) -> bytes:
    """Return the hash of a share that its dealer sends with its upload."""
    return digest(Label.SHARE_HASH, context, rank_bytes(dealer), rank_bytes(receiver), share)


def seal_share(
    share: bytes, pair: PairSecrets, context: bytes, dealer: int, receiver: int
) -> bytes:
    """Return a share encrypted to its receiver, under a key for this share alone."""
    return AESGCM(_share_key(pair, context, dealer, receiver)).encrypt(_NONCE, share, None)


def open_share(
    sealed: bytes, hashed: bytes, pair: PairSecrets, context: bytes, dealer: int, receiver: int
) -> bytes | None:
    """Return a decrypted share; None if it is not the one that its dealer declared."""
    try:
        share = AESGCM(_share_key(pair, context, dealer, receiver)).decrypt(_NONCE, sealed, None)
    except InvalidTag:
        return None
    declared = hmac.compare_digest(share_hash(share, context, dealer, receiver), hashed)
    return share if declared else None


def check_body(header: Upload, length: int, size: int) -> None:
    """Refuse a vector of another size than the task's.

    The header does not contain a hash of the vector. Hashing would cost the coordinator more than
    the sum itself, and would protect nothing that the transport does not: a member may send any
    vector anyway, the coordinator may change any total, and vectors under exchanged headers have
    the same sum.
    """
    if size != body_bytes(length):
        raise WrongBody(
            f"Rank {header.rank}: a vector of {length} elements and the constant must have "
            f"{body_bytes(length)} bytes, not {size}."
        )


def _share_key(pair: PairSecrets, context: bytes, dealer: int, receiver: int) -> bytes:
    return derive(pair.channel, Label.SHARE, context, rank_bytes(dealer), rank_bytes(receiver))
