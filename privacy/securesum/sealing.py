"""Sealing 64 bytes from member to member through the coordinator: HPKE with a hybrid KEM.

ML-KEM-768 + X25519 [XWing], HKDF-SHA256, AES-256-GCM [RFC9180]: what is recorded today stays secret
from a later quantum computer, and from an attacker who breaks only one of the two KEMs. Base mode
does not authenticate the sender, so every box is signed (`messages.Box`). `info` binds epoch,
sender and receiver.
"""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

from privacy.framing import KEY_BYTES
from privacy.securesum.errors import BadKemKey, UnreadableBox

_MLKEM_PUBLIC_BYTES = 1184
_MLKEM_SEED_BYTES = 64
KEM_KEY_BYTES = _MLKEM_PUBLIC_BYTES + 32
KEM_SECRET_BYTES = _MLKEM_SEED_BYTES + 32
SEALED_BYTES = 2 * KEY_BYTES
"""The sender's seed of the pair, then its part of the group key."""
BOX_BYTES = 1088 + 32 + SEALED_BYTES + 16
"""Encapsulated ML-KEM and X25519 keys, then the sealed 64 bytes and their tag."""


def _suite() -> Suite:
    return Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


def public_key(secret: bytes) -> bytes:
    """Return the public key (ML-KEM, then X25519, raw) of `KEM_SECRET_BYTES` random bytes."""
    mlkem, x25519 = _private_parts(secret)
    return mlkem.public_key().public_bytes_raw() + x25519.public_key().public_bytes_raw()


def check_kem_key(kem_key: bytes) -> None:
    """Refuse a public key to which nothing can be sealed, by trying it."""
    seal(bytes(SEALED_BYTES), kem_key, b"")


def seal(content: bytes, kem_key: bytes, info: bytes) -> bytes:
    """Return 64 bytes sealed to a public key; refuse keys that are malformed or of low order."""
    try:
        key = MLKEM768X25519PublicKey(
            MLKEM768PublicKey.from_public_bytes(kem_key[:_MLKEM_PUBLIC_BYTES]),
            X25519PublicKey.from_public_bytes(kem_key[_MLKEM_PUBLIC_BYTES:]),
        )
        return _suite().encrypt(content, key, info)
    except ValueError as error:
        raise BadKemKey(
            "Nothing can be sealed to this key: it is malformed or of low order."
        ) from error


def private_key(secret: bytes) -> MLKEM768X25519PrivateKey:
    """Return the key that opens boxes, expanded from `KEM_SECRET_BYTES`; do it once for many."""
    return MLKEM768X25519PrivateKey(*_private_parts(secret))


def unseal(box: bytes, key: MLKEM768X25519PrivateKey, info: bytes) -> bytes:
    """Return the content of a box; refuse one sealed to another key, or under another `info`."""
    try:
        content = _suite().decrypt(box, key, info)
    except (InvalidTag, ValueError) as error:
        raise UnreadableBox("The box cannot be opened with this epoch's key.") from error
    if len(content) != SEALED_BYTES:
        raise UnreadableBox(f"The box must contain {SEALED_BYTES} bytes, not {len(content)}.")
    return content


def _private_parts(secret: bytes) -> tuple[MLKEM768PrivateKey, X25519PrivateKey]:
    return (
        MLKEM768PrivateKey.from_seed_bytes(secret[:_MLKEM_SEED_BYTES]),
        X25519PrivateKey.from_private_bytes(secret[_MLKEM_SEED_BYTES:]),
    )
