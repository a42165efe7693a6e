"""Hashes, derivations, identities, sealing, masks and shares: section 3 of docs/protocol.md."""

import hashlib
import hmac
from collections.abc import Mapping

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from .wire import Refused, require

# --- framing ---------------------------------------------------------------------------------


def sha256(data: bytes) -> bytes:
    """SHA-256."""
    return hashlib.sha256(data).digest()


def frame(label: str, *parts: bytes) -> bytes:
    """A label and parts, each behind its length."""
    pieces = [f"veilgp/2/{label}".encode(), *parts]
    return b"".join(len(piece).to_bytes(8, "big") + piece for piece in pieces)


def digest(label: str, *parts: bytes) -> bytes:
    """The hash of a frame."""
    return sha256(frame(label, *parts))


def _extract(salt: bytes, material: bytes) -> bytes:
    return hmac.digest(salt, material, "sha256")


def _expand(key: bytes, info: bytes, length: int = 32) -> bytes:
    """HKDF-Expand, for outputs of at most one block."""
    return hmac.digest(key, info + b"\x01", "sha256")[:length]


def mix(material: bytes, label: str, *parts: bytes) -> bytes:
    """A key from material that is not a key yet."""
    return _expand(_extract(bytes(32), material), frame(label, *parts))


def derive(key: bytes, label: str, *parts: bytes) -> bytes:
    """A key from a key."""
    return _expand(key, frame(label, *parts))


# --- identities ------------------------------------------------------------------------------

FIELD_PRIME = 2**255 - 19
CURVE_D = -121665 * pow(121666, -1, FIELD_PRIME) % FIELD_PRIME


def check_identity(key: bytes) -> None:
    """Refuse a key that is not canonical, is no point of the curve or has small order."""
    y = int.from_bytes(key, "little") % 2**255
    require(y < FIELD_PRIME, "identity.key", "y is not below 2^255 - 19")
    square = y * y % FIELD_PRIME
    # Order 1, 2 and 4 have y = 1, -1 and 0. A point of order 8 doubles to one with y = 0, which
    # with the equation of the curve gives d·y⁴ + 2·y² = 1.
    order_8 = (CURVE_D * square * square + 2 * square - 1) % FIELD_PRIME == 0
    require(square > 1 and not order_8, "identity.key", "the point has small order")
    x_square = (square - 1) * pow(CURVE_D * square + 1, -1, FIELD_PRIME) % FIELD_PRIME
    on_curve = pow(x_square, (FIELD_PRIME - 1) // 2, FIELD_PRIME) == 1
    require(on_curve, "identity.key", "no point of the curve")


def identity(secret: bytes) -> bytes:
    """The public key of an Ed25519 private key."""
    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def sign(secret: bytes, label: str, *parts: bytes) -> bytes:
    """The signature of a frame, which RFC 8032 determines."""
    return Ed25519PrivateKey.from_private_bytes(secret).sign(frame(label, *parts))


def signed(key: bytes, signature: bytes, label: str, *parts: bytes) -> bool:
    """Whether this is the key's signature of the frame."""
    check_identity(key)
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, frame(label, *parts))
    except InvalidSignature:
        return False
    return True


def fingerprint(key: bytes) -> str:
    """Eight groups of five digits."""
    digits = f"{int.from_bytes(digest('fingerprint', key), 'big') % 10**40:040d}"
    return " ".join(digits[at : at + 5] for at in range(0, 40, 5))


# --- sealing ---------------------------------------------------------------------------------

KEM_CIPHERTEXT = 1088
ENCAPSULATED = 1120
XWING_LABEL = rb"\.//^" + b"\\"
SUITE = b"HPKE" + bytes.fromhex("647a00010002")


def _kem_keys(secret: bytes) -> tuple[MLKEM768PrivateKey, X25519PrivateKey]:
    return (
        MLKEM768PrivateKey.from_seed_bytes(secret[:64]),
        X25519PrivateKey.from_private_bytes(secret[64:]),
    )


def kem_public(secret: bytes) -> bytes:
    """The KEM public key, 1,216 bytes, of a KEM secret key of 96."""
    lattice, curve = _kem_keys(secret)
    return lattice.public_key().public_bytes_raw() + curve.public_key().public_bytes_raw()


