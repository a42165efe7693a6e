"""Frames are read as they were written, and whatever else arrives is refused by one named error."""

import json
from contextlib import suppress

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from privacy.errors import FrameError
from privacy.frames import Frame, Head, Limits, pieces

LIMITS = Limits(head=1000, parts={"message": 100, "delivery": 100, "total": 3 << 20})
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
CONTENT = st.dictionaries(TEXT, st.none() | st.booleans() | st.integers(-99, 99) | TEXT, max_size=5)
PARTS = st.dictionaries(st.sampled_from(["message", "delivery"]), st.binary(max_size=100))


def written(content: dict[str, object], parts: dict[str, bytes]) -> bytes:
    return b"".join(pieces(content, parts))


def framed(head: object, after: bytes = b"") -> bytes:
    raw = head if isinstance(head, bytes) else rfc8785.dumps(head)
    return len(raw).to_bytes(4, "big") + raw + after


def listed(*parts: tuple[object, object]) -> dict[str, object]:
    return {"content": {}, "parts": [{"bytes": size, "name": name} for name, size in parts]}


@given(CONTENT, PARTS)
def test_what_is_written_is_read(content: dict[str, object], parts: dict[str, bytes]) -> None:
    frame = Frame.read(written(content, parts), LIMITS)
    assert frame.content == content
    assert {name: frame.bytes(name) for name in frame.parts} == parts
    assert list(frame.parts) == list(parts)


@given(CONTENT, PARTS, st.data())
def test_a_truncated_or_longer_frame_is_refused(
    content: dict[str, object], parts: dict[str, bytes], data: st.DataObject
) -> None:
    whole = written(content, parts)
    cut = data.draw(st.integers(0, len(whole) - 1))
    for wrong in (whole[:cut], whole + b"\0"):
        with pytest.raises(FrameError):
            Frame.read(wrong, LIMITS)


@given(CONTENT, PARTS, st.data())
def test_a_changed_byte_changes_what_is_read_or_is_refused(
    content: dict[str, object], parts: dict[str, bytes], data: st.DataObject
) -> None:
    whole = bytearray(written(content, parts))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    try:
        frame = Frame.read(bytes(whole), LIMITS)
    except FrameError:
        return
    again = {name: bytes(part) for name, part in frame.parts.items()}
    assert written(dict(frame.content), again) == bytes(whole), "one frame, one sequence of bytes"


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_else(junk: bytes) -> None:
    for data in (junk, framed(junk)):
        with suppress(FrameError):
            Frame.read(data, LIMITS)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "4 bytes"),
        (b"\xff\xff\xff\xff", "at most 1000"),
        ((1001).to_bytes(4, "big") + b" " * 1001, "at most 1000"),
        (b"\0\0\0\x64{}", "ends within its head"),
        (framed([]), "exactly the fields"),
        (framed({"content": {}}), "exactly the fields"),
        (framed({"content": {}, "parts": [], "more": 1}), "exactly the fields"),
        (framed({"content": [], "parts": []}), "an object"),
        (framed({"content": {}, "parts": {}}), "a list"),
        (framed(listed(("message", 1), ("message", 1)), b"ab"), "twice"),
        (framed(listed(("state", 1)), b"a"), "not known here"),
        (framed(listed(("message", 101)), b"a" * 101), "at most 100"),
        (framed(listed(("total", 1 << 50))), "at most"),
        (framed(listed(("message", -1))), "number of bytes"),
        (framed(listed(("message", True)), b"a"), "number of bytes"),
        (framed(listed(("message", 0.5))), "number of bytes"),
        (framed(listed((7, 1)), b"a"), "number of bytes"),
        (framed({"content": {}, "parts": [["message", 1]]}, b"a"), "number of bytes"),
        (framed(listed(("message", 2)), b"a"), "must end with"),
        (framed(b'{"parts":[],"content":{}}'), "canonical"),
        (framed(b'{"content":{}, "parts":[]}'), "canonical"),
        (framed(b'{"content":{"a":1,"a":1},"parts":[]}'), "canonical"),
        (framed(b'{"content":{"a":NaN},"parts":[]}'), "canonical"),
        (framed(b'{"content":{"a":1.0},"parts":[]}'), "canonical"),
        (framed(b'{"content":' + b"[" * 400 + b"]" * 400 + b',"parts":[]}'), "an object"),
        (framed(json.dumps({"content": {"ä": 1}, "parts": []}).encode()), "canonical"),
        (framed(b"\xff"), "canonical"),
    ],
)
def test_what_is_wrong_is_named(data: bytes, says: str) -> None:
    with pytest.raises(FrameError, match=says):
        Frame.read(data, LIMITS)


def test_sizes_are_checked_before_any_part_is_read() -> None:
    head = rfc8785.dumps(listed(("total", 4 << 20)))
    assert Head.length(len(head).to_bytes(4, "big"), LIMITS) == len(head)
    with pytest.raises(FrameError, match="at most"):
        Head.read(head, LIMITS)
    assert LIMITS.whole == 4 + 1000 + 200 + (3 << 20)


def test_a_long_part_is_written_in_pieces_and_copied_nowhere() -> None:
    total = bytes(range(256)) * (10 << 10)
    written = pieces({}, {"total": memoryview(total)})
    assert [len(piece) for piece in written[1:]] == [1 << 20, 1 << 20, 512 << 10]
    assert all(isinstance(piece, memoryview) and piece.obj is total for piece in written[1:])
    data = b"".join(written)
    part = Frame.read(data, LIMITS).part("total")
    assert part is not None
    assert part.obj is data
    assert part == total


def test_only_plain_data_is_written() -> None:
    with pytest.raises(FrameError, match="plain JSON"):
        pieces({"a": b"bytes"}, {})
