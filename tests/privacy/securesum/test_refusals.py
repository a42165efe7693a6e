"""What a client refuses, each with its own error; the attacks are in tests/adversary."""

from dataclasses import replace

import numpy as np
import pytest

from privacy.encoding import Encoding
from privacy.framing import Label
from privacy.identity import Pins
from privacy.layout import Block, Layout
from privacy.securesum.certificates import abandon_parts, certify_parts
from privacy.securesum.errors import (
    AdvertForAnotherEpoch,
    ClosedOtherwise,
    DifferentTask,
    EpochNotReady,
    ForgedSignature,
    NotActive,
    NotAscending,
    NotCertified,
    NotSurvivor,
    NotUploaded,
    OwnAdvertMissing,
    SecondCertificate,
    SecondEpoch,
    SecondTask,
    SessionNotJoined,
    ShareOfOutsider,
    SignerOutside,
    SlotAbandoned,
    StaleEpoch,
    StaleSlot,
    TermsChanged,
    TermsError,
    TooFewActive,
    TooFewMembers,
    TooFewSigners,
    TooFewSurvivors,
    UnknownEpoch,
    UnknownRank,
    UnknownSurvivor,
    Unpinned,
    WrongEncoding,
    WrongState,
    WrongVector,
)
from privacy.securesum.messages import AbandonProof, Advert, Adverts, Certificate
from privacy.securesum.simulator import SOURCE, TABLE, Fault, Point
from privacy.securesum.terms import Terms, default_terms

N, QUORUM = 7, 5  # with one colluder


@pytest.fixture
def seven(private):
    simulation = private(N, colluders=1, least=3)
    simulation.open_epoch()
    return simulation


def upload(simulation, site, task, vector, *, encoding=None, noise=b"draw"):
    return simulation.sites[site].client.upload(
        task, vector, table=TABLE, encoding=encoding, noise=noise
    )


@pytest.fixture
def asked(seven, markers):
    task = seven.coordinator.begin(statistic="s", length=N + 1)
    return seven, task, markers.vectors(N)


@pytest.fixture
def uploaded(asked):
    simulation, task, vectors = asked
    simulation.upload(task, vectors)
    return simulation, simulation.coordinator.slot.propose()


@pytest.fixture
def certified(uploaded):
    simulation, proposal = uploaded
    for site in range(N):
        step = simulation.sites[site].client.certify(proposal)
        simulation.sites[site].persist(step)
        simulation.coordinator.slot.add_certification(step.message)
    return simulation, simulation.coordinator.slot.certificate


# -- terms


@pytest.mark.parametrize(("colluders", "least"), [(0, 2), (1, 2), (2, 3), (10, 11)])
def test_terms_that_protect_nobody(colluders, least):
    with pytest.raises(TermsError):
        Terms(bytes(16), colluders, least, False)


@pytest.mark.parametrize("n", range(3, 201))
def test_default_terms_of_every_size_have_quorums_that_share_an_honest_member(n):
    terms = default_terms(bytes(16), n)
    for present in range(terms.min_cohort, n + 1):
        assert 2 * terms.quorum(present) - present > terms.max_colluders
        assert terms.quorum(present) <= present


def test_a_session_never_joined_or_with_other_terms(private):
    simulation = private(N)
    client = simulation.sites[0].client
    opening = simulation.coordinator.opening()
    other = replace(simulation.terms, session=b"s" * 16)
    with pytest.raises(SessionNotJoined):
        client.advertise(replace(opening, terms=other), SOURCE)
    weaker = replace(simulation.terms, min_cohort=4)
    with pytest.raises(TermsChanged):
        client.advertise(replace(opening, terms=weaker), SOURCE)
    with pytest.raises(TermsChanged):
        client.join(weaker)


# -- epochs


def test_an_epoch_number_that_is_not_new(seven):
    opening = seven.coordinator.opening()
    client = seven.sites[0].client
    seven.sites[0].persist(client.advertise(replace(opening, number=5), SOURCE))
    with pytest.raises(StaleEpoch):
        client.advertise(replace(opening, number=4), SOURCE)
    with pytest.raises(StaleEpoch):
        client.advertise(replace(opening, number=5), "another source")


def adverts_of(simulation):
    opening = simulation.coordinator.opening()
    made = []
    for site in simulation.sites:
        step = site.client.advertise(opening, SOURCE)
        site.persist(step)
        made.append(step.message)
    return made


