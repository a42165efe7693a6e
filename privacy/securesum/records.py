"""What a client stores before it acts: permanent journal records, and secrets that are erased.

Records are permanent, contain no key material, and span data sources, runs, sessions and
coordinators: they keep a client from answering twice. Secrets are in the *vault*, with an entry per
epoch and slot, which is erased when it is no longer needed and must not be in any backup.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Generic, TypeVar

from privacy.framing import KEY_BYTES
from privacy.securesum.messages import Upload
from privacy.securesum.sealing import KEM_SECRET_BYTES
from privacy.securesum.terms import Terms
from privacy.securesum.wire import (
    Blob,
    Counter,
    Digest,
    Fixed,
    Key,
    Keys,
    Message,
    One,
    RankSet,
    Rows,
    Signature,
    Text,
    Uint,
    Uuid,
)

SourceName = Annotated[str, Text(200)]
OperatorName = Annotated[str, Text(200)]
VaultChanges = Mapping[str, bytes | memoryview | None]


ToSend = TypeVar("ToSend", covariant=True)


@dataclass(frozen=True)
class Step(Generic[ToSend]):
    """What the caller must do after a call: make this durable in one transaction, then send it.

    `vault` maps names of entries to their new content, or to None to erase them. If the caller
    cannot make the step durable, it must send nothing, drop the client and restore it from what is
    durable.
    """

    message: ToSend
    records: tuple[bytes, ...] = ()
    vault: VaultChanges = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class UploadStep(Step[Upload]):
    """A step whose message is the header of a masked vector, `body`, to be sent with it."""

    body: memoryview = field(default_factory=lambda: memoryview(b""), repr=False)


@dataclass(frozen=True)
class Begun(Message):
    """The first record: the identity that the journal belongs to."""

    kind = 64

    identity: Key


@dataclass(frozen=True)
class Joined(Message):
    """The operator joined a session under these terms."""

    kind = 65

    terms: Annotated[Terms, One(Terms)]


@dataclass(frozen=True)
class Advertised(Message):
    """The client made an advert for an epoch, with the data source it will answer from."""

    kind = 66

    session: Uuid
    run: Uuid
    number: Counter
    source: SourceName
    advert: Annotated[bytes, Blob(4096)]


@dataclass(frozen=True)
class Agreed(Message):
    """The client agreed to one list of members for an epoch, all of them pinned."""

    kind = 67

    session: Uuid
    run: Uuid
    number: Counter
    epoch_id: Digest
    members: Keys
    roster: Digest


@dataclass(frozen=True)
class Ended(Message):
    """The client ended an epoch and erased its secrets."""

    kind = 68

    session: Uuid
    run: Uuid
    number: Counter


@dataclass(frozen=True)
class Bound(Message):
    """From here on a data source is summed only with these members and this table."""

    kind = 69

    source: SourceName
    session: Uuid
    members: Keys
    table: Digest


@dataclass(frozen=True)
class CohortApproved(Message):
    """The exposed members and the operator allow another set of members for a data source."""

    kind = 70

    source: SourceName
    session: Uuid
    members: Keys
    approved_by: OperatorName


@dataclass(frozen=True)
class TableApproved(Message):
    """The operator allows another table for a data source."""

    kind = 71

    source: SourceName
    table: Digest
    approved_by: OperatorName


@dataclass(frozen=True)
class Uploaded(Message):
    """The client answered a slot; the bytes are in the vault as long as they are needed."""

    kind = 72

    epoch_id: Digest
    slot: Counter
    context: Digest
    active: RankSet
    table: Digest
    noise: Annotated[bytes, Blob(64)]


@dataclass(frozen=True)
class SignedCertify(Message):
    """The client's only statement on a slot: these are the survivors."""

    kind = 73

    epoch_id: Digest
    slot: Counter
    survivors: RankSet
    signature: Signature


@dataclass(frozen=True)
class SignedAbandon(Message):
    """The client's only statement on a slot: it is abandoned."""

    kind = 74

    epoch_id: Digest
    slot: Counter
    signature: Signature


@dataclass(frozen=True)
class Certified(Message):
    """The client has verified a slot's certificate: the slot counts as released."""

    kind = 75

    epoch_id: Digest
    slot: Counter
    context: Digest
    active: RankSet
    survivors: RankSet


@dataclass(frozen=True)
class Abandoned(Message):
    """The client has verified that a slot was abandoned: nothing was released."""

    kind = 76

    epoch_id: Digest
    slot: Counter


@dataclass(frozen=True)
class Endorsed(Message):
    """The client's only statement on the model of a run."""

    kind = 77

    session: Uuid
    run: Uuid
    statement: Digest


@dataclass(frozen=True)
class AdvertSecrets(Message):
    """Vault: the secret key of the key that other members seal to."""

    kind = 96

    kem_secret: Annotated[bytes, Fixed(KEM_SECRET_BYTES)] = field(repr=False)


@dataclass(frozen=True)
class SealSecrets(Message):
    """Vault: the secret key, what was sealed to the other members, and the boxes as sent."""

    kind = 97

    kem_secret: Annotated[bytes, Fixed(KEM_SECRET_BYTES)] = field(repr=False)
    receivers: RankSet
    seeds: Annotated[tuple[bytes, ...], Rows(KEY_BYTES)] = field(repr=False)
    part: Annotated[bytes, Fixed(KEY_BYTES)] = field(repr=False)
    boxes: Annotated[bytes, Blob(1 << 20)] = field(repr=False)


@dataclass(frozen=True)
class PairsSecrets(Message):
    """Vault: what this member shares with each other member, for the rest of the epoch."""

    kind = 98

    others: RankSet
    seeds: Annotated[tuple[bytes, ...], Rows(KEY_BYTES)] = field(repr=False)
    channels: Annotated[tuple[bytes, ...], Rows(KEY_BYTES)] = field(repr=False)


@dataclass(frozen=True)
class SlotSecrets(Message):
    """Vault: the self key of the open slot, and the signed header of its upload."""

    kind = 99

    slot: Counter
    self_key: Annotated[bytes, Fixed(KEY_BYTES)] = field(repr=False)
    header: Annotated[bytes, Blob(1 << 20)] = field(repr=False)


@dataclass(frozen=True)
class Head(Message):
    """Vault: the journal's length and chained hash when the vault was last written."""

    kind = 100

    count: Annotated[int, Uint(8)]
    chain: Digest


@dataclass(frozen=True)
class GroupSecrets(Message):
    """Vault: the group key, the hash of all commitments to it, and how many slots are verified.

    `verified` is one more than the newest slot whose total was verified here. The entry outlives
    the epoch's other secrets, until the total of its last slot is verified or the run is over.
    """

    kind = 101

    key: Annotated[bytes, Fixed(KEY_BYTES)] = field(repr=False)
    commitments: Digest
    verified: Counter


RECORDS: Mapping[int, type[Message]] = {
    record.kind: record
    for record in (
        Begun,
        Joined,
        Advertised,
        Agreed,
        Ended,
        Bound,
        CohortApproved,
        TableApproved,
        Uploaded,
        SignedCertify,
        SignedAbandon,
        Certified,
        Abandoned,
        Endorsed,
    )
}
