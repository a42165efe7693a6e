"""The group key K of an epoch: every member knows it, and the coordinator does not.

Member i draws g_i, 32 random bytes, and seals the same g_i to every other member, beside the seed
of their pair. A commitment to g_i is part of each signed box statement, so a g_i that does not open
its commitment is refused, and the sender is named. Then

    commitments = H(c_1, …, c_n)        c_i = H(epoch, i, g_i), in order of rank
    K           = HKDF(g_1 ‖ … ‖ g_n; epoch, commitments)

`commitments` is part of the context of every sum. A member i that sends different g_i to different
members has to send different c_i as well; these members then have different contexts, and their
masks do not cancel. So members whose vectors can be added up have the same K.

**What K protects against.** K is as secret as its least careful holder: a member that colludes with
the coordinator gives K away, and with it everything that rests on K (verified totals). What rests
on the pair masks alone tolerates m colluders as before. Every member of an epoch is pinned for this
reason: an unpinned one could be the coordinator's invention, which would then have K.
"""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from privacy.framing import Label, digest, mix
from privacy.securesum.errors import WrongGroupPart
from privacy.securesum.messages import rank_bytes


@dataclass(frozen=True, repr=False)
class Group:
    """What every member of an epoch shares: the key K, and the hash of all commitments."""

    key: bytes
    commitments: bytes


def group_commitment(epoch_id: bytes, rank: int, part: bytes) -> bytes:
    """Return c_i, a member's commitment to its part of the group key."""
    return digest(Label.GROUP_COMMITMENT, epoch_id, rank_bytes(rank), part)


def check_group_part(epoch_id: bytes, rank: int, part: bytes, committed: bytes) -> None:
    """Refuse a part of the group key other than the one that its sender has committed to."""
    if not hmac.compare_digest(group_commitment(epoch_id, rank, part), committed):
        raise WrongGroupPart(
            f"Rank {rank}: its part of the group key is not the one that it has committed to."
        )


def commitments_hash(commitments: Sequence[bytes]) -> bytes:
    """Return the hash of all members' commitments, in order of rank."""
    return digest(Label.GROUP_COMMITMENTS, *commitments)


def group_of(epoch_id: bytes, parts: Sequence[bytes], commitments: Sequence[bytes]) -> Group:
    """Return the group key of all members' parts and commitments, in order of rank."""
    hashed = commitments_hash(commitments)
    return Group(mix(b"".join(parts), Label.GROUP, epoch_id, hashed), hashed)
