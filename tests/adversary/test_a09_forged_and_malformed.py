"""A9: forged boxes, keys of low order, wrong shares, and malformed messages."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from privacy.errors import PrivacyError
from privacy.framing import Label, frame
from privacy.identity import Identity
from privacy.securesum.errors import BadKemKey, ForgedBox, MissingBox, UnreadableBox
from privacy.securesum.group import group_commitment
from privacy.securesum.messages import Adverts, Box
from privacy.securesum.records import SealSecrets, Step
from privacy.securesum.sealing import seal
from privacy.securesum.wire import Message

from .coordinator import Attacker, Lair, disk_of, is_noise

LOW_ORDER_X25519 = [
    bytes(32),
    b"\1" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    (2**255 - 20).to_bytes(32, "little"),
    (2**255 - 19).to_bytes(32, "little"),
    (2**255 - 18).to_bytes(32, "little"),
]


@pytest.fixture
def agreed() -> Lair:
    """Return an epoch whose boxes have not been delivered."""
    attacker = Attacker()
    lair = attacker.lair(attacker.adverts(attacker.opening(), attacker.hospitals))
    for rank in lair.everyone:
        lair.agree(rank)
    return lair


def sealed_by_attacker(lair: Lair, seed: bytes, sender: int, receiver: int) -> bytes:
    """Return a forged box: base mode lets anyone seal to an advertised key."""
    members = lair.epoch.members
    info = frame(Label.SEAL, lair.epoch.epoch_id, members[sender], members[receiver])
    return seal(seed, lair.adverts.adverts[receiver].kem_key, info)


def instead(lair: Lair, receiver: int, box: Box) -> None:
    """Deliver a box instead of the one that its alleged sender made."""
    delivery = lair.delivery(receiver)
    boxes = tuple(box if real.sender == box.sender else real for real in delivery.boxes)
    lair.deliver(receiver, replace(delivery, boxes=boxes))


def test_a_box_sealed_in_another_members_name_is_refused(agreed):
    """With a seed of its choice the attacker would know the mask of the victim and member 3."""
    sealed = sealed_by_attacker(agreed, bytes(64), 3, 0)
    puppet = Identity.generate()
    colluder = agreed.members[4].identity
    for signer in (puppet, colluder):
        draft = Box(3, 0, sealed, bytes(32), bytes(64))
        signature = signer.sign(Label.BOX, *draft.statement(agreed.epoch.epoch_id))
        with pytest.raises(ForgedBox):
            instead(agreed, 0, replace(draft, signature=signature))
    with pytest.raises(ForgedBox):
        instead(agreed, 0, Box(3, 0, sealed, bytes(32), agreed.delivery(0).boxes[2].signature))


def test_a_delivery_has_one_box_from_every_other_member(agreed):
    delivery = agreed.delivery(0)
    boxes = delivery.boxes
    for wrong in (boxes[:3], (*boxes, boxes[0]), (boxes[0], *boxes[:3]), boxes[::-1], ()):
        with pytest.raises(MissingBox):
            agreed.deliver(0, replace(delivery, boxes=wrong))
    # Nothing has changed: the right boxes can still be opened.
    agreed.deliver(0)


def test_a_colluders_box_that_does_not_open_is_its_own_fault(agreed):
    epoch_id, colluder = agreed.epoch.epoch_id, agreed.members[3].identity

    def signed(sealed: bytes) -> Box:
        committed = group_commitment(epoch_id, 3, bytes(32))
        draft = Box(3, 0, sealed, committed, bytes(64))
        return replace(draft, signature=colluder.sign(Label.BOX, *draft.statement(epoch_id)))

    to_another = sealed_by_attacker(agreed, bytes(64), 3, 1)
    honest = sealed_by_attacker(agreed, bytes(64), 3, 0)
    low_order = [honest[:1088] + point + honest[1120:] for point in LOW_ORDER_X25519]
    for sealed in (to_another, bytes(len(honest)), *low_order):
        with pytest.raises(UnreadableBox, match="Rank 3"):
            instead(agreed, 0, signed(sealed))
    instead(agreed, 0, signed(honest))


def pair_seeds(*, other_halves_of: int | None) -> dict[int, bytes]:
    """Return rank 0's pair secrets in the same epoch, where one member draws other seeds."""
    attacker = Attacker()
    lair = attacker.lair(attacker.adverts(attacker.opening(), attacker.hospitals))
    for rank, hospital in lair.members.items():
        hospital.random = random.Random(rank + 100 * (rank == other_halves_of)).randbytes
        hospital.crash()
        lair.agree(rank)
    for rank in lair.everyone:
        lair.deliver(rank)
    lair.corrupt(0)
    return {other: pair.seed for other, pair in lair.corrupted[0].items()}


