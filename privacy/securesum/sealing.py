"""Sealing 32 bytes from member to member through the coordinator: HPKE with a hybrid KEM.

ML-KEM-768 + X25519, HKDF-SHA256, AES-256-GCM: what is recorded today stays closed to a quantum
computer later, and to whoever breaks only one of the two. Base mode does not say who sealed, so
every box is signed by its sender (`messages.Box`). `info` binds epoch, sender and receiver.
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
BOX_BYTES = 1088 + 32 + KEY_BYTES + 16
"""Encapsulated ML-KEM and X25519 keys, then the sealed 32 bytes and their tag."""


def _suite() -> Suite:
    return Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


def public_key(secret: bytes) -> bytes:
    """Give the public key (ML-KEM, then X25519, raw) of `KEM_SECRET_BYTES` random bytes."""
    mlkem, x25519 = _private_parts(secret)
    return mlkem.public_key().public_bytes_raw() + x25519.public_key().public_bytes_raw()


def check_kem_key(kem_key: bytes) -> None:
    """Refuse a public key that nothing can be sealed to, by trying."""
    seal(bytes(KEY_BYTES), kem_key, b"")


def seal(seed: bytes, kem_key: bytes, info: bytes) -> bytes:
    """Seal 32 bytes to a public key; refuse keys that are malformed or of low order."""
    try:
        key = MLKEM768X25519PublicKey(
            MLKEM768PublicKey.from_public_bytes(kem_key[:_MLKEM_PUBLIC_BYTES]),
            X25519PublicKey.from_public_bytes(kem_key[_MLKEM_PUBLIC_BYTES:]),
        )
        return _suite().encrypt(seed, key, info)
    except ValueError as error:
        raise BadKemKey("Nothing can be sealed to this key: malformed, or of low order.") from error


def private_key(secret: bytes) -> MLKEM768X25519PrivateKey:
    """Expand `KEM_SECRET_BYTES` to the key that opens boxes; worth doing once for many."""
    return MLKEM768X25519PrivateKey(*_private_parts(secret))


def unseal(box: bytes, key: MLKEM768X25519PrivateKey, info: bytes) -> bytes:
    """Open a box; refuse one that was sealed to another key, or under another `info`."""
    try:
        seed = _suite().decrypt(box, key, info)
    except (InvalidTag, ValueError) as error:
        raise UnreadableBox("The box does not open with this epoch's key.") from error
    if len(seed) != KEY_BYTES:
        raise UnreadableBox(f"The box holds {len(seed)} bytes, not {KEY_BYTES}.")
    return seed


def _private_parts(secret: bytes) -> tuple[MLKEM768PrivateKey, X25519PrivateKey]:
    return (
        MLKEM768PrivateKey.from_seed_bytes(secret[:_MLKEM_SEED_BYTES]),
        X25519PrivateKey.from_private_bytes(secret[_MLKEM_SEED_BYTES:]),
    )
