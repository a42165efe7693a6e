"""What a client writes down before it acts on it: journal records, and secrets that are erased.

Records are permanent, hold no key material, and span data sources, runs, sessions and
coordinators: they are what keeps a client from answering twice. Secrets live in the *vault*, an
entry per epoch and slot, which is erased when it is no longer needed and enters no backup.
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
    Flag,
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

Source = Annotated[str, Text(200)]
OperatorName = Annotated[str, Text(200)]
VaultChanges = Mapping[str, bytes | memoryview | None]


Sent = TypeVar("Sent")


@dataclass(frozen=True)
class Step(Generic[Sent]):
    """What one call asks of its caller: make this durable, in one transaction; then send that.

    `vault` maps names of entries to their new content, or to None where they are to be erased.
    If the caller cannot make the step durable it must send nothing, drop the client and restore
    it from what it has.
    """

    message: Sent
    records: tuple[bytes, ...] = ()
    vault: VaultChanges = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class UploadStep(Step[Upload]):
    """A step whose message is the header of a masked vector, `body`, to be sent beside it."""

    body: memoryview = field(default_factory=lambda: memoryview(b""), repr=False)


@dataclass(frozen=True)
class Begun(Message):
    """The first record: whose journal this is."""

    kind = 64

    identity: Key


@dataclass(frozen=True)
class Joined(Message):
    """The operator joined a session under these terms."""

    kind = 65

    terms: Annotated[Terms, One(Terms)]


@dataclass(frozen=True)
class Advertised(Message):
    """An advert was made for an epoch, with one data source to answer from."""

    kind = 66

    session: Uuid
    run: Uuid
    number: Counter
    source: Source
    advert: Annotated[bytes, Blob(4096)]


@dataclass(frozen=True)
class Agreed(Message):
    """The client agreed to one list of members for an epoch; `trusted` are the pinned ones."""

    kind = 67

    session: Uuid
    run: Uuid
    number: Counter
    epoch_id: Digest
    members: Keys
    trusted: RankSet


@dataclass(frozen=True)
class Ended(Message):
    """The client ended an epoch and erased its secrets."""

    kind = 68

    session: Uuid
    run: Uuid
    number: Counter


@dataclass(frozen=True)
class Bound(Message):
    """From here on a data source is summed with these members and this table only.

    `session` names the session inside which the rule is given up (`shrinking`), if it is.
    """

    kind = 69

    source: Source
    session: Uuid
    shrinking: Annotated[bool, Flag()]
    members: Keys
    table: Digest


@dataclass(frozen=True)
class CohortApproved(Message):
    """Those whom it exposes, and the operator, allow a data source another set of members."""

    kind = 70

    source: Source
    session: Uuid
    members: Keys
    approved_by: OperatorName


@dataclass(frozen=True)
class TableApproved(Message):
    """The operator allows a data source another table."""

    kind = 71

    source: Source
    table: Digest
    approved_by: OperatorName


@dataclass(frozen=True)
class Uploaded(Message):
    """The client answers a slot, once, with these bytes (kept in the vault while they matter)."""

    kind = 72

    epoch_id: Digest
    slot: Counter
    context: Digest
    active: RankSet
    table: Digest
    noise: Annotated[bytes, Blob(64)]


@dataclass(frozen=True)
class SignedCertify(Message):
    """The client's one statement on a slot: these are the survivors."""

    kind = 73

    epoch_id: Digest
    slot: Counter
    survivors: RankSet
    signature: Signature


@dataclass(frozen=True)
class SignedAbandon(Message):
    """The client's one statement on a slot: it is given up."""

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
class AdvertSecrets(Message):
    """Vault: the key that others seal to."""

    kind = 96

    kem_secret: Annotated[bytes, Fixed(KEM_SECRET_BYTES)] = field(repr=False)


@dataclass(frozen=True)
class SealSecrets(Message):
    """Vault: that key, the seeds sealed to the others by rank, and the boxes as they were sent."""

    kind = 97

    kem_secret: Annotated[bytes, Fixed(KEM_SECRET_BYTES)] = field(repr=False)
    receivers: RankSet
    seeds: Annotated[tuple[bytes, ...], Rows(KEY_BYTES)] = field(repr=False)
    boxes: Annotated[bytes, Blob(1 << 20)] = field(repr=False)


@dataclass(frozen=True)
class PairsSecrets(Message):
    """Vault: what this member shares with each other, for the rest of the epoch."""

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
    """Vault: how long the journal was, and its chained hash, when the vault was last written."""

    kind = 100

    count: Annotated[int, Uint(8)]
    chain: Digest


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
    )
}