def test_neither_member_of_a_pair_alone_decides_its_secret():
    seeds = pair_seeds(other_halves_of=None)
    assert seeds == pair_seeds(other_halves_of=None)
    with_other_own = pair_seeds(other_halves_of=0)
    assert all(with_other_own[rank] != seeds[rank] for rank in (1, 2, 3, 4))
    with_other_theirs = pair_seeds(other_halves_of=3)
    assert with_other_theirs[3] != seeds[3]
    assert with_other_theirs[1] == seeds[1]


@pytest.mark.parametrize("point", LOW_ORDER_X25519, ids=range(len(LOW_ORDER_X25519)))
def test_an_advert_with_a_key_of_low_order_is_refused(point):
    attacker = Attacker()
    adverts = attacker.adverts(attacker.opening(), attacker.hospitals).adverts
    colluder = attacker.hospitals[4].identity
    values = {**vars(adverts[4]), "kem_key": adverts[4].kem_key[:1184] + point}
    values.pop("signature")
    bad = type(adverts[4]).signed(colluder, **values)
    with pytest.raises(BadKemKey, match="Rank 4"):
        attacker.lair(Adverts((*adverts[:4], bad))).agree(0)


def test_a_share_that_was_tampered_with_is_not_returned():
    lair = Attacker().open()
    task = lair.task()
    lair.uploads(task)
    certificate = lair.certificate(lair.proposal(task))
    lair.reveal(certificate, 1)
    honest = lair.repair_request(task, 1, 0)
    (sealed,) = honest.sealed_shares
    for wrong in (
        replace(honest, sealed_shares=(bytes([sealed[0] ^ 1]) + sealed[1:],)),
        replace(honest, share_hashes=(bytes(32),)),
        replace(honest, silent=(2,)),
    ):
        repair = lair.members[1].client.repair(wrong).message
        assert repair.shares == ()
        assert repair.unreadable == wrong.silent


def test_fewer_shares_than_the_threshold_say_nothing():
    """Two of seven collude, and one honest member answered before the victim did."""
    lair = Attacker(7, colluders=2, least=4, private=True).open()
    task = lair.task()
    lair.uploads(task)
    certificate = lair.certificate(lair.proposal(task))
    for rank in (1, 2, 3, 4, 5, 6):
        lair.reveal(certificate, rank)
    lair.repair(task, 1, 0)
    lair.repair(task, 2, 0)
    lair.corrupt(5)
    lair.corrupt(6)
    assert is_noise(lair.unmask(task, lair.everyone))
    assert len(lair.shares[lair.context(task), 0]) == 4


# -- malformed messages


def conversation(lair: Lair) -> list[tuple[Message, Callable[[Any], Step[Any]]]]:
    """Return messages to a client in the middle of a sum, with the methods that take them."""
    task = lair.task()
    lair.uploads(task)
    proposal = lair.proposal(task)
    certificate = lair.certificate(proposal)
    lair.reveal(certificate, 0)
    repair = lair.repair_request(task, 0, 1)
    client, attacker = lair.members[0].client, lair.attacker
    return [
        (lair.adverts, lambda m: client.agree(m, attacker.roster, attacker.pins)),
        (proposal, client.certify),
        (certificate, client.reveal),
        (repair, client.repair),
    ]


def test_flipped_bits_change_nothing_and_raise_only_declared_errors():
    lair = Attacker().open()
    sent = conversation(lair)
    victim = lair.members[0]
    before = disk_of(victim), victim.client.journal.count
    for message, takes in sent:
        data = message.encode()
        for at in range(0, len(data), max(1, len(data) // 40)):
            flipped = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
            try:
                step = takes(type(message).decode(flipped))
            except PrivacyError:
                continue
            assert not step.records, (type(message), at)
            assert getattr(step.message, "shares", ()) == ()
    assert (disk_of(victim), victim.client.journal.count) == before


def test_truncated_and_lengthened_messages_are_refused():
    for message, _ in conversation(Attacker().open()):
        data = message.encode()
        assert type(message).decode(data) == message
        for wrong in (b"", data[:1], data[:-1], data + b"\0", b"\1" + data[1:]):
            with pytest.raises(PrivacyError):
                type(message).decode(wrong)


def test_seeds_are_fresh_for_each_receiver():
    attacker = Attacker()
    lair = attacker.lair(attacker.adverts(attacker.opening(), attacker.hospitals))
    lair.agree(0)
    (stored,) = [c for n, c in attacker.hospitals[0].vault.items() if n.startswith("epoch/")]
    seeds = SealSecrets.decode(bytes(stored)).seeds
    assert len(set(seeds)) == 4
