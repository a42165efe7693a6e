"""Ed25519 identities, a session's roster, and the keys that a site has pinned.

A member *is* its public key: 32 bytes. Names are for people. A roster maps names to keys, and a
site confirms this mapping out of band, by comparing fingerprints over the phone:

>>> Identity.from_bytes(bytes(range(32))).fingerprint
'90232 83554 79387 95915 20638 71797 16441 58826'

Everything that a member signs is framed under a label for its purpose (`privacy.framing.Label`), so
a signature made for one purpose is not valid for another.
"""

import hmac
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privacy.errors import BadSignature, FingerprintMismatch, InvalidKey, PinConflict, RosterError
from privacy.framing import Label, digest, frame

Randomness = Callable[[int], bytes]
"""Returns the given number of fresh random bytes; the operating system's by default."""

IDENTITY_BYTES = 32
SIGNATURE_BYTES = 64
MAX_MEMBERS = 200
_FINGERPRINT_GROUPS = 8

# The y coordinates of the eight points of small order on Ed25519. With such a key, anyone can
# produce signatures that verify.
_FIELD = 2**255 - 19
_Y8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL_ORDER_Y = frozenset({0, 1, _FIELD - 1, _Y8, _FIELD - _Y8})


def check_key(key: bytes) -> None:
    """Refuse bytes that are not, or must not be, a member's public key."""
    if not isinstance(key, bytes) or len(key) != IDENTITY_BYTES:
        raise InvalidKey(
            f"A public key must be {IDENTITY_BYTES} bytes, the raw Ed25519 public key."
        )
    y = int.from_bytes(key, "little") & (2**255 - 1)
    if y >= _FIELD:
        raise InvalidKey(
            "This public key is not in its canonical form; ask its owner to send it again."
        )
    if y in _SMALL_ORDER_Y:
        raise InvalidKey(
            "This public key has small order, so anyone could sign in its name; its owner must "
            "make a new identity."
        )


def fingerprint(key: bytes) -> str:
    """Return eight groups of five digits (132 bits), to be read out over the phone."""
    check_key(key)
    number = int.from_bytes(digest(Label.FINGERPRINT, key), "big")
    digits = f"{number % 10 ** (5 * _FINGERPRINT_GROUPS):0{5 * _FINGERPRINT_GROUPS}d}"
    return " ".join(digits[i : i + 5] for i in range(0, len(digits), 5))


def verify(key: bytes, signature: bytes, label: Label, *parts: bytes) -> None:
    """Check a member's signature on the framed parts; raise `BadSignature` if it is invalid."""
    verify_framed(key, signature, frame(label, *parts))


def verify_framed(key: bytes, signature: bytes, statement: bytes) -> None:
    """Check a member's signature on a framed statement: one that many sign is framed once."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, statement)
    except (InvalidSignature, ValueError) as error:
        raise BadSignature(
            f"The signature is not by the member with the fingerprint {fingerprint(key)}, or not "
            "on this statement."
        ) from error


@dataclass(frozen=True, repr=False)
class Identity:
    """A member's signing key. Its repr shows the fingerprint, never the key."""

    _private: Ed25519PrivateKey
    key: bytes

    @classmethod
    def generate(cls, random: Randomness = os.urandom) -> Self:
        """Make a new identity: once per hospital, together with its journal."""
        return cls.from_bytes(random(32))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Restore an identity from the 32 private bytes of `to_bytes`."""
        if len(data) != IDENTITY_BYTES:
            raise InvalidKey(f"A private key must be {IDENTITY_BYTES} bytes, not {len(data)}.")
        private = Ed25519PrivateKey.from_private_bytes(data)
        return cls(private, private.public_key().public_bytes_raw())

    def to_bytes(self) -> bytes:
        """Return the private key, for the site's own key store and nowhere else."""
        return self._private.private_bytes_raw()

    @property
    def fingerprint(self) -> str:
        """The digits that colleagues compare by phone."""
        return fingerprint(self.key)

    def sign(self, label: Label, *parts: bytes) -> bytes:
        """Return the signature on the framed parts, for one purpose."""
        return self._private.sign(frame(label, *parts))

    def __repr__(self) -> str:
        return f"Identity({self.fingerprint})"


