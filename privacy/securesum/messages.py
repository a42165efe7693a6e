"""The messages between coordinator and clients, in the order in which they are sent.

    epoch    Opening →   ← Advert   Adverts →   ← Boxes   Delivery →
    sum      (blind: AuthorRequest →   ← Draft)
             Task →   ← Upload and its vector   Proposal →   ← Certification   Certificate →
             ← Reveal   RepairRequest →   ← Repair
             Total and its vector →
             (if a member's own state differs: SealedState and its box, or ← Objection)
    instead  AbandonRequest →   ← Abandonment   AbandonProof →

(→ to the clients.) Every message of a member is signed under its own label, except `Reveal`, whose
key is checked against a signed commitment. The coordinator signs nothing: clients trust only what
members have signed, and what all members hash to the same value.
Members are named by rank, their index among the epoch's adverts sorted by identity.
"""

import itertools
from dataclasses import dataclass, field
from typing import Annotated

from privacy.framing import DIGEST_BYTES, KEY_BYTES, Label, digest
from privacy.identity import MAX_MEMBERS
from privacy.securesum.errors import BadField, NotAscending
from privacy.securesum.sealing import BOX_BYTES, KEM_KEY_BYTES
from privacy.securesum.terms import Terms
from privacy.securesum.wire import (
    Blob,
    Counter,
    Digest,
    Fixed,
    Key,
    Keys,
    Many,
    Message,
    One,
    Rank,
    RankSet,
    Rows,
    Signature,
    Signatures,
    SignedMessage,
    Text,
    Uint,
    Uuid,
)
from privacy.shamir import SHARE_BYTES
from privacy.tags import ROWS

SEALED_SHARE_BYTES = SHARE_BYTES + 16
MAX_PROOF_BYTES = 1 << 16
NO_ARCHIVE = bytes(KEM_KEY_BYTES)
"""In place of the archive key of a member that takes no model that is for members only."""
UNNAMED = bytes(DIGEST_BYTES)
"""The digest in a task whose vectors come from no state, or are not encoded."""


@dataclass(frozen=True)
class Opening(Message):
    """The coordinator opens an epoch of a run.

    `seen` lists who has advertised in the session before, so that a member that has lost its
    journal notices it instead of starting again.
    """

    kind = 2

    terms: Annotated[Terms, One(Terms)]
    run: Uuid
    number: Counter
    seen: Keys


@dataclass(frozen=True)
class Advert(SignedMessage):
    """A member takes part, with a fresh key to seal to, in this epoch and no other.

    `archive_key` is for the finished model, if that is for members only
    (privacy/members/archive.py): it lives as long as the member's home. `software` names the
    versions of its libraries. It is logged, and nothing depends on it.
    """

    kind = 3
    label = Label.ADVERT

    session: Uuid
    run: Uuid
    number: Counter
    identity: Key
    kem_key: Annotated[bytes, Fixed(KEM_KEY_BYTES)]
    archive_key: Annotated[bytes, Fixed(KEM_KEY_BYTES)]
    software: Annotated[str, Text(200)]
    signature: Signature


@dataclass(frozen=True)
class Adverts(Message):
    """All adverts of an epoch, ascending by identity: the index is the rank."""

    kind = 4

    adverts: Annotated[tuple[Advert, ...], Many(Advert, MAX_MEMBERS)]

    def check(self) -> None:
        """Refuse a member listed twice, or out of order."""
        members = [advert.identity for advert in self.adverts]
        if any(a >= b for a, b in itertools.pairwise(members)):
            raise NotAscending("adverts must be unique and in ascending order of identity")


@dataclass(frozen=True)
class Box(Message):
    """The pair's seed and the sender's part of the group key, sealed by one member to another.

    The sender's signature names both, and its commitment to its part of the group key.
    """

    kind = 5

    sender: Rank
    receiver: Rank
    sealed: Annotated[bytes, Fixed(BOX_BYTES)]
    commitment: Digest
    signature: Signature

    def statement(self, epoch_id: bytes) -> tuple[bytes, ...]:
        """Return what the sender signs under `Label.BOX`."""
        return (
            epoch_id,
            rank_bytes(self.sender),
            rank_bytes(self.receiver),
            digest(Label.BOX_HASH, self.sealed),
            self.commitment,
        )


