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

    FINGERPRINT = "veilgp/1/fingerprint"
    ROSTER = "veilgp/1/roster"
    ADVERT = "veilgp/1/advert"
    EPOCH = "veilgp/1/epoch"
    SEAL = "veilgp/1/seal"
    BOX = "veilgp/1/box"
    BOX_HASH = "veilgp/1/box-hash"
    BOXES = "veilgp/1/boxes"
    PAIR_SEED = "veilgp/1/pair"
    CHANNEL = "veilgp/1/channel"
    BROADCAST = "veilgp/1/broadcast"
    CONTEXT = "veilgp/1/context"
    PAIR_MASK = "veilgp/1/pair-mask"
    COMMITMENT = "veilgp/1/self-key-commitment"
    SHARE = "veilgp/1/share"
    SHARE_HASH = "veilgp/1/share-hash"
    UPLOAD = "veilgp/1/upload"
    CERTIFY = "veilgp/1/certify"
    ABANDON = "veilgp/1/abandon"
    REPAIR = "veilgp/1/repair"
    CONSENT = "veilgp/1/consent"
    TABLE = "veilgp/1/table"
    JOURNAL = "veilgp/1/journal"
    REQUEST = "veilgp/1/request"

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