def test_lists_of_adverts_that_are_not_this_epochs(private):
    simulation = private(N)
    made = adverts_of(simulation)
    client = simulation.sites[0].client
    roster, pins = simulation.roster, simulation.pins

    def by(site, **changes):
        values = {**vars(made[site]), **changes}
        values.pop("signature")
        return Advert.signed(simulation.sites[site].identity, **values)

    with pytest.raises(UnknownEpoch):
        client.agree(Adverts(()), roster, pins)
    with pytest.raises(OwnAdvertMissing):
        client.agree(Adverts(tuple(made[1:])), roster, pins)
    with pytest.raises(OwnAdvertMissing):
        client.agree(Adverts((by(0, kem_key=made[1].kem_key), *made[1:])), roster, pins)
    with pytest.raises(AdvertForAnotherEpoch):
        client.agree(Adverts((*made[:-1], by(N - 1, number=9))), roster, pins)
    with pytest.raises(AdvertForAnotherEpoch):
        client.agree(Adverts((*made[:-1], by(N - 1, run=bytes(16)))), roster, pins)
    with pytest.raises(NotAscending):
        Adverts((made[0], made[0]))
    simulation.sites[0].persist(client.agree(Adverts(tuple(made)), roster, pins))
    with pytest.raises(SecondEpoch):
        client.agree(Adverts(tuple(made[:-1])), roster, pins)


def test_every_member_of_an_epoch_is_pinned(private):
    simulation = private(N, colluders=1)
    adverts = Adverts(tuple(adverts_of(simulation)))
    roster, client = simulation.roster, simulation.sites[0].client
    known = dict(simulation.pins.confirmed)
    known.pop("site-0")  # a site's own key needs no pin
    one_unknown = {name: key for name, key in known.items() if name != "site-1"}
    with pytest.raises(Unpinned):
        client.agree(adverts, roster, Pins(one_unknown).meet(roster))
    client.agree(adverts, roster, Pins(one_unknown, trust_first_use=True).meet(roster))


def test_too_few_members(private):
    simulation = private(N, colluders=1, least=N)
    adverts = Adverts(tuple(adverts_of(simulation))[:-1])
    with pytest.raises(TooFewMembers):
        simulation.sites[0].client.agree(adverts, simulation.roster, simulation.pins)


def test_a_sum_before_all_boxes_are_open(private, markers):
    simulation = private(N)
    simulation.faults[0, Point.DELIVERY] = Fault.LATE
    simulation.open_epoch()
    task = simulation.coordinator.begin(statistic="s", length=N + 1)
    with pytest.raises(EpochNotReady):
        upload(simulation, 0, task, markers.vectors(N)[0])


# -- tasks


def test_tasks_that_are_not_answered(asked):
    simulation, task, vectors = asked
    vector = vectors[0]
    cases = [
        (replace(task, epoch_id=bytes(32)), UnknownEpoch),
        (replace(task, state=b"s" * 32), WrongState),
        (replace(task, active=(1, 2, 3, 4, 5, 6)), NotActive),
        (replace(task, active=(0, 1, 2, 3, 4, 5, 6, 7)), UnknownRank),
        (replace(task, active=(0, 1, 2, 3)), TooFewActive),
        (replace(task, length=N), WrongVector),
    ]
    for bad, error in cases:
        with pytest.raises(error):
            upload(simulation, 0, bad, vector)
    for wrong in (vector.astype(np.int64), vector[None], vector.tolist()):
        with pytest.raises(WrongVector):
            upload(simulation, 0, task, wrong)
    upload(simulation, 0, task, vector)


def test_a_second_task_for_the_same_slot(asked):
    simulation, task, vectors = asked
    first = upload(simulation, 0, task, vectors[0])
    for other in (
        replace(task, statistic="t"),
        replace(task, parameters=b"p"),
        replace(task, active=task.active[:-1]),
        replace(task, state=b"s" * 32),
    ):
        with pytest.raises(SecondTask):
            upload(simulation, 0, other, vectors[0])
    again = upload(simulation, 0, task, vectors[0] + np.uint64(1))
    assert (again.message, bytes(again.body)) == (first.message, bytes(first.body))


def test_an_encoding_that_does_not_fit_or_could_overflow_or_has_no_noise(asked):
    simulation, task, vectors = asked
    layout = Layout((Block("b", (N + 1,), bound=1.0, resolution=1e-6, sensitivity=1.0),))
    longer = Layout((Block("b", (N + 2,), bound=1.0, resolution=1e-6, sensitivity=1.0),))
    noise = {"multiplier": 4.0, "honest": 2}
    for bad in (
        Encoding.noisy(layout, **noise, max_clients=N - 1),
        Encoding.noisy(longer, **noise, max_clients=N),
        Encoding.finest(layout, max_clients=N),
    ):
        with pytest.raises(WrongEncoding):
            upload(simulation, 0, replace(task, encoding=bad.digest()), vectors[0], encoding=bad)
    fits = Encoding.noisy(layout, **noise, max_clients=N)
    with pytest.raises(WrongEncoding):
        upload(simulation, 0, task, vectors[0], encoding=fits)
    upload(simulation, 0, replace(task, encoding=fits.digest()), vectors[0], encoding=fits)


def test_a_slot_left_behind(seven, markers):
    seven.sum(markers.vectors(N))
    old = seven.coordinator.slot
    seven.sum(markers.vectors(N))
    client = seven.sites[0].client
    with pytest.raises(StaleSlot):
        upload(seven, 0, old.task, markers.vectors(N)[0])
    with pytest.raises(StaleSlot):
        client.certify(old.propose())
    with pytest.raises(StaleSlot):
        client.reveal(old.certificate)
    with pytest.raises(StaleSlot):
        client.repair(old.repair_request(0))


