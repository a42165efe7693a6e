"""A7: messages that were sent before, elsewhere or for another purpose are not accepted here."""

from dataclasses import replace

import numpy as np
import pytest

from privacy.errors import BadSignature
from privacy.framing import Label
from privacy.identity import verify
from privacy.securesum.errors import (
    AdvertForAnotherEpoch,
    DifferentTask,
    EpochEnded,
    EpochNotReady,
    ForgedAdvert,
    ForgedBox,
    ForgedSignature,
    MissingBox,
    SecondEpoch,
    SlotNotClosed,
    StaleEpoch,
    StaleSlot,
    UnknownEpoch,
    WrongKind,
)
from privacy.securesum.messages import AbandonProof, AbandonRequest, Adverts, Opening

from .coordinator import OTHER_RUN, OTHER_SESSION, RUN, SESSION, Attacker, is_noise

# -- adverts and openings


@pytest.mark.parametrize("where", ["number", "run", "session"])
def test_an_advert_of_another_epoch_is_refused(where):
    """The attacker keeps an advert whose key it might have learned since."""
    attacker = Attacker()
    other = replace(attacker.terms, session=OTHER_SESSION)
    attacker.join(other)
    openings = {
        "number": attacker.opening(0),
        "run": attacker.opening(1, OTHER_RUN),
        "session": attacker.opening(1, terms=other),
    }
    old = attacker.adverts(openings[where], attacker.hospitals)
    new = attacker.adverts(attacker.opening(1), attacker.hospitals)
    lair = attacker.lair(new)
    lair.adverts = Adverts((*new.adverts[:4], old.adverts[4]))
    with pytest.raises(AdvertForAnotherEpoch):
        lair.agree(0)
    # If the advert is changed, its signature is no longer valid.
    moved = replace(old.adverts[4], session=SESSION, run=RUN, number=1)
    lair.adverts = Adverts((*new.adverts[:4], moved))
    with pytest.raises(ForgedAdvert):
        lair.agree(0)


def test_an_epoch_number_is_used_once_and_never_below():
    attacker = Attacker()
    attacker.open(number=3)
    victim = attacker.hospitals[0]
    with pytest.raises(StaleEpoch):
        victim.client.advertise(attacker.opening(2), "table")
    attacker.open(number=4)
    with pytest.raises(EpochEnded):
        victim.client.advertise(attacker.opening(3), "table")


def test_an_epoch_serves_the_data_source_it_was_entered_with():
    attacker = Attacker()
    attacker.open()
    with pytest.raises(StaleEpoch):
        attacker.hospitals[0].client.advertise(attacker.opening(), "another table")


def test_one_advert_serves_one_list_of_members():
    """Two lists with the same own advert would be two epochs with one key."""
    attacker = Attacker(6)
    adverts = attacker.adverts(attacker.opening(), attacker.hospitals)
    attacker.lair(adverts).agree(0)
    smaller = attacker.lair(Adverts(adverts.adverts[:5]))
    with pytest.raises(SecondEpoch):
        smaller.agree(0)
    attacker.hospitals[0].crash()
    with pytest.raises(SecondEpoch):
        smaller.agree(0)


def test_adverts_for_an_epoch_that_the_victim_never_entered_are_refused():
    attacker = Attacker(6)
    adverts = attacker.adverts(attacker.opening(), attacker.hospitals[1:])
    victim = attacker.hospitals[0].client
    with pytest.raises(UnknownEpoch):
        victim.agree(adverts, attacker.roster, attacker.pins)
    with pytest.raises(UnknownEpoch):
        victim.end((SESSION, RUN, 0))


# -- boxes


def test_a_box_of_an_earlier_epoch_is_refused():
    attacker = Attacker()
    old = attacker.open(number=0)
    lair = attacker.lair(attacker.adverts(attacker.opening(1), attacker.hospitals))
    for rank in lair.everyone:
        lair.agree(rank)
    lair.boxes[3] = old.boxes[3]
    with pytest.raises(ForgedBox):
        lair.deliver(0)


def test_a_box_for_someone_else_is_refused():
    attacker = Attacker()
    lair = attacker.lair(attacker.adverts(attacker.opening(), attacker.hospitals))
    for rank in lair.everyone:
        lair.agree(rank)
    delivery = lair.delivery(0)
    for_another = lair.delivery(1)
    swapped = (*delivery.boxes[:2], for_another.boxes[2], *delivery.boxes[3:])
    with pytest.raises(MissingBox):
        lair.deliver(0, replace(delivery, boxes=swapped))
    renamed = replace(for_another.boxes[2], receiver=0)
    with pytest.raises(ForgedBox):
        lair.deliver(0, replace(delivery, boxes=(*delivery.boxes[:2], renamed, delivery.boxes[3])))