@dataclass(frozen=True)
class Member:
    """A name for people and the public key that is the member."""

    name: str
    key: bytes

    def __post_init__(self) -> None:
        check_key(self.key)
        if not self.name or len(self.name.encode()) > 200:
            raise RosterError("A member's name must have 1 to 200 bytes in UTF-8.")


@dataclass(frozen=True)
class Roster:
    """The members of a session, sorted by key; names and keys are unique."""

    members: tuple[Member, ...]
    keys: frozenset[bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", tuple(sorted(self.members, key=lambda m: m.key)))
        object.__setattr__(self, "keys", frozenset(member.key for member in self.members))
        if not 3 <= len(self.members) <= MAX_MEMBERS:
            raise RosterError(
                f"A roster must have 3 to {MAX_MEMBERS} members, not {len(self.members)}."
            )
        if len(self.keys) != len(self.members):
            raise RosterError("Two members of the roster have the same key; each needs its own.")
        if len({member.name for member in self.members}) != len(self.members):
            raise RosterError("Two members of the roster have the same name; rename one of them.")

    def digest(self) -> bytes:
        """Return one hash of all names and keys; it is part of every epoch's identifier."""
        return digest(
            Label.ROSTER, *(part for m in self.members for part in (m.name.encode(), m.key))
        )


@dataclass(frozen=True)
class Pins:
    """The keys of other members that a site knows: confirmed out of band, or only met.

    A key that was only met is *unpinned*: a site enters no epoch with its member, until a person
    has confirmed its fingerprint, or unless the site's policy says `trust_first_use`.
    """

    confirmed: Mapping[str, bytes] = field(default_factory=dict)
    met: Mapping[str, bytes] = field(default_factory=dict)
    trust_first_use: bool = False

    def __post_init__(self) -> None:
        for key in (*self.confirmed.values(), *self.met.values()):
            check_key(key)

    def meet(self, roster: Roster) -> "Pins":
        """Return the pins with the keys of a roster that are new to this site."""
        self.check_agree(roster)
        new = {m.name: m.key for m in roster.members if m.name not in self.confirmed}
        return replace(self, met={**self.met, **new})

    def confirm(self, name: str, read_out: str) -> "Pins":
        """Return the pins with a met key confirmed, if `read_out` is its fingerprint."""
        key = self.met.get(name)
        if key is None:
            raise FingerprintMismatch(
                f"There is no key of a member named {name!r} to confirm; check the name."
            )
        heard = "".join(read_out.split())
        if not hmac.compare_digest(heard.encode(), fingerprint(key).replace(" ", "").encode()):
            raise FingerprintMismatch(
                f"The digits do not match the key that the roster gives for {name!r}. Do not "
                "continue: compare them once more, and if they still differ, ask who gave you this "
                "roster."
            )
        rest = {other: k for other, k in self.met.items() if other != name}
        return replace(
            self,
            confirmed={**self.confirmed, name: key},
            met=rest,
        )

    def check_agree(self, roster: Roster) -> None:
        """Refuse a roster that gives a known name another key, or a known key another name."""
        known = {**self.met, **self.confirmed}
        names = {key: name for name, key in known.items()}
        for member in roster.members:
            if known.get(member.name, member.key) != member.key:
                raise PinConflict(
                    f"The roster has another key for {member.name!r} than the one pinned here. "
                    "If the member did change its key, remove the pin and confirm the new key."
                )
            if names.get(member.key, member.name) != member.name:
                raise PinConflict(
                    f"The roster gives the key pinned as {names[member.key]!r} to {member.name!r}. "
                    "Ask who gave you this roster."
                )

    def trusted(self, roster: Roster) -> frozenset[bytes]:
        """Return the keys of the roster that count as pinned."""
        self.check_agree(roster)
        pinned = set(self.confirmed.values())
        if self.trust_first_use:
            pinned |= set(self.met.values())
        return frozenset(pinned & roster.keys)
