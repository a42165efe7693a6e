"""A finished model for members only, kept by the coordinator, which cannot read it.

One member encrypts the model under a fresh key and seals that key to every member of the epoch.
Members have an archive key pair for this, which lives as long as their home: its public half is in
each signed advert, and so in the epoch's identifier. A member that has lost the model, or a later
run that starts from it, opens the archive again. What is inside is checked against the certificate
of the members (endorsement.py): the archive itself need not be trusted. It is padded before it is
sealed, because its size would follow from the model.
"""

import hashlib
import hmac
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from privacy.framing import KEY_BYTES, Label, frame
from privacy.identity import Identity, Randomness
from privacy.members.padding import padded, unpadded
from privacy.securesum.errors import (
    BadField,
    BadKemKey,
    ForgedMessage,
    NotAscending,
    UnreadableArchive,
    UnreadableBox,
)
from privacy.securesum.messages import Adverts
from privacy.securesum.sealing import BOX_BYTES, private_key, seal, unseal
from privacy.securesum.wire import Digest, Key, Keys, Rows, Signature, SignedMessage, Uuid

_NONCE = bytes(12)
"""An archive's key is used once."""


@dataclass(frozen=True)
class Archive(SignedMessage):
    """The header of a sealed model; the ciphertext is sent next to it.

    model: the commitment that the members have signed. receivers, boxes: who can open it, ascending
    by key, and the sealed key for each. identity: who has sealed it.
    """

    kind = 30
    label = Label.ARCHIVE

    session: Uuid
    run: Uuid
    model: Digest
    receivers: Keys
    boxes: Annotated[tuple[bytes, ...], Rows(BOX_BYTES)]
    content_hash: Digest
    identity: Key
    signature: Signature

    def check(self) -> None:
        """Refuse repeated receivers, and receivers without a box."""
        if len(self.receivers) != len(self.boxes):
            raise BadField("an archive must have one box per receiver")
        if any(a >= b for a, b in pairwise(self.receivers)):
            raise NotAscending("receivers must be unique and in ascending order")


def seal_archive(
    identity: Identity,
    adverts: Adverts,
    *,
    session: bytes,
    run: bytes,
    model: bytes,
    content: bytes,
    random: Randomness,
) -> tuple[Archive, bytes]:
    """Return a model sealed to all members of an epoch: its header and the ciphertext."""
    key = random(KEY_BYTES)
    sealed = AESGCM(key).encrypt(_NONCE, padded(content), None)
    hashed = hashlib.sha256(sealed).digest()
    boxes = []
    for advert in adverts.adverts:
        info = _info(session, run, model, identity.key, advert.identity)
        try:
            boxes.append(seal(key + hashed, advert.archive_key, info))
        except BadKemKey as error:
            raise UnreadableArchive(f"The model cannot be sealed to a member: {error}") from None
    header = Archive.signed(
        identity,
        session=session,
        run=run,
        model=model,
        receivers=tuple(advert.identity for advert in adverts.adverts),
        boxes=tuple(boxes),
        content_hash=hashed,
        identity=identity.key,
    )
    return header, sealed


def open_archive(header: Archive, sealed: bytes, *, own: bytes, secret: bytes) -> bytes:
    """Return the content of an archive; `secret` is the archive secret of the member `own`."""
    try:
        header.check_signed_by(header.identity, ForgedMessage, "Archive")
        box = header.boxes[header.receivers.index(own)]
        info = _info(header.session, header.run, header.model, header.identity, own)
        content = unseal(box, private_key(secret), info)
        key, hashed = content[:KEY_BYTES], content[KEY_BYTES:]
        if not hmac.compare_digest(hashlib.sha256(sealed).digest(), hashed):
            raise UnreadableArchive("The archive's content is not the one that was sealed.")
        return unpadded(AESGCM(key).decrypt(_NONCE, sealed, None))
    except (ForgedMessage, UnreadableBox, InvalidTag, ValueError):
        raise UnreadableArchive(
            "The archive cannot be opened with this hospital's key: it is damaged, or was sealed "
            "to other members. Ask another member for the model."
        ) from None


def archive_bytes(header: Archive, sealed: bytes) -> bytes:
    """Return an archive as it is sent and kept: length of the header (4 bytes), header, content."""
    head = header.encode()
    return len(head).to_bytes(4, "big") + head + sealed


def read_archive(data: bytes) -> tuple[Archive, bytes]:
    """Return the header of an archive and its sealed content; nothing in them is trusted."""
    end = 4 + int.from_bytes(data[:4], "big")
    if len(data) < 4 or end > len(data):
        raise UnreadableArchive("The archive's header must end within it.")
    return Archive.decode(data[4:end]), data[end:]


def _info(session: bytes, run: bytes, model: bytes, sender: bytes, receiver: bytes) -> bytes:
    return frame(Label.ARCHIVE_SEAL, session, run, model, sender, receiver)
