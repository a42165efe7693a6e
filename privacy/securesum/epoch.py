"""An epoch: a set of members that share pairwise secrets for many sums.

Advertise, agree, seal. Every member derives the epoch's identifier from all adverts, the roster and
the terms; members with different identifiers are in different epochs. The two members of each pair
seal 32 random bytes to each other. Both values together, in order of identity, give the pair seed
r_ij, from which masks are derived, and the channel key c_ij, under which shares are sent. No member
determines either of them alone. The same boxes carry the parts of the group key (group.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from privacy.errors import BadSignature
from privacy.framing import KEY_BYTES, Label, derive, digest, frame, mix
from privacy.identity import Identity, Roster, verify
from privacy.securesum.errors import (
    AdvertForAnotherEpoch,
    BadKemKey,
    ForgedAdvert,
    ForgedBox,
    MissingBox,
    NotOnRoster,
    OwnAdvertMissing,
    TooFewMembers,
    UnknownRank,
    Unpinned,
    UnreadableBox,
)
from privacy.securesum.group import Group, check_group_part, group_commitment, group_of
from privacy.securesum.messages import Advert, Adverts, Box, rank_bytes, slot_bytes
from privacy.securesum.sealing import private_key, seal, unseal
from privacy.securesum.terms import Terms
from privacy.securesum.wire import VERSION


@dataclass(frozen=True)
class Epoch:
    """The public facts of an epoch. Members are identities in ascending order; rank = index."""

    terms: Terms
    run: bytes
    number: int
    epoch_id: bytes
    members: tuple[bytes, ...]
    roster: bytes
    """The digest of the session's roster."""

    @property
    def size(self) -> int:
        """The number of members, n; it does not change."""
        return len(self.members)

    @cached_property
    def quorum(self) -> int:
        """The number of signatures that close a slot; also the threshold of shares."""
        return self.terms.quorum(self.size)

    @cached_property
    def everyone(self) -> tuple[int, ...]:
        """All ranks."""
        return tuple(range(self.size))

    def rank(self, identity: bytes) -> int:
        """Return the rank of a member."""
        return self.members.index(identity)

    def check_ranks(self, ranks: Sequence[int]) -> None:
        """Refuse ranks that no member of the epoch has; `ranks` must be ascending."""
        if ranks and ranks[-1] >= self.size:
            raise UnknownRank(
                f"Rank {ranks[-1]} is not a member: the epoch has {self.size} members."
            )


@dataclass(frozen=True, repr=False)
class PairSecrets:
    """What a member shares with one other member: the pair seed and the channel key."""

    seed: bytes
    channel: bytes


def epoch_from(terms: Terms, run: bytes, number: int, roster: Roster, adverts: Adverts) -> Epoch:
    """Return the epoch of a list of checked adverts."""
    epoch_id = digest(
        Label.EPOCH,
        bytes((VERSION,)),
        terms.encode(),
        run,
        slot_bytes(number),
        roster.digest(),
        adverts.encode(),
    )
    members = tuple(advert.identity for advert in adverts.adverts)
    return Epoch(terms, run, number, epoch_id, members, roster.digest())


def check_advert(advert: Advert, session: bytes, run: bytes, number: int, roster: Roster) -> None:
    """Refuse an advert that is not by a member of the roster, or not signed for this epoch."""
    if (advert.session, advert.run, advert.number) != (session, run, number):
        raise AdvertForAnotherEpoch(
            f"The advert is for another session or run, or for epoch {advert.number}; it is not "
            f"valid for epoch {number} of this run."
        )
    if advert.identity not in roster.keys:
        raise NotOnRoster("The advert's sender is not on the session's roster.")
    advert.check_signed_by(advert.identity, ForgedAdvert, "Advert")


def check_own_advert(own: bytes, adverts: Adverts) -> None:
    """Refuse a list of adverts without the client's own, exactly as it was sent."""
    if not any(advert.encode() == own for advert in adverts.adverts):
        raise OwnAdvertMissing("The epoch's list of adverts lacks this client's own advert.")


