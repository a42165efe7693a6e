"""A member may lie. It can spoil a sum, and is named if it can be identified; it learns nothing."""

from dataclasses import replace

import numpy as np
import pytest

from privacy.framing import Label
from privacy.identity import Identity
from privacy.securesum import masking
from privacy.securesum.errors import (
    BadDealer,
    BadKemKey,
    Conflict,
    DifferentTask,
    ForgedAdvert,
    ForgedBox,
    ForgedMessage,
    InconsistentMasks,
    KeysMissing,
    MissingBox,
    NotAMember,
    NotOnRoster,
    OutOfOrder,
    UnreadableBox,
    WrongBody,
    WrongReceivers,
    WrongSelfKey,
    WrongShare,
)
from privacy.securesum.messages import Advert, Boxes, Certification, Repair, Reveal, Upload
from privacy.securesum.records import SlotSecrets
from privacy.securesum.simulator import SOURCE, TABLE, Fault, Point

N = 6


@pytest.fixture
def six(private):
    simulation = private(N, least=3)
    simulation.open_epoch()
    return simulation


@pytest.fixture
def asked(six, markers):
    """Begin a sum that nobody has answered yet."""
    vectors = markers.vectors(N)
    return six, six.coordinator.begin(statistic="s", length=N + 1), vectors


def signed_again(simulation, site, message, **changes):
    """Return a changed message, signed by the member itself."""
    values = {**vars(message), **changes}
    values.pop("signature")
    return type(message).signed(simulation.sites[site].identity, **values)


def upload_of(simulation, site, task, vector):
    step = simulation.sites[site].client.upload(task, vector, table=TABLE, noise=bytes([site]) * 16)
    simulation.sites[site].persist(step)
    return step.message, step.body


def certified(simulation, vectors, liar, change):
    """Run a sum in which `liar` uploads a changed header, up to its certificate."""
    task = simulation.coordinator.begin(statistic="s", length=N + 1)
    for site in range(N):
        header, body = upload_of(simulation, site, task, vectors[site])
        if site == liar:
            header = change(header)
        simulation.coordinator.slot.add_upload(header, body)
    proposal = simulation.coordinator.slot.propose()
    for site in range(N):
        step = simulation.sites[site].client.certify(proposal)
        simulation.sites[site].persist(step)
        simulation.coordinator.slot.add_certification(step.message)
    return simulation.coordinator.slot.certificate


# -- shares


def test_a_dealer_whose_shares_are_noise_is_named_by_those_who_cannot_read_them(six, markers):
    noise = tuple(bytes([7]) * 82 for _ in range(N - 1))
    certificate = certified(
        six, markers.vectors(N), 2, lambda h: signed_again(six, 2, h, sealed_shares=noise)
    )
    six.faults[2, Point.REVEAL] = Fault.GONE
    assert six.unmask(certificate).total is None
    assert six.coordinator.slot.accused == {2: (0, 1, 3, 4, 5)}
    with pytest.raises(KeysMissing, match="unreadable shares: 2") as missing:
        six.coordinator.slot.ring_total()
    assert missing.value.ranks == (2,)


def test_a_dealer_whose_shares_are_not_what_it_hashed_is_named(six, markers):
    hashes = tuple(bytes([7]) * 32 for _ in range(N - 1))
    certificate = certified(
        six, markers.vectors(N), 2, lambda h: signed_again(six, 2, h, share_hashes=hashes)
    )
    six.faults[2, Point.REVEAL] = Fault.GONE
    assert six.unmask(certificate).total is None
    assert six.coordinator.slot.accused == {2: (0, 1, 3, 4, 5)}


def test_a_dealer_whose_declared_shares_do_not_give_its_key_is_named(six, markers, monkeypatch):
    other = b"another key, thirty-two bytes lo"
    real = masking.split
    dealt = []

    def split(secret, **rest):
        dealt.append(secret)
        return real(other if len(dealt) == 3 else secret, **rest)  # the third to upload lies

    monkeypatch.setattr(masking, "split", split)
    certificate = certified(six, markers.vectors(N), 2, lambda header: header)
    six.faults[2, Point.REVEAL] = Fault.GONE
    with pytest.raises(BadDealer, match="rank 2") as bad:
        six.unmask(certificate)
    assert bad.value.ranks == (2,)