def test_nothing_is_uploaded_before_all_boxes_are_there():
    attacker = Attacker()
    lair = attacker.lair(attacker.adverts(attacker.opening(), attacker.hospitals))
    lair.agree(0)
    with pytest.raises(EpochNotReady):
        lair.upload(lair.task(), 0)


# -- tasks and statements


def test_a_task_of_an_ended_epoch_or_an_earlier_slot_is_not_answered():
    attacker = Attacker()
    lair = attacker.open()
    lair.sum()
    following = lair.task(1, proof=lair.last.encode())
    lair.uploads(following)
    with pytest.raises(StaleSlot):
        lair.upload(lair.task(), 0)
    with pytest.raises(StaleSlot):
        lair.reveal(lair.last, 0)
    with pytest.raises(StaleSlot):
        lair.certify(lair.proposal(lair.task()), 0)
    with pytest.raises(StaleSlot):
        lair.abandon(0, 0)
    with pytest.raises(StaleSlot):
        lair.repair(lair.task(), 0, 1)
    certificate = lair.certificate(lair.proposal(following))
    lair.end()
    for ask in (
        lambda: lair.upload(following, 0),
        lambda: lair.certify(lair.proposal(following), 0),
        lambda: lair.reveal(certificate, 0),
        lambda: lair.repair(following, 0, 1),
        lambda: lair.deliver(0),
        lambda: lair.agree(0),
    ):
        with pytest.raises(EpochEnded):
            ask()


def test_a_certificate_closes_its_own_slot_of_its_own_epoch_only():
    attacker = Attacker()
    lair = attacker.open()
    lair.sum()
    old = lair.last
    with pytest.raises(SlotNotClosed):
        lair.upload(lair.task(2, proof=old.encode()), 0)
    with pytest.raises(ForgedSignature):
        lair.upload(lair.task(2, proof=replace(old, slot=1).encode()), 0)
    following = attacker.open(number=1)
    with pytest.raises(DifferentTask):
        following.upload(following.task(1, proof=old.encode()), 0)
    moved = replace(old, epoch_id=following.epoch.epoch_id)
    with pytest.raises(ForgedSignature):
        following.upload(following.task(1, proof=moved.encode()), 0)


def test_a_certificate_of_another_slot_reveals_nothing():
    lair = Attacker().open()
    lair.sum()
    old, task = lair.last, lair.task(1, proof=lair.last.encode())
    lair.uploads(task)
    with pytest.raises(DifferentTask):
        lair.reveal(replace(old, slot=1), 0)
    with pytest.raises(ForgedSignature):
        lair.reveal(replace(old, slot=1, context=lair.context(task)), 0)


def test_an_abandonment_of_another_slot_or_epoch_closes_nothing():
    attacker = Attacker()
    lair = attacker.open()
    lair.uploads(lair.task())
    proof = lair.abandonment(lair.everyone)
    with pytest.raises(ForgedSignature):
        lair.members[0].client.close(replace(proof, slot=1))
    following = attacker.open(number=1)
    with pytest.raises(DifferentTask):
        following.upload(following.task(1, proof=proof.encode()), 0)
    with pytest.raises(ForgedSignature):
        following.members[0].client.close(replace(proof, epoch_id=following.epoch.epoch_id))


def test_a_signature_for_one_purpose_serves_no_other():
    """Signatures that certify a slot are used in a proof that it was abandoned."""
    lair = Attacker().open()
    lair.sum()
    certificate = lair.last
    turned = AbandonProof(
        certificate.epoch_id, certificate.slot, certificate.signers, certificate.signatures
    )
    with pytest.raises(ForgedSignature):
        lair.members[0].client.close(turned)
    with pytest.raises(WrongKind):
        lair.upload(lair.task(2, proof=lair.proposal(lair.task()).encode()), 0)


@pytest.mark.parametrize("label", [label for label in Label if label is not Label.CERTIFY])
def test_a_signature_under_one_label_is_none_under_another(label):
    identity = Attacker(3).hospitals[0].identity
    signature = identity.sign(Label.CERTIFY, b"part", b"another")
    verify(identity.key, signature, Label.CERTIFY, b"part", b"another")
    with pytest.raises(BadSignature):
        verify(identity.key, signature, label, b"part", b"another")


