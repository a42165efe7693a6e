"""A22: the group key is the members' own; a member that splits it leaves noise, or is named."""

from dataclasses import replace

import pytest

from privacy.framing import Label, frame
from privacy.securesum.errors import ForgedBox, SecretsLost, WrongGroupPart
from privacy.securesum.group import group_commitment
from privacy.securesum.messages import Box
from privacy.securesum.records import GroupSecrets
from privacy.securesum.sealing import seal

from .coordinator import Attacker, Lair, is_noise

LIAR = 4


@pytest.fixture
def agreed() -> Lair:
    """Return an epoch whose boxes have not been delivered."""
    attacker = Attacker()
    lair = attacker.lair(attacker.adverts(attacker.opening(), attacker.hospitals))
    for rank in lair.everyone:
        lair.agree(rank)
    return lair


def group(lair: Lair, rank: int) -> GroupSecrets:
    """Return what a member has stored of the group key."""
    vault = lair.members[rank].vault
    (stored,) = [content for name, content in vault.items() if name.startswith("group/")]
    return GroupSecrets.decode(bytes(stored))


def box_of_liar(lair: Lair, receiver: int, part: bytes, commitment: bytes) -> Box:
    """Return a box that the lying member has sealed and signed itself."""
    members, epoch_id = lair.epoch.members, lair.epoch.epoch_id
    info = frame(Label.SEAL, epoch_id, members[LIAR], members[receiver])
    sealed = seal(bytes(32) + part, lair.adverts.adverts[receiver].kem_key, info)
    draft = Box(LIAR, receiver, sealed, commitment, bytes(64))
    signature = lair.members[LIAR].identity.sign(Label.BOX, *draft.statement(epoch_id))
    return replace(draft, signature=signature)


def deliver_instead(lair: Lair, receiver: int, box: Box) -> None:
    """Deliver a box instead of the one that its sender made."""
    delivery = lair.delivery(receiver)
    boxes = tuple(box if real.sender == box.sender else real for real in delivery.boxes)
    lair.deliver(receiver, replace(delivery, boxes=boxes))


def test_all_members_have_one_key_of_which_each_holds_a_part(agreed):
    for rank in agreed.everyone:
        agreed.deliver(rank)
    keys = {(group(agreed, rank).key, group(agreed, rank).commitments) for rank in agreed.everyone}
    assert len(keys) == 1
    again = Attacker(seed=1).open()
    assert group(again, 0).key not in {key for key, _ in keys}


def test_a_part_that_does_not_open_its_commitment_is_refused_and_its_sender_named(agreed):
    epoch_id = agreed.epoch.epoch_id
    for committed in (
        bytes(32),
        group_commitment(epoch_id, LIAR, bytes(32)),
        group_commitment(epoch_id, 0, b"1" * 32),
        group_commitment(bytes(32), LIAR, b"1" * 32),
    ):
        with pytest.raises(WrongGroupPart, match=f"Rank {LIAR}"):
            deliver_instead(agreed, 0, box_of_liar(agreed, 0, b"1" * 32, committed))
    agreed.deliver(0)


def test_the_coordinator_cannot_exchange_commitments(agreed):
    """Each is under its sender's signature: with another one the box is forged."""
    delivery = agreed.delivery(0)
    one, two = delivery.boxes[:2]
    swapped = replace(one, commitment=two.commitment), replace(two, commitment=one.commitment)
    for boxes in (
        (*swapped, *delivery.boxes[2:]),
        (replace(one, commitment=bytes(32)), *delivery.boxes[1:]),
    ):
        with pytest.raises(ForgedBox):
            agreed.deliver(0, replace(delivery, boxes=boxes))


def test_a_member_that_splits_the_group_leaves_noise(agreed):
    """Two consistent parts for two halves: the halves have two contexts, and masks stay."""
    epoch_id = agreed.epoch.epoch_id
    for rank in agreed.everyone:
        if rank in (0, 1):
            other = group_commitment(epoch_id, LIAR, b"2" * 32)
            deliver_instead(agreed, rank, box_of_liar(agreed, rank, b"2" * 32, other))
        else:
            agreed.deliver(rank)
    assert group(agreed, 0).key == group(agreed, 1).key != group(agreed, 2).key
    task = agreed.task()
    agreed.uploads(task)
    assert len({context for context, _ in agreed.bodies}) == 2
    bodies = dict(agreed.bodies)
    for (context, rank), body in bodies.items():  # the coordinator adds them up all the same
        agreed.bodies[agreed.context(task), rank] = body
        agreed.self_keys[agreed.context(task), rank] = agreed.stolen_self_key(rank)
        assert context
    assert is_noise(agreed.unmask(task, task.active))


def test_without_its_group_key_a_member_answers_nothing(agreed):
    for rank in agreed.everyone:
        agreed.deliver(rank)
    victim = agreed.members[0]
    victim.vault = {n: c for n, c in victim.vault.items() if not n.startswith("group/")}
    victim.crash()
    with pytest.raises(SecretsLost):
        agreed.upload(agreed.task(), 0)
