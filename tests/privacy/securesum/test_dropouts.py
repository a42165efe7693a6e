"""Members may drop out at any time: the sum is right down to the threshold, and safe below it."""

from dataclasses import replace

import pytest

from privacy.securesum.errors import (
    AlreadySigned,
    KeysMissing,
    OutOfOrder,
    PairKeysOwed,
    PartialCohort,
    SlotNotClosed,
    TooFewMembers,
)
from privacy.securesum.messages import AbandonRequest
from privacy.securesum.simulator import TABLE, Fault, Point

N, QUORUM, COLLUDERS = 10, 7, 3
SPARE = N - QUORUM


@pytest.fixture
def ten(private):
    simulation = private(N, colluders=COLLUDERS, least=5)
    simulation.open_epoch()
    return simulation


def gone(simulation, point, count):
    for site in range(count):
        simulation.faults[site, point] = Fault.GONE


@pytest.mark.parametrize("count", [1, 5])
def test_members_absent_before_the_advert_leave_an_epoch_of_the_others(private, markers, count):
    simulation = private(N, colluders=COLLUDERS, least=5)
    gone(simulation, Point.ADVERT, count)
    simulation.open_epoch()
    vectors = markers.vectors(N)
    outcome = simulation.sum(vectors)
    markers.check(outcome, vectors)
    assert outcome.survivors == tuple(range(count, N))


def test_one_member_too_few_opens_no_epoch(private):
    simulation = private(N, colluders=COLLUDERS, least=5)
    gone(simulation, Point.ADVERT, 6)
    with pytest.raises(TooFewMembers):
        simulation.open_epoch()


@pytest.mark.parametrize("count", [1, 5])
def test_without_all_boxes_the_epoch_restarts_with_new_keys(private, markers, count):
    simulation = private(N, colluders=COLLUDERS, least=5)
    gone(simulation, Point.BOXES, count)
    simulation.open_epoch()
    assert simulation.coordinator.number == 1
    vectors = markers.vectors(N)
    outcome = simulation.sum(vectors)
    markers.check(outcome, vectors)
    assert outcome.survivors == tuple(range(count, N))


@pytest.mark.parametrize("count", range(1, SPARE + 1))
def test_dropouts_before_the_upload_leave_the_sum_of_the_others(ten, markers, count):
    gone(ten, Point.UPLOAD, count)
    vectors = markers.vectors(N)
    outcome = ten.sum(vectors)
    markers.check(outcome, vectors)
    assert outcome.survivors == tuple(range(count, N))


def test_one_dropout_too_many_before_the_upload_releases_nothing(ten, markers):
    gone(ten, Point.UPLOAD, SPARE + 1)
    outcome = ten.sum(markers.vectors(N))
    assert outcome.total is None
    assert outcome.proof is None
    with pytest.raises(OutOfOrder, match="neither certified nor abandoned"):
        ten.sum(markers.vectors(N))


def test_a_slot_that_comes_too_short_is_abandoned_and_the_next_one_is_right(ten, markers):
    for site in range(SPARE + 1):
        ten.faults[site, Point.UPLOAD] = Fault.LATE
    outcome = ten.sum(markers.vectors(N))
    assert outcome.proof is not None
    assert len(outcome.proof.signers) == QUORUM
    vectors = markers.vectors(N)
    markers.check(ten.sum(vectors), vectors)


@pytest.mark.parametrize("count", range(1, SPARE + 1))
def test_survivors_who_fall_silent_before_signing_are_repaired(ten, markers, count):
    gone(ten, Point.CERTIFY, count)
    vectors = markers.vectors(N)
    outcome = ten.sum(vectors)
    markers.check(outcome, vectors)
    assert outcome.silent == tuple(range(count))
    assert outcome.survivors == tuple(range(N))


def test_one_signature_too_few_ends_the_epoch_and_releases_nothing(ten, markers):
    gone(ten, Point.CERTIFY, SPARE + 1)
    outcome = ten.sum(markers.vectors(N))
    assert outcome.total is None
    assert ten.coordinator.slot.certificate is None
    ten.wake()
    request = ten.coordinator.slot.abandon_request()
    with pytest.raises(AlreadySigned):
        ten.sites[9].client.abandon(request)
    ten.open_epoch()
    vectors = markers.vectors(N)
    markers.check(ten.sum(vectors), vectors)


@pytest.mark.parametrize("count", range(1, SPARE + 1))
def test_survivors_who_fall_silent_before_the_reveal_are_repaired(ten, markers, count):
    gone(ten, Point.REVEAL, count)
    vectors = markers.vectors(N)
    outcome = ten.sum(vectors)
    markers.check(outcome, vectors)
    assert outcome.silent == tuple(range(count))


def test_one_share_too_few_waits_for_the_silent(ten, markers):
    gone(ten, Point.REVEAL, SPARE + 1)
    vectors = markers.vectors(N)
    assert ten.sum(vectors).total is None
    with pytest.raises(KeysMissing, match="6 of 7 shares"):
        ten.coordinator.slot.ring_total()
    ten.wake()
    markers.check(ten.unmask(ten.coordinator.slot.certificate), vectors)