def _decapsulate(secret: bytes, encapsulated: bytes) -> bytes:
    """X-Wing's shared secret."""
    lattice, curve = _kem_keys(secret)
    ephemeral = encapsulated[KEM_CIPHERTEXT:]
    return hashlib.sha3_256(
        lattice.decapsulate(encapsulated[:KEM_CIPHERTEXT])
        + curve.exchange(X25519PublicKey.from_public_bytes(ephemeral))
        + ephemeral
        + curve.public_key().public_bytes_raw()
        + XWING_LABEL
    ).digest()


def _labeled(label: str, data: bytes) -> bytes:
    return b"HPKE-v1" + SUITE + label.encode() + data


def hpke_open(secret: bytes, sealed: bytes, info: bytes) -> bytes:
    """What HPKE has sealed to this key: base mode, no AAD, one message (RFC 9180)."""
    try:
        shared = _decapsulate(secret, sealed[:ENCAPSULATED])
    except ValueError as error:  # the X25519 part has low order
        raise InvalidTag from error
    context = (
        b"\x00"
        + _extract(b"", _labeled("psk_id_hash", b""))
        + _extract(b"", _labeled("info_hash", info))
    )
    prk = _extract(shared, _labeled("secret", b""))
    key = _expand(prk, b"\x00\x20" + _labeled("key", context), 32)
    nonce = _expand(prk, b"\x00\x0c" + _labeled("base_nonce", context), 12)
    return AESGCM(key).decrypt(nonce, sealed[ENCAPSULATED:], None)


def gcm_seal(key: bytes, content: bytes) -> bytes:
    """AES-256-GCM under a key that seals one thing only."""
    return AESGCM(key).encrypt(bytes(12), content, None)


def gcm_open(key: bytes, sealed: bytes, code: str) -> bytes:
    """What gcm_seal has sealed; refused with this code if it does not open."""
    try:
        return AESGCM(key).decrypt(bytes(12), sealed, None)
    except InvalidTag as error:
        raise Refused(code) from error


def padded(content: bytes) -> bytes:
    """What is sealed in place of a content: its length, itself, and zeros up to a step."""
    framed = len(content).to_bytes(8, "big") + content
    step = 4096
    while 16 * step <= len(framed):
        step *= 2
    return framed + bytes(-len(framed) % step)


def unpadded(sealed: bytes, code: str) -> bytes:
    """The content of what was sealed; refused with this code in any form but the padded one."""
    content = sealed[8 : 8 + int.from_bytes(sealed[:8], "big")]
    require(sealed == padded(content), code)
    return content


# --- masks and shares ------------------------------------------------------------------------


def prg(key: bytes, size: int) -> bytes:
    """The first bytes of the AES-256-CTR keystream that begins at counter block 2."""
    stream = Cipher(algorithms.AES(key), modes.CTR((2).to_bytes(16, "big"))).encryptor()
    return stream.update(bytes(size))


SHARE_PRIME = 2**521 - 1
SHARE_BYTES = 66


def combine(shares: Mapping[int, bytes]) -> bytes:
    """The secret f(0) that shares determine, by rank of their owners."""
    values = {rank + 1: int.from_bytes(share, "big") for rank, share in shares.items()}
    require(all(y < SHARE_PRIME for y in values.values()), "sharing.invalid")
    secret = _interpolate(values, 0)
    require(secret < 2**256, "sharing.invalid", "no secret of 32 bytes")
    return secret.to_bytes(32, "big")


def share_at(rank: int, shares: Mapping[int, bytes]) -> bytes:
    """The share of one rank that follows from those of others."""
    values = {other + 1: int.from_bytes(share, "big") for other, share in shares.items()}
    return _interpolate(values, rank + 1).to_bytes(SHARE_BYTES, "big")


def _interpolate(values: Mapping[int, int], at: int) -> int:
    total = 0
    for x, y in values.items():
        above = below = 1
        for other in values:
            if other != x:
                above = above * (at - other) % SHARE_PRIME
                below = below * (x - other) % SHARE_PRIME
        total += y * above * pow(below, -1, SHARE_PRIME)
    return total % SHARE_PRIME
