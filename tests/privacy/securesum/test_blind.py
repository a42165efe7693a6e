"""Blind sums: members read the total, and what the coordinator unmasks is uniform."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.blinding import state_value, unblind, unblinded_residues
from privacy.encoding import Encoding
from privacy.layout import Block, Layout
from privacy.securesum.errors import (
    BlindTotal,
    OutOfOrder,
    TermsError,
    UnreadableState,
    WrongAuthor,
    WrongState,
)
from privacy.securesum.messages import UNNAMED, Task, Total
from privacy.securesum.simulator import Fault, Point, Simulation
from privacy.securesum.terms import Terms, default_terms

N = 5
TERMS = Terms(bytes(16), 1, 5, differential_privacy=False, blind=True)
ENCODING = Encoding.finest(Layout((Block("x", (4,), 100.0, 2.0**-20),)), max_clients=N)
STATE = bytes(range(32))


def opened(terms: Terms = TERMS, sites: int = N) -> Simulation:
    simulation = Simulation(sites, terms=terms)
    simulation.open_epoch()
    return simulation


def vectors(seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [ENCODING.encode({"x": rng.normal(size=4)}) for _ in range(N)]


@given(st.integers(3, 8), st.integers(0, 60), st.integers(0, 2**32))
@settings(max_examples=15)
def test_members_read_what_open_members_would(sites, length, seed):
    rng = np.random.default_rng(seed)
    own = [rng.integers(-(2**50), 2**50, length).view("<u8") for _ in range(sites)]
    simulation = opened(default_terms(bytes(16), sites, blind=True), sites)
    for _ in range(2):
        outcome = simulation.sum(own)
        assert outcome.total is not None
        assert np.array_equal(outcome.total, np.sum(own, axis=0, dtype=np.uint64))


def test_the_coordinator_cannot_read_a_total():
    simulation = opened()
    total = simulation.sum(vectors(), encoding=ENCODING, state=STATE).total
    slot = simulation.coordinator.slot
    with pytest.raises(BlindTotal):
        slot.ring_total()
    _, body = slot.total_message()
    assert not np.any(np.frombuffer(body, "<u8") == total)


def test_what_it_unmasks_is_uniform():
    """Bytes of many blinded totals of the same vectors, by chi-square; so are their residues."""
    simulation = opened()
    length, sums = 4096, 4
    zeros = [np.zeros(length, dtype="<u8")] * N
    bodies, residues = [], []
    for _ in range(sums):
        simulation.sum(zeros)
        total, body = simulation.coordinator.slot.total_message()
        bodies.append(bytes(body))
        residues.append((total.failed, *total.residues))
    counts = np.bincount(np.frombuffer(b"".join(bodies), np.uint8), minlength=256)
    expected = counts.sum() / 256
    assert ((counts - expected) ** 2 / expected).sum() < 255 + 6 * np.sqrt(2 * 255)
    assert len(set(bodies)) == sums
    assert len({r for each in residues for r in each}) > 16 * sums


def test_a_failing_site_is_known_to_members_only():
    simulation = opened()
    own = vectors()
    assert simulation.sum([None, *own[1:]]).failed
    assert not simulation.sum(own).failed
    # What the coordinator sees of `failed` is a uniform residue either way.
    assert simulation.coordinator.slot.total_message()[0].failed != 0


def test_no_pad_is_used_for_two_sums():
    """An abandoned slot is repeated in the next one: the same vectors under another pad."""
    simulation = opened()
    own = vectors()
    simulation.sum(own, encoding=ENCODING, state=STATE)
    first = bytes(simulation.coordinator.slot.total_message()[1])
    simulation.faults[2, Point.UPLOAD] = Fault.LATE
    for site in range(N - 1):
        simulation.faults[site, Point.UPLOAD] = Fault.LATE
    assert simulation.sum(own, encoding=ENCODING, state=STATE).proof is not None
    simulation.sum(own, encoding=ENCODING, state=STATE)
    again = bytes(simulation.coordinator.slot.total_message()[1])
    difference = np.frombuffer(first, "<u8") - np.frombuffer(again, "<u8")
    assert np.all(difference != 0)


def test_only_a_member_writes_tasks():
    simulation = opened()
    with pytest.raises(OutOfOrder):
        simulation.coordinator.begin(statistic="s", length=4)
    task = simulation.draft(statistic="s", length=4, encoding=ENCODING, state=STATE)
    victim = simulation.sites[3].client
    own = vectors()[3]
    answer = {"table": bytes(32), "state": STATE, "encoding": ENCODING}
    unsigned = replace(task, authors=(), authored=())
    forged = replace(task, authored=(bytes(64),))
    another = replace(task, authors=(1,))
    changed = replace(task, parameters=b"{}")
    for bad in (unsigned, forged, another, changed):
        with pytest.raises(WrongAuthor):
            victim.upload(bad, own, **answer)
    with pytest.raises(WrongState):
        victim.upload(task, own, table=bytes(32), state=UNNAMED, encoding=ENCODING)
    victim.upload(task, own, **answer)


def test_a_task_says_nothing_about_its_state():
    """Equal states have different values in each slot and epoch; nobody without K can compare."""
    values = set()
    for _ in range(2):
        simulation = opened()
        for _ in range(2):
            simulation.sum(vectors(), encoding=ENCODING, state=STATE)
            task = simulation.coordinator.slot.task
            assert task.encoding == UNNAMED
            values.add(task.state)
    assert len(values) == 4
    assert state_value(bytes(32), bytes(32), 0, state=STATE, encoding=UNNAMED) not in values


def test_an_open_session_takes_no_drafts_and_no_authors():
    simulation = opened(replace(TERMS, blind=False))
    task = simulation.coordinator.begin(
        statistic="s", length=4, state=STATE, encoding=ENCODING.digest()
    )
    authored = replace(task, authors=(0,), authored=(bytes(64),))
    with pytest.raises(WrongAuthor):
        simulation.sites[0].client.upload(
            authored, vectors()[0], table=bytes(32), state=STATE, encoding=ENCODING
        )


def test_a_sealed_state_is_for_one_slot_of_one_epoch_and_its_members():
    simulation, stranger = opened(), opened()
    author, reader = simulation.sites[0].client, simulation.sites[4].client
    epoch_id = simulation.epoch.epoch_id
    header, box = author.seal_state(epoch_id, 3, b"state")
    assert reader.open_state(header, box) == b"state"
    assert author.seal_state(epoch_id, 3, b"state")[1] != box, "a fresh salt for every box"
    another, _ = author.seal_state(epoch_id, 4, b"state")
    for bad, content in (
        (header, box[:-1] + bytes([box[-1] ^ 1])),
        (replace(header, slot=4), box),
        (replace(header, rank=1), box),
        (replace(header, salt=bytes(32)), box),
        (another, box),
    ):
        with pytest.raises(UnreadableState):
            reader.open_state(bad, content)
    entry = stranger.sites[0].client
    with pytest.raises(Exception, match="not agreed"):
        entry.open_state(header, box)


def test_a_changed_blind_total_is_refused_by_every_member():
    simulation = opened()
    simulation.sum(vectors(), encoding=ENCODING, state=STATE)
    slot = simulation.coordinator.slot
    total, body = slot.total_message()
    assert slot.certificate is not None
    changed = bytearray(body)
    changed[5] ^= 1
    other = Total(**{**vars(total), "failed": (total.failed + 1) % (2**31 - 1)})
    for site in simulation.sites:
        for message, data in ((total, bytes(changed)), (other, bytes(body))):
            with pytest.raises(Exception, match="not what the members"):
                site.client.verify_total(message, data, slot.certificate)


def test_terms_that_contradict_each_other_are_refused():
    with pytest.raises(TermsError, match="differential privacy"):
        Terms(bytes(16), 1, 5, differential_privacy=True, blind=True)
    with pytest.raises(TermsError, match="members"):
        Terms(bytes(16), 1, 5, differential_privacy=False, blind=False, members_only=True)


def test_pads_cancel():
    key, context = bytes(32), bytes(32)
    data = np.arange(9, dtype="<u8")
    unblind(data, key, context)
    assert not np.array_equal(data, np.arange(9))
    assert unblinded_residues((0,) * 17, key, context) != (0,) * 17


def test_the_wire_form_of_a_task_keeps_its_author():
    simulation = opened()
    task = simulation.draft(statistic="s", length=4, encoding=ENCODING, state=STATE)
    assert Task.decode(task.encode()) == task
    assert task.draft is not None
    assert task.draft.rank == 0