def test_a_returner_of_a_wrong_share_is_named_and_the_others_suffice(six, markers):
    vectors = markers.vectors(N)
    certificate = certified(six, vectors, None, None)
    slot = six.coordinator.slot
    for site in range(1, N):
        step = six.sites[site].client.reveal(certificate)
        six.sites[site].persist(step)
        slot.add_reveal(step.message)
    repair = six.sites[3].client.repair(slot.repair_request(3)).message
    lie = signed_again(six, 3, repair, shares=(bytes(66),))
    before = six.coordinator.save()
    with pytest.raises(WrongShare, match=r"Rank 3 returned a share other than .* rank 0 declared"):
        slot.add_repair(lie)
    assert six.coordinator.save() == before
    for site in (1, 2, 4, 5):
        slot.add_repair(six.sites[site].client.repair(slot.repair_request(site)).message)
    np.testing.assert_array_equal(slot.ring_total(), sum(vectors))


def test_shares_that_nobody_dealt_are_refused(six, markers):
    certified(six, markers.vectors(N), None, None)
    slot = six.coordinator.slot
    for silent in ((3,), (7,)):
        repair = Repair.signed(
            six.sites[3].identity, epoch_id=slot.epoch.epoch_id, slot=0, context=slot.context,
            rank=3, silent=silent, shares=(bytes(66),), unreadable=(),
        )  # fmt: skip
        with pytest.raises(NotAMember):
            slot.add_repair(repair)


def test_a_member_answers_once_for_each_who_is_silent(six, markers):
    """Otherwise one member could make the coordinator keep messages without limit."""
    vectors = markers.vectors(N)
    certificate = certified(six, vectors, None, None)
    slot = six.coordinator.slot
    for site in range(2, N):
        step = six.sites[site].client.reveal(certificate)
        six.sites[site].persist(step)
        slot.add_reveal(step.message)
    own = six.sites[3].client.repair(slot.repair_request(3)).message
    assert own.silent == (0, 1)

    def said(silent, unreadable):
        kept = tuple(share for dealer, share in zip((0, 1), own.shares, strict=True)
                     if dealer in silent)  # fmt: skip
        return signed_again(six, 3, own, silent=silent, shares=kept, unreadable=unreadable)

    assert slot.add_repair(said((), (0,)))
    before = six.coordinator.save()
    for silent, unreadable in [
        ((), ()),
        ((), (0,)),
        ((0,), ()),
        ((), (2,)),
        ((), (3,)),
        ((), (7,)),
    ]:
        assert not slot.add_repair(said(silent, unreadable))
    for silent, unreadable in [
        ((0, 1), ()),
        ((1,), (0,)),
        ((1,), (2,)),
        ((1,), (7,)),
        ((1,), (3,)),
    ]:
        with pytest.raises(OutOfOrder, match="Rank 3 also answers for"):
            slot.add_repair(said(silent, unreadable))
    assert six.coordinator.save() == before
    assert slot.add_repair(said((1,), ()))
    assert slot.has_repaired(3)
    assert not slot.add_repair(said((), (1,)))
    for site in (2, 4, 5):
        slot.add_repair(six.sites[site].client.repair(slot.repair_request(site)).message)
    slot.add_reveal(six.sites[0].client.reveal(certificate).message)
    np.testing.assert_array_equal(slot.ring_total(), sum(vectors))


# -- keys


def test_a_self_key_that_is_not_the_committed_one_is_named(six, markers):
    certificate = certified(six, markers.vectors(N), None, None)
    reveal = six.sites[4].client.reveal(certificate).message
    with pytest.raises(WrongSelfKey, match="Rank 4"):
        six.coordinator.slot.add_reveal(replace(reveal, self_key=bytes(32)))


def test_a_wrong_commitment_spoils_only_the_liars_own_reveal(six, markers):
    vectors = markers.vectors(N)
    certificate = certified(
        six, vectors, 2, lambda h: signed_again(six, 2, h, commitment=bytes(32))
    )
    slot = six.coordinator.slot
    for site in range(N):
        step = six.sites[site].client.reveal(certificate)
        six.sites[site].persist(step)
        if site == 2:
            with pytest.raises(WrongSelfKey, match="Rank 2"):
                slot.add_reveal(step.message)
        else:
            slot.add_reveal(step.message)
    six.repair()
    with pytest.raises(BadDealer, match="rank 2"):
        slot.ring_total()


def test_no_reveal_is_repaired_without_its_owner(six, markers):
    vectors = markers.vectors(N)
    six.faults[0, Point.REVEAL] = Fault.GONE
    markers.check(six.sum(vectors), vectors)


def test_pair_keys_of_others_than_the_dropped_are_refused(six, markers):
    certificate = certified(six, markers.vectors(N), None, None)
    reveal = six.sites[1].client.reveal(certificate).message
    lie = replace(reveal, dropped=(3,), pair_keys=(bytes(32),))
    with pytest.raises(Conflict):
        six.coordinator.slot.add_reveal(lie)


