"""Frames: a JSON object and named parts of raw bytes in one body, for what members receive.

    length of the head, u32 big-endian | head | bytes of part 1 | bytes of part 2 | …

The head is canonical JSON (RFC 8785) of exactly two fields: `content`, an object, and `parts`, a
list of `{"bytes": …, "name": …}` in the order in which the parts follow. Nothing follows the last
part. Bytes travel as they are: base64 in JSON would be a third longer and would be copied twice.

Everything is checked before it is used: the head's length before the head is read, names and sizes
before any part is. The reader states which parts it knows and how long each may be (`Limits`).
`pieces` and `Frame` copy no part: a frame is written piece by piece, and its parts are views of
what was received.

>>> data = b"".join(pieces({"kind": "task"}, {"message": b"abc", "delivery": b""}))
>>> data[4:].decode()
'{"content":{"kind":"task"},"parts":[{"bytes":3,"name":"message"},{"bytes":0,"name":"delivery"}]}abc'
>>> frame = Frame.read(data, Limits(head=1000, parts={"message": 10, "delivery": 10}))
>>> frame.content["kind"], frame.bytes("message"), frame.part("state")
('task', b'abc', None)
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, final

import rfc8785

from privacy.errors import FrameError

MEDIA_TYPE = "application/vnd.veilgp.frame"
_LENGTH_BYTES = 4
_PIECE = 1 << 20
"""Bytes of the longest piece that is written at once."""


@final
@dataclass(frozen=True)
class Limits:
    """The most bytes of the head, and of each part by its name; other parts are refused."""

    head: int
    parts: Mapping[str, int]

    @property
    def whole(self) -> int:
        """The most bytes of a frame."""
        return _LENGTH_BYTES + self.head + sum(self.parts.values())


def pieces(
    content: Mapping[str, object], parts: Mapping[str, bytes | memoryview]
) -> tuple[bytes | memoryview, ...]:
    """Return a frame as its head and pieces of at most a megabyte; no part is copied."""
    listed = [{"bytes": memoryview(part).nbytes, "name": name} for name, part in parts.items()]
    plain: Any = {"content": dict(content), "parts": listed}
    try:
        head = rfc8785.dumps(plain)
    except ValueError as error:
        raise FrameError(f"a frame's content must be plain JSON data: {error}") from error
    views = [memoryview(part).cast("B") for part in parts.values()]
    slices = (
        view[start : start + _PIECE] for view in views for start in range(0, len(view), _PIECE)
    )
    return (len(head).to_bytes(_LENGTH_BYTES, "big") + head, *slices)


@final
@dataclass(frozen=True)
class Head:
    """What a frame states before its parts: its content, and each part's size by name, in order."""

    content: Mapping[str, Any]
    sizes: Mapping[str, int]

    @classmethod
    def length(cls, start: bytes | memoryview, limits: Limits) -> int:
        """Return the head's length from the first 4 bytes of a frame."""
        if len(start) < _LENGTH_BYTES:
            raise FrameError("a frame must begin with 4 bytes: the length of its head")
        length = int.from_bytes(start[:_LENGTH_BYTES], "big")
        if length > limits.head:
            raise FrameError(f"a frame's head has {length} bytes; at most {limits.head} are read")
        return length

    @classmethod
    def read(cls, raw: bytes, limits: Limits) -> Self:
        """Read a head without its length; refuse parts that are unknown, repeated or too long."""
        try:
            plain = json.loads(raw)
            canonical = rfc8785.dumps(plain) == raw
        except (ValueError, RecursionError) as error:
            raise FrameError("a frame's head must be canonical JSON (RFC 8785)") from error
        if not canonical:
            raise FrameError("a frame's head must be canonical JSON (RFC 8785)")
        if not isinstance(plain, dict) or plain.keys() != {"content", "parts"}:
            raise FrameError("a frame's head must have exactly the fields content and parts")
        content, listed = plain["content"], plain["parts"]
        if not isinstance(content, dict) or not isinstance(listed, list):
            raise FrameError("a frame's content must be an object, and its parts a list")
        sizes: dict[str, int] = {}
        for each in listed:
            name, size = _part(each)
            if name in sizes:
                raise FrameError(f"a frame lists its part {name!r} twice")
            if name not in limits.parts:
                raise FrameError(f"a frame has a part {name!r:.60} that is not known here")
            if size > limits.parts[name]:
                raise FrameError(
                    f"a frame's part {name!r} has {size} bytes; at most {limits.parts[name]} are "
                    "read"
                )
            sizes[name] = size
        return cls(content, sizes)


def _part(each: object) -> tuple[str, int]:
    if isinstance(each, dict) and each.keys() == {"bytes", "name"}:
        name, size = each["name"], each["bytes"]
        if isinstance(name, str) and type(size) is int and size >= 0:
            return name, size
    raise FrameError("each of a frame's parts must have a name and a number of bytes")


@final
@dataclass(frozen=True)
class Frame:
    """A frame that was received: its content, and its parts as views of the received bytes."""

    content: Mapping[str, Any]
    parts: Mapping[str, memoryview] = field(repr=False)

    @classmethod
    def read(cls, data: bytes | memoryview, limits: Limits) -> Self:
        """Read a whole frame; `data` is not trusted."""
        view = memoryview(data)
        start = _LENGTH_BYTES + Head.length(view, limits)
        if start > len(view):
            raise FrameError("a frame ends within its head")
        head = Head.read(bytes(view[_LENGTH_BYTES:start]), limits)
        if start + sum(head.sizes.values()) != len(view):
            raise FrameError("a frame must end with the last of the parts that its head lists")
        parts: dict[str, memoryview] = {}
        for name, size in head.sizes.items():
            parts[name] = view[start : start + size]
            start += size
        return cls(head.content, parts)

    def part(self, name: str) -> memoryview | None:
        """Return a part, or None if the frame does not have it."""
        return self.parts.get(name)

    def bytes(self, name: str) -> bytes | None:
        """Return a copy of a part, or None if the frame does not have it."""
        part = self.parts.get(name)
        return None if part is None else part.tobytes()
