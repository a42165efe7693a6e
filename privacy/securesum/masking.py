"""One client's part in a sum: the masked vector, the shares of its self key, and the mask keys.

    y_i = z_i + PRG(k_i) + Σ_{j>i} PRG(p_ij) − Σ_{j<i} PRG(p_ij)   over the active members j

with a fresh self key k_i and p_ij derived from the pair's key of this sum, HKDF(r_ij, context). In
the sum over all active members the pair masks cancel. The self masks are removed once their keys
are revealed or recovered from shares. z_i has L + 18 coordinates:

    x_i (L)   failed   1   tags of x_i (8)   tags of failed (8)

The sum of the constant 1 must be the number of survivors. `failed` and the tags are residues, and
are masked modulo their primes first (privacy/tags.py). With blind sums the active member of lowest
rank adds the sum's pad (privacy/blinding.py) to all of them but the constant. A site that could not
compute its vector sends random numbers and random tags instead, and a random `failed`: the total is
then noise. It computes tags as any other: how long an upload takes must not tell who failed.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from privacy.blinding import blind, blind_residues
from privacy.framing import Label, derive, digest
from privacy.identity import Identity, Randomness
from privacy.masks import apply_masks
from privacy.securesum.epoch import Epoch, PairSecrets
from privacy.securesum.errors import WrongBody, WrongVector
from privacy.securesum.messages import Task, Upload, rank_bytes
from privacy.shamir import split
from privacy.tags import (
    DATA_PRIMES,
    PRIMES,
    RESIDUE_PRIMES,
    ROWS,
    data_tags,
    failed_tags,
    residue_masks,
)

CONSTANT = 1
"""Part of every vector: its sum must be the number of survivors."""
EXTRA = 2 + 2 * ROWS
"""Coordinates beside the data: `failed`, the constant and the tags."""
_MODULI = np.array(RESIDUE_PRIMES, dtype=np.int64)
_NONCE = bytes(12)
"""Every AES-GCM key here is derived for one message only."""


@dataclass(frozen=True)
class MaskedUpload:
    """A signed header, the masked vector to send with it, and the key that the client keeps."""

    header: Upload
    body: memoryview = field(repr=False)
    self_key: bytes = field(repr=False)


@dataclass(frozen=True, repr=False)
class FailedVector:
    """What a site sends that could not compute its vector: random ring elements."""

    elements: NDArray[np.uint64]

    @classmethod
    def drawn(cls, length: int, random: Randomness) -> "FailedVector":
        """Draw the elements. This takes time, so a site does it before it waits to answer."""
        return cls(np.frombuffer(random(8 * length), dtype="<u8"))


def make_upload(
    epoch: Epoch,
    identity: Identity,
    task: Task,
    context: bytes,
    vector: NDArray[np.uint64] | FailedVector,
    pairs: Mapping[int, PairSecrets],
    group_key: bytes,
    random: Randomness,
) -> MaskedUpload:
    """Mask a vector of ring elements for one task, and share the key of its self mask."""
    elements = vector.elements if isinstance(vector, FailedVector) else vector
    check_vector(task, elements)
    own = epoch.rank(identity.key)
    others = tuple(rank for rank in task.active if rank != own)
    keys = {rank: pair_key(pairs[rank], context) for rank in others}
    self_key = random(32)
    masked = np.empty(task.length + EXTRA, dtype="<u8")
    masked[: task.length] = elements
    failed, values = 0, masked[: task.length].view("<i8")
    tags = data_tags(tag_key(group_key, context), values, CONSTANT)
    if isinstance(vector, FailedVector):
        failed, tags = _failure(random)
    tags += failed_tags(failed_tag_key(group_key, context), failed, CONSTANT)
    residues = np.array((failed, *tags), dtype=np.int64)
    for rank, key in keys.items():
        residues += residue_masks(tag_mask_key(key)) * (1 if rank > own else -1)
    if epoch.terms.blind and own == task.active[0]:
        blind(masked[: task.length], group_key, context)
        residues += blind_residues(group_key, context)
    residues %= _MODULI
    masked[task.length] = residues[0]
    masked[task.length + 1] = CONSTANT
    masked[task.length + 2 :] = residues[1:]
    apply_masks(
        masked,
        add=[self_key, *(mask_key(key) for rank, key in keys.items() if rank > own)],
        subtract=[mask_key(key) for rank, key in keys.items() if rank < own],
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
    """Return the size in bytes of a masked vector of `length` elements."""
    return 8 * (length + EXTRA)


def pair_key(pair: PairSecrets, context: bytes) -> bytes:
    """Return a pair's key of one sum: what is revealed if one of the two drops out."""
    return derive(pair.seed, Label.PAIR_SUM, context)


def mask_key(pair_key: bytes) -> bytes:
    """Return the key of a pair's mask of all coordinates, in the ring."""
    return derive(pair_key, Label.PAIR_MASK)


def tag_mask_key(pair_key: bytes) -> bytes:
    """Return the key of a pair's masks of residues, modulo their primes."""
    return derive(pair_key, Label.TAG_MASK)


def tag_key(group_key: bytes, context: bytes) -> bytes:
    """Return the key of the coefficients of the data tags of one sum."""
    return derive(group_key, Label.TAG, context)


def failed_tag_key(group_key: bytes, context: bytes) -> bytes:
    """Return the key of the coefficients of the tags of `failed` of one sum."""
    return derive(group_key, Label.FAILED_TAG, context)


def _failure(random: Randomness) -> tuple[int, tuple[int, ...]]:
    """Return a value of `failed` that is not zero, and random residues as data tags."""
    failed = 1 + int.from_bytes(random(16), "big") % (PRIMES[0] - 1)
    return failed, tuple(int.from_bytes(random(16), "big") % prime for prime in DATA_PRIMES)


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
            f"Rank {header.rank}: a vector of {length} elements with its constant and tags must "
            f"have {body_bytes(length)} bytes, not {size}."
        )


def _share_key(pair: PairSecrets, context: bytes, dealer: int, receiver: int) -> bytes:
    return derive(pair.channel, Label.SHARE, context, rank_bytes(dealer), rank_bytes(receiver))
