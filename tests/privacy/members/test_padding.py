"""Sizes of sealed states and archives: they do not follow from the digits of totals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.storage import encode
from privacy.members.padding import padded, unpadded
from privacy.securesum.errors import UnreadableBox
from tests.privacy.members.test_endorsement import Archived
from tests.privacy.securesum.test_blind import opened


@given(st.integers(0, 300_000))
def test_the_size_says_little_about_the_length(length):
    content = b"x" * length
    data = padded(content)
    assert unpadded(data) == content
    assert len(data) % 4096 == 0
    assert len(data) - length <= max(4096, length // 8) + 8
    # a longer content has at least this size: the step never shrinks
    assert len(padded(content + b"x")) >= len(data)


def test_states_of_other_totals_have_boxes_of_the_same_size():
    """The reviewer's finding: 2280, 2283 and 2274 bytes for three tables."""
    simulation = opened()
    client, epoch_id = simulation.sites[0].client, simulation.epoch.epoch_id
    states = [encode([float(total)] * 100) for total in (1 / 3, 2.5, 7.0, 12345.6789)]
    assert len({len(state) for state in states}) > 2
    boxes = [client.seal_state(epoch_id, 0, state)[1] for state in states]
    assert len({len(box) for box in boxes}) == 1


def test_archives_of_other_models_have_the_same_size():
    archived = Archived()
    assert len({len(archived.sealed(b"x" * n)[1]) for n in (0, 1000, 2274, 2280, 2283)}) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(7),
        (3).to_bytes(8, "big") + b"abc",
        padded(b"abc")[:-1],
        padded(b"abc") + bytes(1),
        padded(b"abc") + bytes(4096),
        padded(b"abc")[:-1] + b"\1",
        (4).to_bytes(8, "big") + padded(b"abc")[8:-1] + b"\1",
        (4089).to_bytes(8, "big") + bytes(4088),
        b"\xff" * 8 + bytes(4088),
    ],
)
def test_other_padding_is_refused(data):
    with pytest.raises(UnreadableBox):
        unpadded(data)
