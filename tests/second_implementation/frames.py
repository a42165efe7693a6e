"""Canonical JSON, frames and signed requests: section 13 of docs/protocol.md."""

import json
from typing import Any

from .crypto import identity, sha256, sign
from .wire import Refused, require


def canonical(value: Any) -> bytes:
    """RFC 8785, for values without fractions: nothing else is in a frame's head."""
    return _text(value).encode()


def _text(value: Any) -> str:
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return "{" + ",".join(f"{_text(key)}:{_text(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    written = value is None or isinstance(value, str | bool)
    if not written and not (isinstance(value, int) and abs(value) < 2**53):
        raise ValueError(f"{value!r} is not written here")
    return json.dumps(value, ensure_ascii=False)


def write_frame(content: dict[str, Any], parts: list[tuple[str, bytes]]) -> bytes:
    """A frame of a content and named parts."""
    listed = [{"name": name, "bytes": len(data)} for name, data in parts]
    head = canonical({"content": content, "parts": listed})
    return len(head).to_bytes(4, "big") + head + b"".join(data for _, data in parts)


def read_frame(
    data: bytes, *, most_head: int, most: dict[str, int]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Content and parts of a frame whose parts have these names and at most these sizes."""
    size = int.from_bytes(data[:4], "big")
    require(len(data) >= 4 and size <= min(most_head, len(data) - 4), "frame.invalid", "head")
    head, rest = data[4 : 4 + size], data[4 + size :]
    try:
        parsed = json.loads(head)
        require(canonical(parsed) == head, "frame.invalid", "the head is not canonical")
    except (ValueError, RecursionError) as error:
        raise Refused("frame.invalid", "the head is not canonical JSON") from error
    require(isinstance(parsed, dict) and set(parsed) == {"content", "parts"}, "frame.invalid")
    content, listed = parsed["content"], parsed["parts"]
    require(isinstance(content, dict) and isinstance(listed, list), "frame.invalid")
    sizes: dict[str, int] = {}
    for part in listed:
        require(isinstance(part, dict) and set(part) == {"bytes", "name"}, "frame.invalid")
        name, length = part["name"], part["bytes"]
        require(isinstance(name, str) and name in most, "frame.invalid", "an unknown part")
        require(name not in sizes, "frame.invalid", "a part twice")
        require(type(length) is int and 0 <= length <= most[name], "frame.invalid", "too long")
        sizes[name] = length
    require(sum(sizes.values()) == len(rest), "frame.invalid", "parts and bytes differ")
    parts = {}
    for name, length in sizes.items():
        parts[name], rest = rest[:length], rest[length:]
    return content, parts


def authorization(
    secret: bytes, method: str, host: str, target: str, time_ms: int, nonce: bytes, body: bytes
) -> str:
    """The Authorization header of a request."""
    body_hash = sha256(body)
    parts = (method.encode(), host.encode(), target.encode(), time_ms.to_bytes(8, "big"))
    signature = sign(secret, "request", *parts, nonce, body_hash)
    return (
        f'Veilgp key="{identity(secret).hex()}", time="{time_ms}", nonce="{nonce.hex()}",'
        f' digest="{body_hash.hex()}", signature="{signature.hex()}"'
    )