def test_a_wrong_pair_key_shows_in_the_constant(six, markers):
    six.faults[0, Point.UPLOAD] = Fault.LATE
    vectors = markers.vectors(N)
    task = six.coordinator.begin(statistic="s", length=N + 1)
    six.upload(task, vectors)
    slot = six.coordinator.slot
    proposal = slot.propose()
    for site in range(1, N):
        slot.add_certification(six.sites[site].client.certify(proposal).message)
    for site in range(1, N):
        reveal = six.sites[site].client.reveal(slot.certificate).message
        if site == 3:
            reveal = replace(reveal, pair_keys=(bytes(32),))
        slot.add_reveal(reveal)
    with pytest.raises(InconsistentMasks):
        slot.ring_total()


def test_a_member_that_masks_for_another_task_shows_in_the_constant(six, markers):
    """It signs the right context and reveals the right key, but uses pair masks of another task."""
    vectors = markers.vectors(N)
    task = six.coordinator.begin(statistic="s", length=N + 1)
    slot, context = six.coordinator.slot, six.coordinator.slot.context
    for site in range(N):
        header, body = upload_of(
            six, site, replace(task, statistic="t") if site == 2 else task, vectors[site]
        )
        if site == 2:
            key = next(
                SlotSecrets.decode(bytes(content)).self_key
                for name, content in six.sites[2].vault.items()
                if name.startswith("slot/")
            )
            header = signed_again(
                six, 2, header, context=context,
                commitment=masking.commitment(key, context, 2),
            )  # fmt: skip
        slot.add_upload(header, body)
    proposal = slot.propose()
    honest = (0, 1, 3, 4, 5)
    for site in honest:
        slot.add_certification(six.sites[site].client.certify(proposal).message)
    for site in honest:
        slot.add_reveal(six.sites[site].client.reveal(slot.certificate).message)
    slot.add_reveal(
        Reveal(
            epoch_id=task.epoch_id, slot=0, context=context, rank=2,
            self_key=key, dropped=(), pair_keys=(),
        )
    )  # fmt: skip
    with pytest.raises(InconsistentMasks):
        slot.ring_total()


# -- vectors and headers


@pytest.mark.parametrize("size", [0, 8, 8 * (N + 1), 8 * (N + 3), 8 * (N + 2) - 1])
def test_a_vector_of_the_wrong_length_changes_nothing(asked, size):
    simulation, task, vectors = asked
    header, _ = upload_of(simulation, 0, task, vectors[0])
    before = simulation.coordinator.save()
    with pytest.raises(WrongBody, match="Rank 0"):
        simulation.coordinator.slot.add_upload(header, bytes(size))
    assert simulation.coordinator.save() == before


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"context": bytes(32)}, DifferentTask),
        ({"slot": 1}, OutOfOrder),
        ({"epoch_id": bytes(32)}, OutOfOrder),
        ({"rank": 1}, WrongReceivers),
        ({"rank": 9}, NotAMember),
        ({"receivers": (1, 2, 3), "sealed_shares": (bytes(82),) * 3,
          "share_hashes": (bytes(32),) * 3}, WrongReceivers),
        ({"receivers": (0, 2, 3, 4, 5)}, WrongReceivers),
    ],
)  # fmt: skip
def test_headers_that_do_not_fit_are_refused_before_the_vector_is_read(asked, change, error):
    simulation, task, vectors = asked
    header, _ = upload_of(simulation, 0, task, vectors[0])
    before = simulation.coordinator.save()
    with pytest.raises(error):
        simulation.coordinator.slot.check_header(signed_again(simulation, 0, header, **change))
    assert simulation.coordinator.save() == before


def test_a_second_upload_that_differs_is_refused_and_the_same_counts_once(asked):
    simulation, task, vectors = asked
    header, body = upload_of(simulation, 0, task, vectors[0])
    simulation.coordinator.slot.add_upload(header, body)
    before = simulation.coordinator.save()
    simulation.coordinator.slot.add_upload(header, body)
    with pytest.raises(Conflict):
        simulation.coordinator.slot.add_upload(
            signed_again(simulation, 0, header, commitment=bytes(32)), body
        )
    assert simulation.coordinator.save() == before