@dataclass(frozen=True)
class Boxes(SignedMessage):
    """A member's boxes to all other members; also signed as a whole, for the coordinator."""

    kind = 6
    label = Label.BOXES

    epoch_id: Digest
    sender: Rank
    boxes: Annotated[tuple[Box, ...], Many(Box, MAX_MEMBERS)]
    signature: Signature


@dataclass(frozen=True)
class Delivery(Message):
    """The boxes of all other members to one member."""

    kind = 7

    epoch_id: Digest
    receiver: Rank
    boxes: Annotated[tuple[Box, ...], Many(Box, MAX_MEMBERS)]


@dataclass(frozen=True)
class SumName(Message):
    """A sum of a run: the number of its epoch, and its slot."""

    kind = 22

    number: Counter
    slot: Counter


Applied = Annotated[tuple[SumName, ...], Many(SumName, 1)]
"""The sum whose total led to a state; none at the start of a run, or if that sum was lost."""


@dataclass(frozen=True)
class AuthorRequest(Message):
    """The coordinator of blind sums requests the next task; the proof closes the previous slot."""

    kind = 23

    epoch_id: Digest
    slot: Counter
    proof: Annotated[bytes, Blob(MAX_PROOF_BYTES)]


@dataclass(frozen=True)
class Draft(SignedMessage):
    """A member's word on what the next sum is: the task without who takes part.

    `state` is a keyed value of the digests of state and encoding (privacy/blinding.py): it tells
    members whether they hold the same, and the coordinator nothing.
    """

    kind = 24
    label = Label.DRAFT

    epoch_id: Digest
    slot: Counter
    statistic: Annotated[str, Text(200)]
    parameters: Annotated[bytes, Blob(1 << 20)]
    state: Digest
    length: Annotated[int, Uint(6)]
    applied: Applied
    rank: Rank
    signature: Signature


@dataclass(frozen=True)
class Task(Message):
    """What to sum in slot `slot`, over which members; and the proof that the last slot is closed.

    `state` is the digest of the state that every member computes its vector from, and `encoding`
    that of the encoding: each member derives both itself, and neither is sent. With blind sums one
    of the members has written the task, and signed it: `state` is then a keyed value of both
    digests, and `encoding` is not named.

    Everything except the proof is hashed into the context of every mask, so clients that were sent
    different tasks use masks that do not cancel. So do clients that hold different group keys: the
    hash of the epoch's commitments is hashed, too.
    """

    kind = 8

    epoch_id: Digest
    slot: Counter
    statistic: Annotated[str, Text(200)]
    parameters: Annotated[bytes, Blob(1 << 20)]
    state: Digest
    encoding: Digest
    length: Annotated[int, Uint(6)]
    active: RankSet
    proof: Annotated[bytes, Blob(MAX_PROOF_BYTES)]
    applied: Applied = ()
    authors: RankSet = ()
    authored: Signatures = ()

    def check(self) -> None:
        """Refuse more than one author, or an author without a signature."""
        if not len(self.authors) == len(self.authored) <= 1:
            raise BadField("a task has one author with one signature, or none")

    @property
    def draft(self) -> Draft | None:
        """What the task's author has signed, if a member has written it."""
        for rank, signature in zip(self.authors, self.authored, strict=True):
            return Draft(
                epoch_id=self.epoch_id,
                slot=self.slot,
                statistic=self.statistic,
                parameters=self.parameters,
                state=self.state,
                length=self.length,
                applied=self.applied,
                rank=rank,
                signature=signature,
            )
        return None

    def context(self, commitments: bytes) -> bytes:
        """Return the hash to which every mask, share and statement of this sum is bound.

        commitments: the hash of all commitments to the group key, from the holder's own memory.
        """
        return digest(Label.CONTEXT, commitments, self.fields_encoded(but="proof"))


