"""A1: hospitals that were sent different things use masks that do not cancel, or refuse."""

from dataclasses import replace

import numpy as np
import pytest

from privacy.identity import Member, Pins, Roster
from privacy.securesum.errors import (
    DifferentTask,
    ForgedBox,
    SecondTask,
    TermsChanged,
    WrongState,
)
from privacy.securesum.messages import UNNAMED, Adverts
from privacy.securesum.terms import Terms

from .coordinator import SESSION, Attacker, Lair, is_noise

CRAFTED = b"crafted " * 4


@pytest.fixture
def lair() -> Lair:
    return Attacker().open()


@pytest.mark.parametrize(
    "change",
    [
        {"statistic": "moments/2"},
        {"parameters": b"weights that only the victim's rows survive"},
        {"state": CRAFTED},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_task_crafted_for_all_but_the_victim_leaves_noise(lair, change):
    """The attacker of [Pasquini22]: everyone except the victim contributes a known vector."""
    task, crafted = lair.task(), lair.task(**change)
    lair.upload(task, 0)
    seen = change.get("state", UNNAMED)
    nothing = np.zeros_like(lair.members[0].vector)
    for rank in (1, 2, 3, 4):
        lair.upload(crafted, rank, vector=nothing, state=seen)
        lair.self_keys[lair.context(crafted), rank] = lair.stolen_self_key(rank)
    lair.self_keys[lair.context(task), 0] = lair.stolen_self_key(0)
    # Even with every self key, as after a certificate, the pair masks remain.
    assert is_noise(lair.unmask(task, [0]))
    assert is_noise(lair.unmask(task, [0]) + lair.unmask(crafted, (1, 2, 3, 4)))
    # And no quorum signs either view.
    with pytest.raises(DifferentTask):
        lair.certify(lair.proposal(task), 1)
    with pytest.raises(DifferentTask):
        lair.certify(lair.proposal(crafted), 0)


def test_the_honest_task_gives_the_sum_with_the_same_keys(lair):
    """The honest counterpart of the test above: one task for all, the victim is in the sum."""
    task = lair.task()
    nothing = np.zeros_like(lair.members[0].vector)
    for rank in lair.everyone:
        lair.upload(task, rank, **({} if rank == 0 else {"vector": nothing}))
        lair.self_keys[lair.context(task), rank] = lair.stolen_self_key(rank)
    np.testing.assert_array_equal(lair.unmask(task, lair.everyone), lair.members[0].vector)


def test_active_members_that_differ_by_client_leave_noise():
    """The victim is told of five active members, the others of four without the victim."""
    lair = Attacker(private=True).open()
    five, four = lair.task(), lair.task(active=(1, 2, 3, 4))
    lair.upload(five, 0)
    lair.uploads(four)
    for rank in four.active:
        lair.self_keys[lair.context(four), rank] = lair.stolen_self_key(rank)
    lair.self_keys[lair.context(five), 0] = lair.stolen_self_key(0)
    lair.corrupt(4)
    assert is_noise(lair.unmask(five, [0]))
    with pytest.raises(DifferentTask):
        lair.certify(lair.proposal(five), 1)
    forged = replace(lair.proposal(five), context=lair.context(four))
    with pytest.raises(DifferentTask):
        lair.certify(forged, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"epoch_id": bytes(32)},
        {"slot": 1},
        {"statistic": "moments/2"},
        {"parameters": b"1"},
        {"encoding": CRAFTED},
        {"length": 255},
        {"active": (0, 1, 2, 3)},
        {"state": CRAFTED},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_part_of_a_task_is_in_its_context(lair, change):
    assert lair.context(lair.task(**change)) != lair.context(lair.task())


def test_one_context_with_other_active_members_is_another_task():
    """Only the list of active members differs between the claim and the upload."""
    lair = Attacker(private=True).open()
    task = lair.task()
    lair.uploads(task)
    claim = replace(lair.proposal(task, (1, 2, 3, 4)), active=(1, 2, 3, 4))
    with pytest.raises(DifferentTask):
        lair.certify(claim, 1)


def test_a_slot_is_answered_for_one_task_only(lair):
    lair.uploads(lair.task())
    for change in ({"statistic": "other"}, {"state": CRAFTED}, {"length": 255}):
        with pytest.raises(SecondTask):
            lair.upload(lair.task(**change), 0, state=CRAFTED)


def test_a_state_that_the_task_does_not_name_is_not_answered(lair):
    with pytest.raises(WrongState):
        lair.upload(lair.task(), 0, state=CRAFTED)


# -- the session's own views


@pytest.mark.parametrize(
    "change",
    [
        {"max_colluders": 0},
        {"min_cohort": 4},
        {"differential_privacy": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_terms_cannot_be_lowered_after_a_session_was_joined(change):
    attacker = Attacker()
    other = replace(attacker.terms, **change)
    victim = attacker.hospitals[0]
    with pytest.raises(TermsChanged):
        victim.client.advertise(attacker.opening(terms=other), "table")
    with pytest.raises(TermsChanged):
        victim.client.join(other)


def test_members_that_joined_under_different_terms_share_no_epoch():
    """Four hospitals were told that nobody colludes, the victim was not."""
    weaker = Terms(SESSION, 0, 3, False)
    attacker = Attacker(told=dict.fromkeys((1, 2, 3, 4), weaker))
    adverts = [
        *attacker.adverts(attacker.opening(), attacker.hospitals[:1]).adverts,
        *attacker.adverts(attacker.opening(terms=weaker), attacker.hospitals[1:]).adverts,
    ]
    lair = attacker.lair(Adverts(tuple(adverts)))
    for rank in lair.everyone:
        lair.agree(rank)
    own = lair.boxes[0].epoch_id
    assert all(lair.boxes[rank].epoch_id != own for rank in (1, 2, 3, 4))
    with pytest.raises(ForgedBox):
        lair.deliver(0, replace(lair.delivery(0), epoch_id=own))


def test_rosters_that_differ_by_client_share_no_epoch():
    """The victim is shown a roster with one name changed."""
    attacker = Attacker()
    lair = attacker.lair(attacker.adverts(attacker.opening(), attacker.hospitals))
    for rank in (1, 2, 3, 4):
        lair.agree(rank)
    members = attacker.roster.members
    attacker.roster = Roster((*members[:4], Member("hospital 9", members[4].key)))
    attacker.pins = Pins({member.name: member.key for member in attacker.roster.members})
    boxes = lair.agree(0)
    assert boxes.epoch_id != lair.boxes[1].epoch_id
    with pytest.raises(ForgedBox):
        lair.deliver(0, replace(lair.delivery(0), epoch_id=boxes.epoch_id))