def test_a_slot_that_the_client_has_given_up(asked):
    simulation, task, vectors = asked
    client = simulation.sites[0].client
    client.abandon(simulation.coordinator.slot.abandon_request())
    with pytest.raises(SlotAbandoned):
        upload(simulation, 0, task, vectors[0])


# -- proposals and certificates


def test_proposals_that_are_not_signed(uploaded):
    simulation, proposal = uploaded
    client = simulation.sites[0].client
    everyone = proposal.survivors
    cases = [
        (replace(proposal, slot=1), NotUploaded),
        (replace(proposal, context=bytes(32)), DifferentTask),
        (replace(proposal, active=everyone[:-1], survivors=everyone[:-1]), DifferentTask),
        (replace(proposal, survivors=everyone[1:]), NotSurvivor),
        (replace(proposal, survivors=(0, 1, 2, 3, 4, 5, 6, 7)), UnknownSurvivor),
        (replace(proposal, survivors=(0, 1, 2, 3)), TooFewSurvivors),
        (replace(proposal, survivors=(0, 1)), TooFewSurvivors),
    ]
    for bad, error in cases:
        with pytest.raises(error):
            client.certify(bad)
    client.certify(proposal)


def test_certificates_that_are_not_believed(certified):
    simulation, certificate = certified
    client = simulation.sites[0].client
    signers, signatures = certificate.signers, certificate.signatures
    cases = [
        (replace(certificate, signers=signers[:-1], signatures=signatures[:-1]), TooFewSigners),
        (replace(certificate, signatures=(bytes(64), *signatures[1:])), ForgedSignature),
        (replace(certificate, signatures=signatures[::-1]), ForgedSignature),
        (replace(certificate, survivors=(0, 1, 2, 3, 4, 5)), ForgedSignature),
        (replace(certificate, survivors=(0, 1, 2, 3, 5, 6)), SignerOutside),
        (replace(certificate, context=bytes(32)), DifferentTask),
    ]
    for bad, error in cases:
        with pytest.raises(error):
            client.reveal(bad)
    with pytest.raises(NotAscending):
        replace(certificate, signers=(0,) * QUORUM)
    client.reveal(certificate)


def by_all(simulation, claim, ranks):
    """Return a certificate forged with everyone's keys, as if more colluded than tolerated."""
    parts = certify_parts(simulation.epoch, claim)
    signatures = tuple(simulation.sites[r].identity.sign(Label.CERTIFY, *parts) for r in ranks)
    return Certificate(**vars(claim), signers=ranks, signatures=signatures)


def test_a_second_certificate_for_a_slot(certified):
    simulation, certificate = certified
    client = simulation.sites[0].client
    client.reveal(certificate)
    other = replace(simulation.coordinator.slot.propose(), survivors=(0, 1, 2, 3, 4, 5))
    with pytest.raises(SecondCertificate):
        client.reveal(by_all(simulation, other, (0, 1, 2, 3, 4)))


def test_a_certificate_of_an_abandoned_slot_and_the_reverse(uploaded):
    simulation, proposal = uploaded
    parts = abandon_parts(simulation.epoch, 0)
    ranks = (0, 1, 2, 3, 4)
    signatures = tuple(simulation.sites[r].identity.sign(Label.ABANDON, *parts) for r in ranks)
    proof = AbandonProof(proposal.epoch_id, 0, ranks, signatures)
    certificate = by_all(simulation, proposal, ranks)
    simulation.sites[0].client.close(proof)
    with pytest.raises(ClosedOtherwise):
        simulation.sites[0].client.reveal(certificate)
    simulation.sites[1].client.reveal(certificate)
    with pytest.raises(ClosedOtherwise):
        simulation.sites[1].client.close(proof)
    with pytest.raises(TooFewSigners):
        simulation.sites[2].client.close(
            replace(proof, signers=ranks[:-1], signatures=signatures[:-1])
        )
    with pytest.raises(ForgedSignature):
        simulation.sites[2].client.close(replace(proof, slot=1))


# -- repair


def test_shares_that_are_not_opened(certified):
    simulation, certificate = certified
    client, slot = simulation.sites[0].client, simulation.coordinator.slot
    request = slot.repair_request(0)
    with pytest.raises(NotCertified):
        client.repair(request)
    client.reveal(certificate)
    with pytest.raises(DifferentTask):
        client.repair(replace(request, context=bytes(32)))
    with pytest.raises(ShareOfOutsider):
        client.repair(replace(request, silent=(0, 1, 2, 3, 4, 5)))
    client.repair(request)


def test_shares_of_those_outside_the_certified_set_stay_closed(seven, markers):
    seven.faults[2, Point.UPLOAD] = Fault.LATE
    vectors = markers.vectors(N)
    seven.sum(vectors)
    slot = seven.coordinator.slot
    request = slot.repair_request(0)
    outsider = replace(request, silent=(2,), sealed_shares=(bytes(82),), share_hashes=(bytes(32),))
    with pytest.raises(ShareOfOutsider, match="Rank 2"):
        seven.sites[0].client.repair(outsider)
