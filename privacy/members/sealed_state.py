"""A state in a box, from the member that wrote a task to members whose own differs by rounding.

The key of the box is derived from the group key, the slot, the author's rank and a fresh salt: two
authors, or one after a crash, never share a keystream. The header is signed, so a member that seals
another state than it has announced is known by name. The state is padded before it is sealed: the
length of its digits follows from totals.
"""

import hashlib
import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from privacy.framing import Label, derive
from privacy.identity import Identity, Randomness
from privacy.members.padding import padded, unpadded
from privacy.securesum.epoch import Epoch
from privacy.securesum.errors import ForgedMessage, UnreadableBox, UnreadableState
from privacy.securesum.messages import SealedState, rank_bytes, slot_bytes

_NONCE = bytes(12)
"""Every key here is derived for one message only."""


def seal_state(
    epoch: Epoch, identity: Identity, group_key: bytes, slot: int, data: bytes, random: Randomness
) -> tuple[SealedState, bytes]:
    """Return a state in a box that only members of the epoch can open, and its signed header."""
    rank, salt = epoch.rank(identity.key), random(32)
    key = _state_key(epoch, group_key, slot, rank, salt)
    box = AESGCM(key).encrypt(_NONCE, padded(data), None)
    header = SealedState.signed(
        identity,
        epoch_id=epoch.epoch_id,
        slot=slot,
        rank=rank,
        salt=salt,
        box_hash=hashlib.sha256(box).digest(),
    )
    return header, box


def open_state(epoch: Epoch, group_key: bytes, header: SealedState, box: bytes) -> bytes:
    """Return the state in a box, if the member that it names has sealed it for this slot."""
    if header.epoch_id != epoch.epoch_id or header.rank >= epoch.size:
        raise UnreadableState("The sealed state is for another epoch.")
    who = f"Rank {header.rank}"
    try:
        header.check_signed_by(epoch.members[header.rank], ForgedMessage, who)
    except ForgedMessage as error:
        raise UnreadableState(f"The sealed state is not signed by its author: {error}") from None
    if not hmac.compare_digest(hashlib.sha256(box).digest(), header.box_hash):
        raise UnreadableState(f"{who} has sealed another state than the one that was sent.")
    key = _state_key(epoch, group_key, header.slot, header.rank, header.salt)
    try:
        return unpadded(AESGCM(key).decrypt(_NONCE, box, None))
    except (InvalidTag, UnreadableBox):
        raise UnreadableState(
            f"{who}: the state was sealed with another key, or is not padded as it must be."
        ) from None


def _state_key(epoch: Epoch, group_key: bytes, slot: int, rank: int, salt: bytes) -> bytes:
    return derive(
        group_key, Label.STATE_KEY, epoch.epoch_id, slot_bytes(slot), rank_bytes(rank), salt
    )
