"""Hashing and key derivation under one label per use, with every input length-prefixed.

Two different lists of parts never give the same bytes, and a value made for one purpose is
never valid for another: `Label` is the whole list of purposes.
"""

import hashlib
from enum import StrEnum

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

DIGEST_BYTES = 32
KEY_BYTES = 32


class Label(StrEnum):
    """What a signature, a hash or a derived key is for."""

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
    REVEAL = "veilgp/1/reveal"
    REPAIR = "veilgp/1/repair"
    CONSENT = "veilgp/1/consent"
    JOURNAL = "veilgp/1/journal"


_PREFIX = {label: len(label).to_bytes(8, "big") + label.encode() for label in Label}


def frame(label: Label, *parts: bytes) -> bytes:
    """Join a label and parts so that different lists give different bytes.

    >>> frame(Label.ADVERT, b"ab", b"c") == frame(Label.ADVERT, b"a", b"bc")
    False
    """
    pieces = [_PREFIX[label]]
    for part in parts:
        pieces += (len(part).to_bytes(8, "big"), part)
    return b"".join(pieces)


def digest(label: Label, *parts: bytes) -> bytes:
    """SHA-256 of the framed parts."""
    return hashlib.sha256(frame(label, *parts)).digest()


def derive(key: bytes, label: Label, *parts: bytes) -> bytes:
    """HKDF-SHA256: a 32-byte key for one use, from a key and the framed parts as `info`."""
    return HKDF(hashes.SHA256(), KEY_BYTES, None, frame(label, *parts)).derive(key)
