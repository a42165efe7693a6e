"""A32: authors of blind tasks that lie, and sealed states that are not what they are sent as."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from client_sdk.conversation.replay import Needed
from client_sdk.errors import WrongTask
from client_sdk.home.remembered import Holding, KnownRun
from kernels.rounds.position import Position
from privacy.framing import Label, derive
from privacy.members.padding import padded
from privacy.securesum.errors import UnreadableState
from privacy.securesum.item_kinds import ItemKind
from privacy.securesum.messages import SealedState, Task, rank_bytes, slot_bytes
from privacy.securesum.simulator import Fault, Point

from .blind_run import SESSION, BlindRun, participation

AUTHOR, COLLUDER, VICTIM = 0, 2, 3


@pytest.fixture
def run() -> BlindRun:
    """Return a run after its first two sums."""
    run = BlindRun()
    run.sum()
    run.sum()
    return run


@pytest.mark.parametrize(
    "said",
    [{"length": 1}, {"length": 10_000}, {"statistic": "moments/9"}, {"statistic": "evaluation/1"}],
)
def test_a_task_with_a_true_state_and_another_length_or_statistic_is_objected_to(
    run: BlindRun, said: dict[str, Any]
) -> None:
    """Answered, it would ask for numbers that do not follow from the state."""
    task = run.draft(AUTHOR, run.newest(AUTHOR).newest, **said)
    assert run.answering(VICTIM, task) == Needed(objection=True)


def test_an_honest_task_is_answered(run: BlindRun) -> None:
    task = run.draft(AUTHOR, run.newest(AUTHOR).newest)
    assert isinstance(run.answering(VICTIM, task), Holding)


# -- a hospital that missed the totals, and takes a state from others


def sealed(run: BlindRun, rank: int, slot: int, state: Position) -> dict[str, bytes]:
    """Return a state, sealed by a member for a slot, as an item has it."""
    header, box = run.client(rank).seal_state(run.epoch.epoch_id, slot, state.encoded)
    return {"sealed_state": header.encode(), "state_box": box}


def answered(run: BlindRun) -> tuple[Task, Position]:
    """Return a task, and its state; all but the hospital that lost its positions have answered."""
    position = run.newest(AUTHOR).newest
    task = run.draft(AUTHOR, position)
    run.simulation.faults[VICTIM, Point.UPLOAD] = Fault.LATE
    run.upload(task, position)
    return task, position


def test_a_hospital_that_is_behind_needs_one_more_witness_than_may_collude(run: BlindRun) -> None:
    task, position = answered(run)
    state = sealed(run, AUTHOR, task.slot, position)
    lost = run.replay(VICTIM)
    assert run.answering(VICTIM, task, replay=lost) == Needed(objection=True, witnesses=True)
    assert run.answering(VICTIM, task, replay=lost, **state) == Needed(witnesses=True)
    said = state | {"witnesses": run.witnesses((COLLUDER,))}
    assert run.answering(VICTIM, task, replay=lost, **said) == Needed(witnesses=True)
    said = state | {"witnesses": run.witnesses((AUTHOR, COLLUDER))}
    assert isinstance(run.answering(VICTIM, task, replay=lost, **said), Holding)


@pytest.mark.parametrize(("by", "later"), [(AUTHOR, 1), (AUTHOR, -1), (COLLUDER, 0)])
def test_a_state_that_was_sealed_for_another_slot_or_by_another_member_is_not_taken(
    run: BlindRun, by: int, later: int
) -> None:
    """Even if it is the right state: its author has not sent it for this task."""
    task, position = answered(run)
    witnesses = {"witnesses": run.witnesses((AUTHOR, COLLUDER))}
    said = sealed(run, by, task.slot + later, position) | witnesses
    found = run.answering(VICTIM, task, replay=run.replay(VICTIM), **said)
    assert found == Needed(objection=True)


# -- boxes that a colluding member makes with the group key


def box_of(run: BlindRun, header: SealedState, content: bytes, *, pad: bool = True) -> bytes:
    """Return a box with another content under the key of a header, which K gives away."""
    place = header.epoch_id, slot_bytes(header.slot), rank_bytes(header.rank), header.salt
    key = derive(run.group_key(COLLUDER), Label.STATE_KEY, *place)
    return AESGCM(key).encrypt(bytes(12), padded(content) if pad else content, None)


def test_a_colluder_does_not_seal_states_in_the_name_of_others(run: BlindRun) -> None:
    epoch_id = run.epoch.epoch_id
    honest, _ = run.client(AUTHOR).seal_state(epoch_id, 2, b"state")
    box = box_of(run, honest, b"crafted")
    said = {**vars(honest), "box_hash": hashlib.sha256(box).digest()}
    del said["signature"]
    forged = SealedState.signed(run.site(COLLUDER).identity, **said)
    with pytest.raises(UnreadableState, match="not signed"):
        run.client(VICTIM).open_state(forged, box)


def test_a_colluder_does_not_exchange_the_box_of_a_signed_header(run: BlindRun) -> None:
    header, box = run.client(AUTHOR).seal_state(run.epoch.epoch_id, 2, b"state")
    assert run.client(VICTIM).open_state(header, box) == b"state"
    with pytest.raises(UnreadableState, match="another state"):
        run.client(VICTIM).open_state(header, box_of(run, header, b"crafted"))


def test_a_state_of_another_epoch_or_rank_is_not_opened(run: BlindRun) -> None:
    header, box = run.client(AUTHOR).seal_state(run.epoch.epoch_id, 2, b"state")
    beyond = replace(header, rank=run.epoch.size)
    with pytest.raises(UnreadableState, match="another epoch"):
        run.client(VICTIM).open_state(beyond, box)


def test_two_boxes_of_one_author_and_slot_share_no_keystream(run: BlindRun) -> None:
    """After a crash an author may seal another state: the XOR of two boxes would show both."""
    boxes = [run.client(AUTHOR).seal_state(run.epoch.epoch_id, 2, bytes(99))[1] for _ in range(2)]
    same = sum(a == b for a, b in zip(*boxes, strict=True))
    assert same < len(boxes[0]) / 16


# -- a coordinator that asks for what it has no right to


def test_a_hospital_seals_the_states_of_its_own_tasks_only(run: BlindRun) -> None:
    known = KnownRun(str(run.run.run), str(SESSION), "train", run.run.text)
    task = run.draft(AUTHOR, run.newest(AUTHOR).newest)
    item = run.item(ItemKind.SEAL, task, **run.closed)
    sent: list[Any] = []
    for rank in (1, 2, 3):
        with pytest.raises(WrongTask, match="by another member"):
            list(participation(run, rank, sent)._seal(item, known))
    assert not sent
    list(participation(run, AUTHOR, sent)._seal(item, known))
    assert len(sent) == 1


# -- sizes


def test_the_size_of_a_box_does_not_follow_from_the_state_in_it(run: BlindRun) -> None:
    """States of other totals have other numbers of digits; the coordinator sees sizes."""
    client, epoch_id = run.client(AUTHOR), run.epoch.epoch_id
    state = run.newest(AUTHOR).newest.encoded
    sizes = {len(client.seal_state(epoch_id, 2, state + bytes(n))[1]) for n in range(0, 90, 9)}
    assert len(sizes) == 1


def test_what_is_sealed_has_one_form(run: BlindRun) -> None:
    """An author with two forms for one state could tell something in its size."""
    header, box = run.client(AUTHOR).seal_state(run.epoch.epoch_id, 2, b"state")
    good = padded(b"state")
    for inside in (
        b"state",
        good[:13],
        good[:-1],
        good + bytes(4096),
        good[:-1] + b"\1",
        len(good).to_bytes(8, "big") + good[8:],
    ):
        other = box_of(run, header, inside, pad=False)
        said = {**vars(header), "box_hash": hashlib.sha256(other).digest()}
        del said["signature"]
        signed = SealedState.signed(run.site(AUTHOR).identity, **said)
        with pytest.raises(UnreadableState, match="not padded"):
            run.client(VICTIM).open_state(signed, other)
    assert run.client(VICTIM).open_state(header, box) == b"state"