def test_nobody_speaks_in_anothers_name(six, markers):
    vectors = markers.vectors(N)
    stranger = Identity.generate()
    task = six.coordinator.begin(statistic="s", length=N + 1)
    slot = six.coordinator.slot
    header, body = upload_of(six, 0, task, vectors[0])
    with pytest.raises(ForgedMessage):
        slot.add_upload(_by(stranger, header), body)
    six.upload(task, vectors)
    proposal = slot.propose()
    with pytest.raises(ForgedMessage):
        slot.add_certification(Certification(task.epoch_id, 0, 0, bytes(64)))
    own = six.sites[1].client.certify(proposal).message
    with pytest.raises(ForgedMessage):
        slot.add_certification(replace(own, rank=0))
    for site in range(N):
        slot.add_certification(six.sites[site].client.certify(proposal).message)
    six.sites[0].client.reveal(slot.certificate)
    other = six.sites[1].client.reveal(slot.certificate).message
    with pytest.raises(WrongSelfKey):
        slot.add_reveal(replace(other, rank=0))
    repair = six.sites[0].client.repair(slot.repair_request(0)).message
    with pytest.raises(ForgedMessage):
        slot.add_repair(_by(stranger, repair))


def _by(identity: Identity, message: Upload | Repair):
    values = dict(vars(message))
    values.pop("signature")
    return type(message).signed(identity, **values)


# -- epoch


def test_adverts_of_strangers_forgeries_and_second_keys_are_refused(private):
    simulation = private(N, least=3)
    opening = simulation.coordinator.opening()
    advert = simulation.sites[0].client.advertise(opening, SOURCE).message
    stranger = Identity.generate()
    with pytest.raises(NotOnRoster):
        simulation.coordinator.add_advert(
            Advert.signed(stranger, **{**_values(advert), "identity": stranger.key})
        )
    with pytest.raises(ForgedAdvert):
        simulation.coordinator.add_advert(Advert.signed(stranger, **_values(advert)))
    simulation.coordinator.add_advert(advert)
    other = simulation.sites[1].client.advertise(opening, SOURCE).message
    with pytest.raises(Conflict):
        simulation.coordinator.add_advert(
            signed_again(simulation, 0, advert, kem_key=other.kem_key)
        )


@pytest.mark.parametrize("tail", [bytes(32), b"\1" + bytes(31)])
def test_low_order_keys_are_refused_by_both_ends(private, tail):
    simulation = private(N, least=3)
    opening = simulation.coordinator.opening()
    adverts = []
    for site in range(N):
        step = simulation.sites[site].client.advertise(opening, SOURCE)
        simulation.sites[site].persist(step)
        adverts.append(step.message)
    low = signed_again(simulation, 2, adverts[2], kem_key=adverts[2].kem_key[:-32] + tail)
    with pytest.raises(BadKemKey):
        simulation.coordinator.add_advert(low)
    simulation.coordinator._adverts = {a.identity: a for a in (*adverts[:2], low, *adverts[3:])}
    listed = simulation.coordinator.close_adverts()
    before = list(simulation.sites[0].records)
    with pytest.raises(BadKemKey, match="Rank 2"):
        simulation.sites[0].client.agree(listed, simulation.roster, simulation.pins)
    assert simulation.sites[0].records == before


def _values(message):
    values = dict(vars(message))
    values.pop("signature")
    return values


def test_a_member_whose_box_does_not_open_is_named(private):
    simulation = private(N, least=3)
    simulation.advertise()
    simulation.agree()
    delivery = simulation.coordinator.delivery(0)
    bad = replace(delivery.boxes[1], sealed=bytes(1200))
    signature = simulation.sites[2].identity.sign(Label.BOX, *bad.statement(delivery.epoch_id))
    boxes = (delivery.boxes[0], replace(bad, signature=signature), *delivery.boxes[2:])
    with pytest.raises(UnreadableBox, match="Rank 2"):
        simulation.sites[0].client.receive(replace(delivery, boxes=boxes))
    with pytest.raises(ForgedBox, match="rank 2"):
        simulation.sites[0].client.receive(
            replace(delivery, boxes=(delivery.boxes[0], bad, *delivery.boxes[2:]))
        )
    simulation.sites[0].client.receive(delivery)


def test_boxes_that_are_not_one_for_each_other_member_are_refused(private):
    simulation = private(N, least=3)
    simulation.advertise()
    adverts = simulation.coordinator.close_adverts()
    boxes = simulation.sites[0].client.agree(adverts, simulation.roster, simulation.pins).message
    for wrong in (boxes.boxes[:-1], boxes.boxes[::-1], ()):
        with pytest.raises(MissingBox):
            simulation.coordinator.add_boxes(signed_again(simulation, 0, boxes, boxes=wrong))
    with pytest.raises(ForgedMessage):
        simulation.coordinator.add_boxes(Boxes.signed(Identity.generate(), **_values(boxes)))
    simulation.coordinator.add_boxes(boxes)
    swapped = (replace(boxes.boxes[0], sealed=bytes(1200)), *boxes.boxes[1:])
    with pytest.raises(Conflict):
        simulation.coordinator.add_boxes(signed_again(simulation, 0, boxes, boxes=swapped))
