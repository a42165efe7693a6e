"""A15: a plan whose sum could wrap around is refused by the hospital, before it computes."""

import struct
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

from privacy.encoding import Encoding
from privacy.errors import EncodingError, OutOfBound, TotalOutOfBound
from privacy.layout import Block, Layout
from privacy.securesum.errors import WrongEncoding, WrongVector

from .coordinator import LENGTH, Attacker

LAYOUT = Layout((Block("rows", (LENGTH,), bound=1e6, resolution=1.0),))


def test_an_encoding_for_fewer_clients_than_are_active_is_refused():
    """The encoding is valid for four clients, but the sum is over five."""
    lair = Attacker().open()
    for clients, fits in ((4, False), (5, True)):
        encoding = Encoding.finest(LAYOUT, max_clients=clients)
        task = lair.task(encoding=encoding.digest())
        if fits:
            lair.upload(task, 0, encoding=encoding)
        else:
            with pytest.raises(WrongEncoding):
                lair.upload(task, 0, encoding=encoding)


def test_an_encoding_of_another_length_than_the_task_is_refused():
    lair = Attacker().open()
    encoding = Encoding.finest(LAYOUT, max_clients=5)
    with pytest.raises(WrongEncoding):
        lair.upload(lair.task(encoding=encoding.digest(), length=LENGTH - 1), 0, encoding=encoding)


def test_an_encoding_that_overflows_by_construction_does_not_exist():
    encoding = Encoding.finest(LAYOUT, max_clients=5)
    (bits,) = encoding.fractional_bits
    with pytest.raises(EncodingError, match="overflow"):
        replace(encoding, fractional_bits=(bits + 1,))
    with pytest.raises(EncodingError, match="overflow"):
        replace(encoding, max_clients=1 << 20)
    data = encoding.to_bytes()
    at = data.index(struct.pack(">IHHh", 5, 1, 0, bits))
    crafted = data[:at] + struct.pack(">IHHh", 5, 1, 0, bits + 1) + data[at + 10 :]
    with pytest.raises(EncodingError, match="overflow"):
        Encoding.from_bytes(crafted)
    lair = Attacker().open()
    with pytest.raises(WrongEncoding):  # every hospital derives it, and none takes the task's word
        lair.upload(lair.task(encoding=sha256(crafted).digest()), 0, encoding=encoding)


@pytest.mark.parametrize(
    "vector",
    [
        np.zeros(LENGTH - 1, dtype="<u8"),
        np.zeros(LENGTH + 1, dtype="<u8"),
        np.zeros((LENGTH, 1), dtype="<u8"),
        np.zeros(LENGTH, dtype="<i8"),
        np.zeros(LENGTH, dtype=">u8"),
        np.zeros(LENGTH),
        [0] * LENGTH,
    ],
    ids=["short", "long", "matrix", "signed", "big-endian", "float", "list"],
)
def test_only_the_vector_that_was_asked_for_is_masked(vector):
    lair = Attacker().open()
    with pytest.raises(WrongVector):
        lair.upload(lair.task(), 0, vector=vector)


def test_a_task_of_impossible_length_allocates_nothing():
    lair = Attacker().open()
    with pytest.raises(WrongVector):
        lair.upload(lair.task(length=2**48 - 1), 0)


def test_a_value_beyond_its_bound_is_not_sent_and_a_total_beyond_it_is_not_believed():
    encoding = Encoding.finest(LAYOUT, max_clients=5)
    with pytest.raises(OutOfBound):
        encoding.encode({"rows": np.full(LENGTH, 1e6 + 1)})
    huge = np.full(LENGTH, 2**62, dtype="<u8")
    with pytest.raises(TotalOutOfBound):
        encoding.decode(huge, contributors=5)