def test_several_fall_away_at_several_points_at_once(ten, markers):
    ten.faults[0, Point.CERTIFY] = Fault.GONE
    ten.faults[1, Point.REVEAL] = Fault.GONE
    ten.faults[2, Point.REVEAL] = Fault.GONE
    vectors = markers.vectors(N)
    outcome = ten.sum(vectors)
    markers.check(outcome, vectors)
    assert outcome.silent == (0, 1, 2)
    ten.wake()
    vectors = markers.vectors(N)
    markers.check(ten.sum(vectors), vectors)


def test_a_silent_survivor_that_owes_a_pair_key_is_waited_for(ten, markers):
    ten.faults[0, Point.UPLOAD] = Fault.GONE
    ten.faults[1, Point.REVEAL] = Fault.GONE
    vectors = markers.vectors(N)
    assert ten.sum(vectors).total is None
    with pytest.raises(PairKeysOwed) as owed:
        ten.coordinator.slot.ring_total()
    assert owed.value.ranks == (1,)
    ten.wake()
    outcome = ten.unmask(ten.coordinator.slot.certificate)
    markers.check(outcome, vectors)
    assert outcome.survivors == tuple(range(1, N))


def test_one_that_missed_some_sums_comes_back_with_the_last_proof_alone(ten, markers):
    ten.faults[4, Point.UPLOAD] = Fault.GONE
    for _ in range(3):
        vectors = markers.vectors(N)
        markers.check(ten.sum(vectors), vectors)
    ten.wake()
    vectors = markers.vectors(N)
    outcome = ten.sum(vectors)
    markers.check(outcome, vectors)
    assert 4 in outcome.survivors


def test_one_that_missed_its_boxes_and_the_first_sums_gets_them_later(private, markers):
    simulation = private(N, colluders=COLLUDERS, least=5)
    simulation.faults[4, Point.DELIVERY] = Fault.LATE
    simulation.open_epoch()
    others = [site for site in range(N) if site != 4]
    for _ in range(2):
        vectors = markers.vectors(N)
        markers.check(simulation.sum(vectors, active=others), vectors)
        simulation.restart_coordinator()
    site = simulation.sites[4]
    site.persist(site.client.receive(simulation.coordinator.delivery(4)))
    with pytest.raises(OutOfOrder, match="has opened them already"):
        simulation.coordinator.delivery(3)
    vectors = markers.vectors(N)
    markers.check(simulation.sum(vectors), vectors)


def test_fewer_active_members_than_everyone_can_be_asked(ten, markers):
    vectors = markers.vectors(N)
    outcome = ten.sum(vectors, active=range(2, N))
    markers.check(outcome, vectors)
    assert outcome.survivors == tuple(range(2, N))


def test_without_differential_privacy_a_dropout_is_waited_for(strict, markers):
    simulation = strict(5)
    simulation.open_epoch()
    simulation.faults[0, Point.UPLOAD] = Fault.LATE
    vectors = markers.vectors(5)
    with pytest.raises(PartialCohort):
        simulation.sum(vectors)
    # nobody has signed anything, so all can abandon the slot and repeat it at no cost
    assert simulation.abandon().proof is not None
    vectors = markers.vectors(5)
    markers.check(simulation.sum(vectors), vectors)


def test_a_slot_is_not_entered_before_the_last_one_is_proved_closed(ten, markers):
    first = ten.sum(markers.vectors(N))
    assert first.total is not None
    ten.faults[4, Point.UPLOAD] = Fault.LATE
    ten.sum(markers.vectors(N))
    proof_of_0 = ten.coordinator.slot.task.proof
    task = ten.coordinator.begin(statistic="next", length=N + 1)
    for proof in (b"", proof_of_0):
        request = AbandonRequest(task.epoch_id, task.slot, proof)
        forged = replace(task, proof=proof)
        with pytest.raises(SlotNotClosed):
            ten.sites[4].client.abandon(request)
        with pytest.raises(SlotNotClosed):
            ten.sites[4].client.upload(forged, markers.vectors(N)[4], table=TABLE)


def test_the_proposal_settles_who_is_in_the_total(ten, markers):
    vectors = markers.vectors(N)
    ten.faults[3, Point.UPLOAD] = Fault.LATE
    task = ten.coordinator.begin(statistic="s", length=N + 1)
    ten.upload(task, vectors)
    proposal = ten.coordinator.slot.propose()
    late = ten.sites[3].client.upload(task, vectors[3], table=TABLE, noise=b"n" * 16)
    with pytest.raises(OutOfOrder, match="too late"):
        ten.coordinator.slot.add_upload(late.message, late.body)
    outcome = ten.finish(proposal)
    markers.check(outcome, vectors)
    assert 3 not in outcome.survivors
