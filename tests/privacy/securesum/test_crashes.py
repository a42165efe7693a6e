"""Client or coordinator may crash after any message: answers are repeated byte for byte."""

import random

import pytest

from privacy.errors import PrivacyError
from privacy.identity import Identity
from privacy.securesum.client import Client
from privacy.securesum.coordinator import Coordinator
from privacy.securesum.errors import (
    JournalError,
    JournalLost,
    JournalRolledBack,
    SecretsLost,
    UnknownEpoch,
    VaultLost,
)
from privacy.securesum.simulator import SOURCE, TABLE, Fault, Point

N = 6
FAULTS = [
    Fault.CRASH_BEFORE,
    Fault.CRASH_AFTER,
    Fault.ANSWER_LOST,
    Fault.ANSWER_TWICE,
    Fault.COORDINATOR_CRASH,
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_every_message_of_everyone_changes_nothing(private, markers, fault):
    simulation = private(N, least=3)

    def everywhere():
        simulation.faults = {
            (site, point): fault for site in range(N) for point in Point if site != 5
        }

    everywhere()
    simulation.open_epoch()
    for _ in range(2):
        everywhere()
        simulation.faults[5, Point.REVEAL] = Fault.GONE  # so that a repair is needed
        vectors = markers.vectors(N)
        outcome = simulation.sum(vectors)
        markers.check(outcome, vectors)
        assert outcome.silent == (5,)
        simulation.wake()
    everywhere()
    for site in range(3):
        simulation.faults[site, Point.UPLOAD] = Fault.LATE
    assert simulation.sum(markers.vectors(N)).proof is not None
    everywhere()
    vectors = markers.vectors(N)
    markers.check(simulation.sum(vectors), vectors)


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_messages_and_any_faults_give_the_same_sums(private, markers, seed):
    simulation = private(N, least=3, seed=seed)
    chance = random.Random(seed)
    simulation._order = chance

    def shaken():
        simulation.faults = {
            (site, point): chance.choice(FAULTS)
            for site in range(N)
            for point in Point
            if chance.random() < 0.5
        }

    shaken()
    simulation.open_epoch()
    for _ in range(3):
        shaken()
        vectors = markers.vectors(N)
        markers.check(simulation.sum(vectors), vectors)


def test_a_restored_client_says_the_same_bytes_again(private, markers):
    """Every request is made twice, with a crash in between."""
    simulation = private(N, least=3)
    asked = []
    for site in simulation.sites:
        answer = site.answer

        def twice(data, ask, site=site, answer=answer):
            first = answer(data, ask)
            site.crash()
            second = answer(data, ask)
            assert not second.records, "a repeated answer decides nothing new"
            if second.message is not None:
                assert first.message.encode() == second.message.encode()
                assert getattr(first, "body", b"") == getattr(second, "body", b"")
                asked.append(type(first.message).__name__)
            return first

        site.answer = twice
    simulation.open_epoch()
    simulation.faults[1, Point.REVEAL] = Fault.GONE
    vectors = markers.vectors(N)
    markers.check(simulation.sum(vectors), vectors)
    simulation.wake()
    simulation.faults = {(site, Point.UPLOAD): Fault.LATE for site in range(4)}
    assert simulation.sum(markers.vectors(N)).proof is not None
    assert set(asked) == {
        "Advert", "Boxes", "Upload", "Certification", "Reveal", "Repair", "Abandonment",
    }  # fmt: skip


def test_what_was_not_made_durable_was_never_said(private, markers):
    """After a crash before the journal is written the client may answer again: nothing was sent."""
    simulation = private(N, least=3)
    simulation.open_epoch()
    vectors = markers.vectors(N)
    task = simulation.coordinator.begin(statistic="s", length=N + 1)
    site = simulation.sites[0]
    lost = site.client.upload(task, vectors[0], table=TABLE, noise=b"1" * 16)
    site.crash()
    simulation.upload(task, vectors)
    sent = simulation.coordinator.slot._uploads[0]
    assert sent.commitment != lost.message.commitment
    markers.check(simulation.finish(simulation.coordinator.slot.propose()), vectors)


def test_a_saved_coordinator_is_the_same_coordinator(private, markers):
    simulation = private(N, least=3)
    simulation.open_epoch()
    simulation.sum(markers.vectors(N))
    saved = simulation.coordinator.save()
    assert Coordinator.restore(saved).save() == saved


def test_an_identity_without_its_journal_refuses(private):
    simulation = private(4)
    site = simulation.sites[0]
    with pytest.raises(JournalLost):
        Client.restore(site.identity, [], {})


def test_a_client_that_began_the_session_and_lost_its_journal_refuses_it_for_ever(private):
    simulation = private(5)
    simulation.open_epoch()
    simulation.coordinator = simulation.coordinator.restart()
    anew, _ = Client.begin(simulation.sites[0].identity)
    anew.join(simulation.terms)
    with pytest.raises(JournalLost):
        anew.advertise(simulation.coordinator.opening(), SOURCE)


def test_a_client_that_lost_its_journal_signs_nothing_not_even_an_abandonment(private, markers):
    simulation = private(5)
    simulation.open_epoch()
    simulation.faults = {(site, Point.UPLOAD): Fault.LATE for site in range(3)}
    simulation.sum(markers.vectors(5))
    anew, _ = Client.begin(simulation.sites[0].identity)
    anew.join(simulation.terms)
    with pytest.raises(UnknownEpoch):
        anew.abandon(simulation.coordinator.slot.abandon_request())


def test_a_journal_from_a_backup_beside_a_newer_vault_is_refused(private, markers):
    simulation = private(5)
    simulation.open_epoch()
    site = simulation.sites[0]
    backup = list(site.records)
    simulation.sum(markers.vectors(5))
    with pytest.raises(JournalRolledBack):
        Client.restore(site.identity, backup, site.vault)
    site.records[-1] = site.records[-2]
    with pytest.raises(JournalRolledBack):
        Client.restore(site.identity, site.records, site.vault)


def test_a_client_whose_secrets_are_gone_cannot_go_on_but_can_give_up(private, markers):
    simulation = private(5)
    simulation.open_epoch()
    vectors = markers.vectors(5)
    task = simulation.coordinator.begin(statistic="s", length=6)
    simulation.upload(task, vectors)
    site = simulation.sites[0]
    for name in set(site.vault) - {"head"}:
        del site.vault[name]
    site.crash()
    with pytest.raises(SecretsLost):
        site.client.upload(task, vectors[0], table=TABLE, noise=b"2" * 16)
    assert simulation.abandon().proof is not None


def test_a_journal_from_a_backup_has_no_vault_and_is_refused(private, markers):
    """Otherwise a client could certify, restore the backup, and sign the slot's abandonment."""
    simulation = private(5)
    simulation.open_epoch()
    task = simulation.coordinator.begin(statistic="s", length=6)
    simulation.upload(task, markers.vectors(5))
    site = simulation.sites[0]
    backup = list(site.records)
    site.persist(site.client.certify(simulation.coordinator.slot.propose()))
    with pytest.raises(VaultLost):
        Client.restore(site.identity, backup, {})


def test_secrets_of_an_earlier_stage_than_the_journals_are_lost_secrets(private):
    simulation = private(5)
    simulation.advertise()
    site = simulation.sites[0]
    early = {name: content for name, content in site.vault.items() if name != "head"}
    simulation.agree()
    site.vault.update(early)
    site.crash()
    with pytest.raises(SecretsLost):
        site.client.receive(simulation.coordinator.delivery(0))


@pytest.mark.parametrize("data", [b"", b"\1", b"\1\xff", b"\1\x48"])
def test_a_journal_of_other_bytes_is_refused_by_name(private, data):
    site = private(4).sites[0]
    with pytest.raises(PrivacyError) as caught:
        Client.restore(site.identity, [*site.records, data], site.vault)
    assert caught.value.code.startswith(("journal", "securesum"))


def test_a_journal_with_holes_or_of_another_member_is_refused(private, markers):
    simulation = private(5)
    simulation.open_epoch()
    simulation.sum(markers.vectors(5))
    records = simulation.sites[0].records
    for missing in range(len(records)):
        holes = [record for i, record in enumerate(records) if i != missing]
        with pytest.raises(JournalError):
            Client.restore(simulation.sites[0].identity, holes, simulation.sites[0].vault)
    with pytest.raises(JournalError, match="not the journal of"):
        Client.restore(Identity.generate(), records, simulation.sites[0].vault)