def test_parts_of_a_statement_cannot_be_shifted_into_each_other():
    identity = Attacker(3).hospitals[0].identity
    signature = identity.sign(Label.CERTIFY, b"part", b"another")
    for parts in ((b"parta", b"nother"), (b"partanother",), (b"part", b"another", b"")):
        with pytest.raises(BadSignature):
            verify(identity.key, signature, Label.CERTIFY, *parts)


def test_nothing_is_said_about_an_epoch_that_is_not_in_the_journal():
    attacker = Attacker(6)
    lair = attacker.open([1, 2, 3, 4, 5])
    task = lair.task()
    lair.uploads(task)
    certificate = lair.certificate(lair.proposal(task))
    stranger = attacker.hospitals[0]
    lair.members[9] = stranger
    for ask in (
        lambda: lair.upload(task, 9),
        lambda: lair.certify(lair.proposal(task), 9),
        lambda: lair.reveal(certificate, 9),
        lambda: stranger.client.repair(lair.repair_request(task, 1, 2)),
        lambda: stranger.client.abandon(AbandonRequest(lair.epoch.epoch_id, 0, b"")),
        lambda: lair.deliver(9, lair.delivery(0)),
    ):
        with pytest.raises(UnknownEpoch):
            ask()


# -- shares and masks


def test_shares_are_not_opened_for_the_wrong_sum():
    """Slot 0 was abandoned; its shares are requested with the certificate of slot 1."""
    lair = Attacker().open()
    first = lair.task()
    lair.uploads(first)
    proof = lair.abandonment(lair.everyone)
    second = lair.task(1, proof=proof.encode())
    lair.uploads(second)
    certificate = lair.certificate(lair.proposal(second))
    for rank in lair.everyone:
        lair.reveal(certificate, rank)
    for rank in (1, 2, 3, 4):
        old = lair.repair_request(first, rank, 0)
        with pytest.raises(StaleSlot):
            lair.members[rank].client.repair(old)
        with pytest.raises(DifferentTask):
            lair.members[rank].client.repair(replace(old, slot=1))
        lied = lair.members[rank].client.repair(replace(old, slot=1, context=lair.context(second)))
        assert lied.message.shares == ()
        assert lied.message.unreadable == (0,)
    for rank in (1, 2, 3, 4):
        lair.corrupt(rank)
    assert is_noise(lair.unmask(first, lair.everyone))


def test_two_uploads_of_one_vector_share_nothing():
    lair = Attacker().open()
    lair.sum()
    first, second = lair.task(), lair.task(1, proof=lair.last.encode())
    lair.uploads(second)
    one, two = (lair.bodies[lair.context(task), 0] for task in (first, second))
    assert is_noise(one)
    assert is_noise(two)
    assert is_noise(one - two)
    assert not np.any(one == two)
    # Even when both sums are released, the pair masks of the two have nothing in common.
    certificate = lair.certificate(lair.proposal(second))
    for rank in lair.everyone:
        lair.reveal(certificate, rank)
    assert is_noise(lair.unmask(first, [0]) - lair.unmask(second, [0]))


def test_shares_of_two_sums_are_not_sealed_under_one_key():
    """If AES-GCM used one key and nonce twice, opening the second share would open the first."""
    lair = Attacker().open()
    first = lair.task()
    lair.uploads(first)
    proof = lair.abandonment(lair.everyone)
    second = lair.task(1, proof=proof.encode())
    lair.uploads(second)
    certificate = lair.certificate(lair.proposal(second))
    for rank in (1, 2, 3, 4):
        lair.reveal(certificate, rank)
        lair.repair(second, rank, 0)
        (before,), (after,) = (
            lair.repair_request(task, rank, 0).sealed_shares for task in (first, second)
        )
        share = lair.shares[lair.context(second), 0][rank]
        guess = bytes(a ^ b ^ c for a, b, c in zip(before, after, share, strict=False))
        lair.shares.setdefault((lair.context(first), 0), {})[rank] = guess
    assert lair.self_key(lair.context(second), 0) is not None
    assert lair.self_key(lair.context(first), 0) is None


def test_an_opening_is_for_a_session_that_was_joined():
    attacker = Attacker()
    other = replace(attacker.terms, session=OTHER_SESSION)
    with pytest.raises(ValueError, match="has not joined"):
        attacker.hospitals[0].client.advertise(Opening(other, RUN, 0, ()), "table")
