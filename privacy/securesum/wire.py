"""One canonical binary form for every message, journal record and saved state.

A message is a frozen dataclass whose annotations say how each field is encoded:

    version (1 byte) | kind (1 byte) | fields in order, big-endian, lengths first

There is exactly one encoding of a value, and decoding accepts nothing else: a wrong version or
kind, a field out of range, a list that is not ascending, a missing byte and an extra byte are
separate errors. The same checks run when a message is made in the program, so every message object
is well-formed.
"""

import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar, get_type_hints

from privacy.errors import BadSignature
from privacy.framing import Label
from privacy.identity import IDENTITY_BYTES, MAX_MEMBERS, SIGNATURE_BYTES, Identity, verify
from privacy.securesum.errors import (
    BadField,
    MalformedMessage,
    NotAscending,
    TrailingBytes,
    Truncated,
    WrongKind,
    WrongVersion,
)

VERSION = 2

Value = TypeVar("Value")
Inner = TypeVar("Inner", bound="Message")


class Reader:
    """Reads bytes from the front of a buffer, and never beyond its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        end = self._at + count
        if end > len(self._data):
            raise Truncated(f"The message ends too early: {count} bytes expected at {self._at}.")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def number(self, count: int) -> int:
        """Return the next `count` bytes as an unsigned integer."""
        return int.from_bytes(self.take(count), "big")

    def finish(self) -> None:
        """Refuse bytes that are left over."""
        if self._at != len(self._data):
            raise TrailingBytes(
                f"The message must end after its last field; {len(self._data) - self._at} bytes "
                "follow."
            )


def check_version(found: int, what: str) -> None:
    """Refuse another version of the protocol, and say which side to upgrade."""
    if found != VERSION:
        older = "at the side that sent or stored it" if found < VERSION else "here"
        raise WrongVersion(
            f"{what}: protocol version {found}, but this veilgp uses version {VERSION}. Upgrade "
            f"veilgp {older}."
        )


class Codec(ABC, Generic[Value]):
    """The encoding of one field, and the values that it may have."""

    @abstractmethod
    def check(self, value: object) -> None:
        """Raise `MalformedMessage` unless the field may have this value."""

    @abstractmethod
    def write(self, value: Value) -> bytes:
        """Return the only encoding of a checked value."""

    @abstractmethod
    def read(self, reader: Reader) -> Value:
        """Read and return a value; its range is checked when the message is made."""


@dataclass(frozen=True)
class Uint(Codec[int]):
    """An unsigned integer of `size` bytes."""

    size: int

    def check(self, value: object) -> None:
        """Accept integers from 0 to 2^(8·size) − 1."""
        if type(value) is not int or not 0 <= value < 1 << (8 * self.size):
            raise BadField(f"must be an unsigned integer of {self.size} bytes")

    def write(self, value: int) -> bytes:
        """Big-endian."""
        return value.to_bytes(self.size, "big")

    def read(self, reader: Reader) -> int:
        """Big-endian."""
        return reader.number(self.size)


@dataclass(frozen=True)
class Flag(Codec[bool]):
    """A boolean in one byte: 0 or 1 and nothing else."""

    def check(self, value: object) -> None:
        """Accept True and False."""
        if type(value) is not bool:
            raise BadField("must be True or False")

    def write(self, value: object) -> bytes:
        """One byte."""
        return b"\1" if value else b"\0"

    def read(self, reader: Reader) -> bool:
        """One byte, 0 or 1."""
        byte = reader.take(1)
        if byte not in (b"\0", b"\1"):
            raise BadField("a flag must be the byte 0 or 1")
        return byte == b"\1"


@dataclass(frozen=True)
class Fixed(Codec[bytes]):
    """Exactly `size` bytes."""

    size: int

    def check(self, value: object) -> None:
        """Accept exactly `size` bytes."""
        if type(value) is not bytes or len(value) != self.size:
            raise BadField(f"must be {self.size} bytes")

    def write(self, value: bytes) -> bytes:
        """Return the bytes unchanged."""
        return value

    def read(self, reader: Reader) -> bytes:
        """Read `size` bytes."""
        return reader.take(self.size)


@dataclass(frozen=True)
class Blob(Codec[bytes]):
    """At most `limit` bytes, length first."""

    limit: int

    def check(self, value: object) -> None:
        """Accept bytes up to the limit."""
        if type(value) is not bytes or len(value) > self.limit:
            raise BadField(f"must be bytes, at most {self.limit} of them")

    def write(self, value: bytes) -> bytes:
        """Length in eight bytes, then the bytes."""
        return len(value).to_bytes(8, "big") + value

    def read(self, reader: Reader) -> bytes:
        """Refuse a length above the limit before reading further."""
        length = reader.number(8)
        if length > self.limit:
            raise BadField(f"{length} bytes announced, at most {self.limit} allowed")
        return reader.take(length)


@dataclass(frozen=True)
class Text(Codec[str]):
    """UTF-8 of at most `limit` bytes."""

    limit: int

    def check(self, value: object) -> None:
        """Accept strings whose UTF-8 is within the limit."""
        if type(value) is not str:
            raise BadField("must be a string")
        try:
            length = len(value.encode())
        except UnicodeEncodeError as error:
            raise BadField("must not contain lone surrogates") from error
        if length > self.limit:
            raise BadField(f"must have at most {self.limit} bytes in UTF-8, not {length}")

    def write(self, value: str) -> bytes:
        """Length, then UTF-8."""
        return Blob(self.limit).write(value.encode())

    def read(self, reader: Reader) -> str:
        """Strict UTF-8."""
        try:
            return Blob(self.limit).read(reader).decode()
        except UnicodeDecodeError as error:
            raise BadField("text must be valid UTF-8") from error


@dataclass(frozen=True)
class Ranks(Codec[tuple[int, ...]]):
    """A set of members by their rank, strictly ascending, two bytes each."""

    def check(self, value: object) -> None:
        """Accept a strictly ascending tuple of ranks."""
        if type(value) is not tuple or len(value) > MAX_MEMBERS:
            raise BadField(f"must be a tuple of at most {MAX_MEMBERS} ranks")
        last = -1
        for rank in value:
            if type(rank) is not int or not 0 <= rank < MAX_MEMBERS:
                raise BadField(f"a rank must be an integer from 0 to {MAX_MEMBERS - 1}")
            if rank <= last:
                raise NotAscending("ranks must be unique and in ascending order")
            last = rank

    def write(self, value: tuple[int, ...]) -> bytes:
        """Count, then ranks."""
        return struct.pack(f">{len(value) + 1}H", len(value), *value)

    def read(self, reader: Reader) -> tuple[int, ...]:
        """Count, then ranks."""
        count = reader.number(2)
        return struct.unpack(f">{count}H", reader.take(2 * count))


@dataclass(frozen=True)
class Rows(Codec[tuple[bytes, ...]]):
    """A list of byte strings of `size` bytes each: keys, signatures, shares."""

    size: int

    def check(self, value: object) -> None:
        """Accept a tuple of byte strings of this size."""
        if type(value) is not tuple or len(value) > MAX_MEMBERS:
            raise BadField(f"must be a tuple of at most {MAX_MEMBERS} rows")
        for row in value:
            if type(row) is not bytes or len(row) != self.size:
                raise BadField(f"a row must be {self.size} bytes")

    def write(self, value: tuple[bytes, ...]) -> bytes:
        """Count, then the rows."""
        return len(value).to_bytes(2, "big") + b"".join(value)

    def read(self, reader: Reader) -> tuple[bytes, ...]:
        """Count, then the rows."""
        count = reader.number(2)
        data = reader.take(self.size * count)
        return tuple(data[i : i + self.size] for i in range(0, len(data), self.size))


@dataclass(frozen=True)
class Many(Codec[tuple[Inner, ...]]):
    """A list of at most `limit` messages of one kind, each without its two-byte header."""

    message: type[Inner]
    limit: int

    def check(self, value: object) -> None:
        """Accept a tuple of messages of this kind."""
        if type(value) is not tuple or len(value) > self.limit:
            raise BadField(f"must be a tuple of at most {self.limit} messages")
        for item in value:
            if type(item) is not self.message:
                raise BadField(f"an item must be of type {self.message.__name__}")

    def write(self, value: tuple[Inner, ...]) -> bytes:
        """Count in four bytes, then the items."""
        return len(value).to_bytes(4, "big") + b"".join(item.fields_encoded() for item in value)

    def read(self, reader: Reader) -> tuple[Inner, ...]:
        """Refuse a count above the limit before reading items."""
        count = reader.number(4)
        if count > self.limit:
            raise BadField(f"{count} items announced, at most {self.limit} allowed")
        return tuple(self.message.read_fields(reader) for _ in range(count))


@dataclass(frozen=True)
class One(Codec[Inner]):
    """A message inside another, without its two-byte header."""

    message: type[Inner]

    def check(self, value: object) -> None:
        """Accept a message of this kind."""
        if type(value) is not self.message:
            raise BadField(f"must be of type {self.message.__name__}")

    def write(self, value: Inner) -> bytes:
        """Its fields."""
        return value.fields_encoded()

    def read(self, reader: Reader) -> Inner:
        """Its fields."""
        return self.message.read_fields(reader)


Digest = Annotated[bytes, Fixed(32)]
Key = Annotated[bytes, Fixed(IDENTITY_BYTES)]
Signature = Annotated[bytes, Fixed(SIGNATURE_BYTES)]
Uuid = Annotated[bytes, Fixed(16)]
Rank = Annotated[int, Uint(2)]
Counter = Annotated[int, Uint(4)]
RankSet = Annotated[tuple[int, ...], Ranks()]
Keys = Annotated[tuple[bytes, ...], Rows(IDENTITY_BYTES)]
Signatures = Annotated[tuple[bytes, ...], Rows(SIGNATURE_BYTES)]

UNSIGNED = bytes(SIGNATURE_BYTES)
"""A placeholder for a signature that is not made yet."""


@dataclass(frozen=True)
class Message:
    """Plain data with one canonical form. Subclasses are frozen dataclasses with a `kind`."""

    kind: ClassVar[int]

    def __post_init__(self) -> None:
        values = self.__dict__
        try:
            for name, codec in self._codecs():
                codec.check(values[name])
        except MalformedMessage as error:
            raise type(error)(f"{type(self).__name__}.{name}: {error}") from None
        self.check()

    @classmethod
    @cache
    def _codecs(cls) -> tuple[tuple[str, Codec[Any]], ...]:
        """Return the fields in order, each with its codec; computed once per class."""
        hints = get_type_hints(cls, include_extras=True)
        return tuple((each.name, hints[each.name].__metadata__[0]) for each in fields(cls))

    def check(self) -> None:
        """Check the fields against each other; subclasses override it."""

    def encode(self) -> bytes:
        """Return the only encoding of this message."""
        return bytes((VERSION, self.kind)) + self.fields_encoded()

    def fields_encoded(self, *, but: str = "") -> bytes:
        """Return the encoded fields without the two-byte header and the field named `but`."""
        values = self.__dict__
        return b"".join(
            [codec.write(values[name]) for name, codec in self._codecs() if name != but]
        )

    @classmethod
    def read_fields(cls, reader: Reader) -> Self:
        """Read the fields of a message of this kind."""
        return cls(**{name: codec.read(reader) for name, codec in cls._codecs()})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a message of this kind, and nothing else, from bytes."""
        if type(data) is not bytes:
            raise BadField(f"{cls.__name__}: a message must be bytes, not {type(data).__name__}.")
        reader = Reader(data)
        check_version(reader.number(1), cls.__name__)
        if reader.number(1) != cls.kind:
            raise WrongKind(f"{cls.__name__}: the bytes are a message of another kind.")
        message = cls.read_fields(reader)
        reader.finish()
        return message


@dataclass(frozen=True)
class SignedMessage(Message):
    """A message whose last field, `signature`, is its sender's signature on all other fields."""

    label: ClassVar[Label]

    @classmethod
    def signed(cls, identity: Identity, /, **values: Any) -> Self:
        """Return a new message, signed."""
        unsigned = {**values, "signature": UNSIGNED}
        message = cls(**unsigned)
        signature = identity.sign(cls.label, message.fields_encoded(but="signature"))
        object.__setattr__(message, "signature", signature)  # nobody has seen it unsigned
        return message

    def check_signed_by(self, key: bytes, error: type[Exception], who: str) -> None:
        """Raise `error`, naming `who`, unless the signature is by `key`."""
        signature: bytes = self.__dict__["signature"]
        try:
            verify(key, signature, self.label, self.fields_encoded(but="signature"))
        except BadSignature as reason:
            raise error(f"{who}: {reason}") from None
