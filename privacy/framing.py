"""Hashing and key derivation with one label per purpose and length-prefixed inputs.

Two different lists of parts never give the same bytes, and a value made for one purpose is
never valid for another. `Label` lists all purposes.
"""

import hashlib
from enum import StrEnum

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

DIGEST_BYTES = 32
KEY_BYTES = 32
_SHA256 = hashes.SHA256()


class Label(StrEnum):
    """The purpose of a signature, a hash or a derived key."""

    FINGERPRINT = "veilgp/2/fingerprint"
    ROSTER = "veilgp/2/roster"
    ADVERT = "veilgp/2/advert"
    EPOCH = "veilgp/2/epoch"
    SEAL = "veilgp/2/seal"
    BOX = "veilgp/2/box"
    BOX_HASH = "veilgp/2/box-hash"
    BOXES = "veilgp/2/boxes"
    GROUP_COMMITMENT = "veilgp/2/group-commitment"
    GROUP_COMMITMENTS = "veilgp/2/group-commitments"
    GROUP = "veilgp/2/group"
    PAIR_SEED = "veilgp/2/pair"
    CHANNEL = "veilgp/2/channel"
    CONTEXT = "veilgp/2/context"
    PAIR_SUM = "veilgp/2/pair-sum"
    PAIR_MASK = "veilgp/2/pair-mask"
    TAG_MASK = "veilgp/2/tag-mask"
    TAG = "veilgp/2/tag"
    FAILED_TAG = "veilgp/2/failed-tag"
    BLIND = "veilgp/2/blind"
    BLIND_TAGS = "veilgp/2/blind-tags"
    STATE_VALUE = "veilgp/2/state-value"
    DRAFT = "veilgp/2/draft"
    OBJECTION = "veilgp/2/objection"
    STATE_KEY = "veilgp/2/state-key"
    STATE_BOX = "veilgp/2/state-box"
    STATE_SALT = "veilgp/2/state-salt"
    MODEL_SALT = "veilgp/2/model-salt"
    MODEL_SECTION = "veilgp/2/model-section"
    FINAL_STATE = "veilgp/2/final-state"
    PARENT = "veilgp/2/parent"
    MODEL = "veilgp/2/model"
    RESULTS = "veilgp/2/results"
    ARCHIVE = "veilgp/2/archive"
    ARCHIVE_SEAL = "veilgp/2/archive-seal"
    COMMITMENT = "veilgp/2/self-key-commitment"
    SHARE = "veilgp/2/share"
    SHARE_HASH = "veilgp/2/share-hash"
    UPLOAD = "veilgp/2/upload"
    CERTIFY = "veilgp/2/certify"
    ABANDON = "veilgp/2/abandon"
    REPAIR = "veilgp/2/repair"
    CONSENT = "veilgp/2/consent"
    TABLE = "veilgp/2/table"
    JOURNAL = "veilgp/2/journal"
    REQUEST = "veilgp/2/request"

    prefix: bytes

    def __init__(self, name: str) -> None:
        self.prefix = len(name).to_bytes(8, "big") + name.encode()


def frame(label: Label, *parts: bytes) -> bytes:
    """Return a label and parts joined so that different lists give different bytes.

    >>> frame(Label.ADVERT, b"ab", b"c") == frame(Label.ADVERT, b"a", b"bc")
    False
    """
    pieces = [label.prefix]
    for part in parts:
        pieces += (len(part).to_bytes(8, "big"), part)
    return b"".join(pieces)


def digest(label: Label, *parts: bytes) -> bytes:
    """Return the SHA-256 of the framed parts."""
    return hashlib.sha256(frame(label, *parts)).digest()


def mix(material: bytes, label: Label, *parts: bytes) -> bytes:
    """Return a 32-byte key from key material of any form: HKDF-SHA256, framed parts as `info`."""
    return HKDF(_SHA256, KEY_BYTES, None, frame(label, *parts)).derive(material)


def derive(key: bytes, label: Label, *parts: bytes) -> bytes:
    """Return a key for one use from a uniform key: the expand step of HKDF-SHA256 suffices."""
    return HKDFExpand(_SHA256, KEY_BYTES, frame(label, *parts)).derive(key)
