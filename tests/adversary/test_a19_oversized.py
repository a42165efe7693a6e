"""A19: announced lengths are checked against limits before anything is read or allocated."""

import struct

import pytest

from privacy.errors import FrameError
from privacy.frames import Frame, Head, Limits
from privacy.securesum.errors import BadField, MalformedMessage, NotAscending, Truncated
from privacy.securesum.messages import Adverts, Proposal, Task
from privacy.securesum.wire import VERSION

from .coordinator import Attacker


def test_a_count_or_length_that_announces_too_much_is_refused():
    with pytest.raises(BadField):
        Adverts.decode(bytes((VERSION, Adverts.kind)) + struct.pack(">I", 2**32 - 1))
    with pytest.raises(BadField):
        Adverts.decode(bytes((VERSION, Adverts.kind)) + struct.pack(">I", 201))
    with pytest.raises(Truncated):
        Adverts.decode(bytes((VERSION, Adverts.kind)) + struct.pack(">I", 200))
    head = bytes((VERSION, Task.kind)) + bytes(32) + bytes(4)
    with pytest.raises(BadField):
        Task.decode(head + struct.pack(">Q", 2**63))
    with pytest.raises(Truncated):
        Task.decode(head + struct.pack(">Q", 200) + b"short")


def test_ranks_are_few_small_and_ascending():
    lair = Attacker().open()
    proposal = lair.proposal(lair.task())
    start = proposal.encode()[: 2 + 32 + 4 + 32]
    for ranks, error in (
        ((0, 1, 1), NotAscending),
        ((1, 0), NotAscending),
        ((0, 200), BadField),
        (tuple(range(201)), BadField),
    ):
        packed = struct.pack(f">{len(ranks) + 1}H", len(ranks), *ranks)
        with pytest.raises(error):
            Proposal.decode(start + packed + packed)


@pytest.mark.parametrize("wrong", [True, 1.0, "0", None, -1])
def test_a_rank_is_a_plain_number(wrong):
    lair = Attacker().open()
    with pytest.raises(MalformedMessage):
        lair.task(active=(wrong,))


def test_a_frame_announces_its_head_and_parts_and_neither_is_read_if_too_long():
    limits = Limits(head=100, parts={"message": 8})
    with pytest.raises(FrameError, match="at most 100"):
        Head.length(struct.pack(">I", 2**32 - 1), limits)
    for size in (9, 2**50):
        head = b'{"content":{},"parts":[{"bytes":%d,"name":"message"}]}' % size
        with pytest.raises(FrameError, match="at most 8"):
            Head.read(head, limits)
        with pytest.raises(FrameError, match="at most 8"):
            Frame.read(struct.pack(">I", len(head)) + head + bytes(min(size, 9)), limits)


def test_a_frame_has_each_part_once_and_nothing_after_the_last():
    limits = Limits(head=200, parts={"message": 8})
    part = b'{"bytes":1,"name":"message"}'
    twice = part + b"," + part
    for listed, after in ((twice, b"ab"), (twice, b"a"), (part, b"ab"), (part, b"")):
        head = b'{"content":{},"parts":[' + listed + b"]}"
        with pytest.raises(FrameError):
            Frame.read(struct.pack(">I", len(head)) + head + after, limits)