def check_pinned(members: Sequence[bytes], trusted: frozenset[bytes]) -> None:
    """Refuse an epoch with a member whose key was not confirmed out of band."""
    unpinned = sum(member not in trusted for member in members)
    if unpinned:
        raise Unpinned(
            f"{unpinned} of {len(members)} members have keys that this site has not confirmed. "
            "Every member of an epoch holds the group key, so each must be known. Compare "
            "fingerprints by phone and confirm them."
        )


def check_members(terms: Terms, members: Sequence[bytes]) -> None:
    """Refuse an epoch with fewer members than the least cohort."""
    if len(members) < terms.min_cohort:
        raise TooFewMembers(
            f"The epoch has {len(members)} members; at least {terms.min_cohort} are required."
        )


def seal_boxes(
    epoch: Epoch, identity: Identity, adverts: Adverts, seeds: Mapping[int, bytes], part: bytes
) -> tuple[Box, ...]:
    """Return this member's signed boxes: a seed and its part of the group key for each other."""
    own = epoch.rank(identity.key)
    committed = group_commitment(epoch.epoch_id, own, part)
    boxes = []
    for rank, seed in sorted(seeds.items()):
        try:
            sealed = seal(seed + part, adverts.adverts[rank].kem_key, _seal_info(epoch, own, rank))
        except BadKemKey as error:
            raise BadKemKey(f"Rank {rank}: {error}") from None
        draft = Box(own, rank, sealed, committed, bytes(64))
        signature = identity.sign(Label.BOX, *draft.statement(epoch.epoch_id))
        boxes.append(Box(own, rank, sealed, committed, signature))
    return tuple(boxes)


def check_box(epoch: Epoch, box: Box) -> None:
    """Refuse a box that its sender has not signed for this epoch and receiver."""
    try:
        verify(epoch.members[box.sender], box.signature, Label.BOX, *box.statement(epoch.epoch_id))
    except BadSignature as error:
        raise ForgedBox(f"The box from rank {box.sender} is not signed by it: {error}") from None


def open_boxes(
    epoch: Epoch,
    own: int,
    boxes: Sequence[Box],
    kem_secret: bytes,
    seeds: Mapping[int, bytes],
    part: bytes,
) -> tuple[dict[int, PairSecrets], Group]:
    """Open the boxes of all other members; return the pair secrets by rank, and the group key."""
    senders = [rank for rank in epoch.everyone if rank != own]
    if [(box.sender, box.receiver) for box in boxes] != [(rank, own) for rank in senders]:
        raise MissingBox("A delivery must have exactly one box from every other member, in order.")
    pairs, key = {}, private_key(kem_secret)
    parts, commitments = {own: part}, {own: group_commitment(epoch.epoch_id, own, part)}
    for box in boxes:
        check_box(epoch, box)
        try:
            content = unseal(box.sealed, key, _seal_info(epoch, box.sender, own))
        except UnreadableBox as error:
            raise UnreadableBox(f"Rank {box.sender}: {error}") from None
        theirs, parts[box.sender] = content[:KEY_BYTES], content[KEY_BYTES:]
        check_group_part(epoch.epoch_id, box.sender, parts[box.sender], box.commitment)
        commitments[box.sender] = box.commitment
        pairs[box.sender] = _pair(epoch, own, seeds[box.sender], box.sender, theirs)
    group = group_of(
        epoch.epoch_id,
        [parts[rank] for rank in epoch.everyone],
        [commitments[rank] for rank in epoch.everyone],
    )
    return pairs, group


def _pair(epoch: Epoch, own: int, mine: bytes, other: int, theirs: bytes) -> PairSecrets:
    both = mine + theirs if own < other else theirs + mine
    low, high = rank_bytes(min(own, other)), rank_bytes(max(own, other))
    seed = mix(both, Label.PAIR_SEED, epoch.epoch_id, low, high)
    return PairSecrets(seed, derive(seed, Label.CHANNEL, epoch.epoch_id, low, high))


def _seal_info(epoch: Epoch, sender: int, receiver: int) -> bytes:
    return frame(Label.SEAL, epoch.epoch_id, epoch.members[sender], epoch.members[receiver])