@dataclass(frozen=True)
class Upload(SignedMessage):
    """The signed header of a masked vector, which is sent next to it.

    `receivers` are the active members without the sender; the j-th sealed share is for the j-th of
    them. `share_hashes` distinguish a bad dealer of a share from a bad returner.
    """

    kind = 9
    label = Label.UPLOAD

    epoch_id: Digest
    slot: Counter
    context: Digest
    rank: Rank
    commitment: Digest
    receivers: RankSet
    sealed_shares: Annotated[tuple[bytes, ...], Rows(SEALED_SHARE_BYTES)]
    share_hashes: Annotated[tuple[bytes, ...], Rows(DIGEST_BYTES)]
    signature: Signature

    def check(self) -> None:
        """Refuse a header that does not have one share per receiver."""
        if not len(self.receivers) == len(self.sealed_shares) == len(self.share_hashes):
            raise BadField("an upload must have one sealed share and one share hash per receiver")


@dataclass(frozen=True)
class Proposal(Message):
    """The coordinator has the vectors of these survivors, and requests signatures on that."""

    kind = 10

    epoch_id: Digest
    slot: Counter
    context: Digest
    active: RankSet
    survivors: RankSet


@dataclass(frozen=True)
class Certification(Message):
    """A member's only signature on a slot's survivors (`certificates.certify_parts`)."""

    kind = 11

    epoch_id: Digest
    slot: Counter
    rank: Rank
    signature: Signature


@dataclass(frozen=True)
class Certificate(Message):
    """The proof that a quorum of the survivors has signed the list of survivors."""

    kind = 12

    epoch_id: Digest
    slot: Counter
    context: Digest
    active: RankSet
    survivors: RankSet
    signers: RankSet
    signatures: Signatures

    def check(self) -> None:
        """Refuse a certificate without one signature per signer."""
        if len(self.signers) != len(self.signatures):
            raise BadField("a certificate must have one signature per signer")


@dataclass(frozen=True)
class AbandonRequest(Message):
    """The coordinator abandons a slot; the proof shows that the previous slot is closed."""

    kind = 13

    epoch_id: Digest
    slot: Counter
    proof: Annotated[bytes, Blob(MAX_PROOF_BYTES)]


@dataclass(frozen=True)
class Abandonment(Message):
    """A member's only signature on abandoning a slot (`certificates.abandon_parts`)."""

    kind = 14

    epoch_id: Digest
    slot: Counter
    rank: Rank
    signature: Signature


@dataclass(frozen=True)
class AbandonProof(Message):
    """The proof that a quorum of the epoch has abandoned a slot: it can have no certificate."""

    kind = 15

    epoch_id: Digest
    slot: Counter
    signers: RankSet
    signatures: Signatures

    def check(self) -> None:
        """Refuse a proof without one signature per signer."""
        if len(self.signers) != len(self.signatures):
            raise BadField("a proof of abandonment must have one signature per signer")


@dataclass(frozen=True)
class Reveal(Message):
    """A survivor's self key of one sum, and its pair keys in that sum with the dropped members.

    It needs no signature: nobody else knows the self key before this message, and the signed
    header has committed to it.
    """

    kind = 16

    epoch_id: Digest
    slot: Counter
    context: Digest
    rank: Rank
    self_key: Annotated[bytes, Fixed(KEY_BYTES)] = field(repr=False)
    dropped: RankSet
    pair_keys: Annotated[tuple[bytes, ...], Rows(KEY_BYTES)] = field(repr=False)

    def check(self) -> None:
        """Refuse a reveal without one pair key per dropped member."""
        if len(self.dropped) != len(self.pair_keys):
            raise BadField("a reveal must have one pair key per dropped member")


