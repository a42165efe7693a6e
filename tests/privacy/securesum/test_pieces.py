"""A vector may arrive in pieces: the total is the same, and memory is that of one piece."""

import io
import tracemalloc

import numpy as np
import pytest

from privacy.securesum.errors import WrongBody
from privacy.securesum.masking import body_bytes
from privacy.securesum.messages import Upload
from privacy.securesum.simulator import TABLE, Simulation

LENGTH = 1 << 20
PIECE = 1 << 16


@pytest.fixture
def uploads() -> tuple[Simulation, list[tuple[Upload, memoryview]]]:
    simulation = Simulation(3)
    simulation.open_epoch()
    task = simulation.coordinator.begin(statistic="pieces", length=LENGTH)
    made = []
    for number, site in enumerate(simulation.sites):
        vector = np.full(LENGTH, number + 1, dtype=np.uint64)
        step = site.client.upload(task, vector, table=TABLE)
        made.append((step.message, step.body))
    return simulation, made


def test_pieces_add_up_to_the_whole(
    uploads: tuple[Simulation, list[tuple[Upload, memoryview]]],
) -> None:
    simulation, made = uploads
    slot = simulation.coordinator.slot
    tracemalloc.start()
    stored = []
    for header, body in made:
        with io.BufferedReader(_Body(body)) as file:
            pieces = slot.add_in_pieces(header, body.nbytes, file.read, piece=PIECE)
            stored = [len(piece) for piece in pieces]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(stored) == body_bytes(LENGTH)
    assert max(stored) == PIECE
    assert peak < 20 * PIECE < 8 * LENGTH
    outcome = simulation.finish(slot.propose())
    assert outcome.total is not None
    assert set(outcome.total) == {1 + 2 + 3}


def test_a_repeat_in_pieces_counts_once_and_a_wrong_size_not_at_all(
    uploads: tuple[Simulation, list[tuple[Upload, memoryview]]],
) -> None:
    simulation, made = uploads
    slot = simulation.coordinator.slot
    header, body = made[0]
    with pytest.raises(WrongBody):
        next(slot.add_in_pieces(header, body.nbytes - 8, io.BytesIO(body).read, piece=PIECE))
    assert slot.uploaded == ()
    list(slot.add_in_pieces(header, body.nbytes, io.BytesIO(body).read, piece=PIECE))
    before = slot.state()
    assert list(slot.add_in_pieces(header, body.nbytes, io.BytesIO().read, piece=PIECE)) == []
    assert slot.state() == before


class _Body(io.RawIOBase):
    """A file whose content is not in the measured memory of this process."""

    def __init__(self, body: memoryview) -> None:
        self._body, self._at = body, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        piece = self._body[self._at : self._at + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)
