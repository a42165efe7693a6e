"""A19: announced lengths are checked against limits before anything is read or allocated."""

import struct

import pytest

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