@dataclass(frozen=True)
class RepairRequest(Message):
    """Sealed shares of silent survivors' self keys, for one member to open."""

    kind = 17

    epoch_id: Digest
    slot: Counter
    context: Digest
    silent: RankSet
    sealed_shares: Annotated[tuple[bytes, ...], Rows(SEALED_SHARE_BYTES)]
    share_hashes: Annotated[tuple[bytes, ...], Rows(DIGEST_BYTES)]

    def check(self) -> None:
        """Refuse a request without one share and one hash per silent member."""
        if not len(self.silent) == len(self.sealed_shares) == len(self.share_hashes):
            raise BadField(
                "a repair request must have one sealed share and one share hash per silent member"
            )


@dataclass(frozen=True)
class Repair(SignedMessage):
    """A member's opened shares; `unreadable` lists dealers whose share is not as declared."""

    kind = 18
    label = Label.REPAIR

    epoch_id: Digest
    slot: Counter
    context: Digest
    rank: Rank
    silent: RankSet
    shares: Annotated[tuple[bytes, ...], Rows(SHARE_BYTES)] = field(repr=False)
    unreadable: RankSet
    signature: Signature

    def check(self) -> None:
        """Refuse a repair without one share per silent member it answers for."""
        if len(self.silent) != len(self.shares):
            raise BadField("a repair must have one share per silent member")


@dataclass(frozen=True)
class Total(Message):
    """What the survivors' vectors add up to; the signed integers themselves are sent next to it.

    `failed` and `tags` are residues (privacy/tags.py): eight tags of the data, then eight of
    `failed`, four bytes each.
    """

    kind = 20

    epoch_id: Digest
    slot: Counter
    context: Digest
    survivors: RankSet
    failed: Counter
    tags: Annotated[bytes, Fixed(4 * 2 * ROWS)]

    @property
    def residues(self) -> tuple[int, ...]:
        """The tags as numbers."""
        starts = range(0, len(self.tags), 4)
        return tuple(int.from_bytes(self.tags[at : at + 4], "big") for at in starts)


@dataclass(frozen=True)
class Objection(SignedMessage):
    """A member's own state is not the one that a task was written for: others are to write it."""

    kind = 25
    label = Label.OBJECTION

    epoch_id: Digest
    slot: Counter
    context: Digest
    rank: Rank
    signature: Signature


@dataclass(frozen=True)
class SealedState(SignedMessage):
    """An author's state, for members whose own differs by rounding; its box is sent next to it.

    The key of the box is derived from the group key and from `salt`, which is fresh.
    """

    kind = 26
    label = Label.STATE_BOX

    epoch_id: Digest
    slot: Counter
    rank: Rank
    salt: Annotated[bytes, Fixed(KEY_BYTES)]
    box_hash: Digest
    signature: Signature


@dataclass(frozen=True)
class Witnesses(Message):
    """Headers of other members' uploads to a slot, for a member that cannot replay its state."""

    kind = 21

    uploads: Annotated[tuple[Upload, ...], Many(Upload, MAX_MEMBERS)]


@dataclass(frozen=True)
class Consent(SignedMessage):
    """A member agrees that sums over `old` and over `new` may both become known.

    Their difference is a sum over the members in one set and not in the other, which exposes the
    signer if they are few. The consent is valid for one session, in which `new` will be summed, and
    covers all of the signer's data sources. It is about two sets: what three or more sums together
    reveal cannot be seen from any pair of them.
    """

    kind = 19
    label = Label.CONSENT

    session: Uuid
    old: Keys
    new: Keys
    identity: Key
    signature: Signature

    def check(self) -> None:
        """Refuse sets that are not in ascending order."""
        for members in (self.old, self.new):
            if any(a >= b for a, b in itertools.pairwise(members)):
                raise NotAscending("members must be unique and in ascending order")


def rank_bytes(rank: int) -> bytes:
    """Return a rank as bytes for hashes and signatures."""
    return rank.to_bytes(2, "big")


def slot_bytes(slot: int) -> bytes:
    """Return a slot number as bytes for hashes and signatures."""
    return slot.to_bytes(4, "big")
