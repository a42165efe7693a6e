"""Blind sums: what members add under the group key so that the coordinator cannot read totals.

Every member of an epoch has the group key K (privacy/securesum/group.py); the coordinator has not.

**Totals.** Without differential privacy every active member is in the sum, so one of them, the one
of lowest rank, can add a pad for all:

    B = PRG(HKDF(K, context))     to the data, modulo 2⁶⁴
    B' (residue_masks)            to `failed` and to all tags, modulo their primes

The pad has a key of its own for every context. A slot is answered once, and a repeated sum has
another slot or another epoch, so no pad is ever used twice. The constant is not blinded: the
coordinator can still tell that masks do not cancel. What it unmasks is uniform, and it relays that;
members remove the pad, and then verify the tags as in open runs. A site that fails adds the pad as
well: the coordinator does not learn that it failed, and members do.

**States.** A task names the state by

    HMAC(HKDF(K, epoch, slot), state digest ‖ encoding digest)

because an unkeyed digest could be compared with the digests of guesses: the number of rows is found
in milliseconds. A state itself travels only in a box (privacy/members/sealed_state.py).

With a member that colludes none of this holds: it has K. What rests on pair masks holds as before.
"""

import hashlib
import hmac

import numpy as np
from numpy.typing import NDArray

from privacy.framing import Label, derive
from privacy.masks import apply_masks
from privacy.tags import RESIDUE_PRIMES, residue_masks


def blind(data: NDArray[np.uint64], group_key: bytes, context: bytes) -> None:
    """Add a sum's pad to a vector's data, in place."""
    apply_masks(data, add=[_pad_key(group_key, context)])


def unblind(data: NDArray[np.uint64], group_key: bytes, context: bytes) -> None:
    """Remove a sum's pad from a total's data, in place."""
    apply_masks(data, subtract=[_pad_key(group_key, context)])


def blind_residues(group_key: bytes, context: bytes) -> NDArray[np.int64]:
    """Return a sum's pad for `failed` and the tags: one residue for each prime."""
    return residue_masks(derive(group_key, Label.BLIND_TAGS, context))


def unblinded_residues(
    residues: tuple[int, ...], group_key: bytes, context: bytes
) -> tuple[int, ...]:
    """Return `failed` and the tags of a total without their pad."""
    pads = blind_residues(group_key, context).tolist()
    return tuple(
        (residue - pad) % prime
        for residue, pad, prime in zip(residues, pads, RESIDUE_PRIMES, strict=True)
    )


def state_value(
    group_key: bytes, epoch_id: bytes, slot: int, *, state: bytes, encoding: bytes
) -> bytes:
    """Return what a blind task says about the digests of its state and its encoding."""
    key = derive(group_key, Label.STATE_VALUE, epoch_id, slot.to_bytes(4, "big"))
    return hmac.digest(key, state + encoding, hashlib.sha256)


def _pad_key(group_key: bytes, context: bytes) -> bytes:
    return derive(group_key, Label.BLIND, context)
