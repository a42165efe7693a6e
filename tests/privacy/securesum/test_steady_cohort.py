"""Without differential privacy: one set of members and one table per data source, permanently."""

import random
from dataclasses import replace

import pytest

from privacy.identity import Identity
from privacy.securesum.errors import (
    ApprovalMissing,
    CohortChanged,
    ConsentMissing,
    EpochStillOpen,
    ForgedConsent,
    NoiseMissing,
    NoiseReused,
    PartialCohort,
    SameTable,
    TableChanged,
)
from privacy.securesum.messages import Consent
from privacy.securesum.simulator import SOURCE, TABLE, Fault, Point, Simulation
from privacy.securesum.terms import Terms

OTHER_TABLE = b"t" * 32


def session(sites, name: int, *, dp=False, least=3) -> Simulation:
    """Open an epoch of a session with some sites."""
    terms = Terms(bytes([name]) * 16, 1, least, dp)
    simulation = Simulation(sites, terms=terms, random=random.Random(name).randbytes)
    simulation.open_epoch()
    return simulation


def end_all(simulation):
    for site in simulation.sites:
        for name, entry in list(site.client.journal.epochs.items()):
            if not entry.ended:
                site.persist(site.client.end(name))


def keys(sites) -> list[bytes]:
    return sorted(site.identity.key for site in sites)


def consents(session_id, old, new, signers) -> list[Consent]:
    return [site.client.consent(session_id, keys(old), keys(new)) for site in signers]


def change(simulation, sites, given, *, approved_by="Dr Ada Operator"):
    for site in sites:
        site.persist(
            site.client.change_cohort(
                SOURCE, simulation.terms.session, keys(sites), given, approved_by=approved_by
            )
        )


@pytest.fixture
def released(markers):
    """Return seven sites, of which five have released a sum; all epochs have ended."""
    first = session(5, 1)
    vectors = markers.vectors(5)
    markers.check(first.sum(vectors), vectors)
    end_all(first)
    return first.sites, session(5, 99).sites[:2]


def test_the_same_members_may_be_summed_in_a_further_session(released, markers):
    sites, _ = released
    again = session(sites, 2)
    vectors = markers.vectors(5)
    markers.check(again.sum(vectors), vectors)


def test_not_in_two_sessions_at_a_time(markers):
    first = session(5, 1)
    first.sum(markers.vectors(5))
    second = session(first.sites, 2)
    with pytest.raises(EpochStillOpen):
        second.sum(markers.vectors(5))


def test_a_session_with_one_member_less_is_refused(released, markers):
    sites, _ = released
    with pytest.raises(CohortChanged):
        session(sites[1:], 2).sum(markers.vectors(4))


def test_an_epoch_with_one_member_less_is_refused_even_if_the_sum_never_came(markers):
    simulation = session(5, 1)
    simulation.faults[0, Point.CERTIFY] = Fault.GONE
    simulation.faults[1, Point.CERTIFY] = Fault.GONE
    assert simulation.sum(markers.vectors(5)).total is None
    simulation.gone = {0}
    simulation.open_epoch()
    with pytest.raises(CohortChanged):
        simulation.sum(markers.vectors(5))


def test_after_a_proof_of_abandonment_the_cohort_may_change(markers):
    simulation = session(5, 1)
    task = simulation.coordinator.begin(statistic="s", length=6)
    simulation.faults[0, Point.UPLOAD] = Fault.GONE
    simulation.upload(task, markers.vectors(5))
    assert simulation.abandon().proof is not None
    simulation.open_epoch()
    vectors = markers.vectors(5)
    outcome = simulation.sum(vectors)
    markers.check(outcome, vectors)
    assert outcome.survivors == (1, 2, 3, 4)


def test_the_proof_also_serves_after_the_epoch_has_ended(markers):
    simulation = session(5, 1)
    task = simulation.coordinator.begin(statistic="s", length=6)
    simulation.faults[0, Point.UPLOAD] = Fault.GONE
    simulation.upload(task, markers.vectors(5))
    request = simulation.coordinator.slot.abandon_request()
    slot = simulation.coordinator.slot
    simulation.gone = {0}
    simulation.open_epoch()
    with pytest.raises(CohortChanged):
        simulation.sum(markers.vectors(5))
    for site in simulation.sites[1:]:
        step = site.client.abandon(request)
        site.persist(step)
        slot.add_abandonment(step.message)
    for site in simulation.sites[1:]:
        site.persist(site.client.close(slot.abandon_proof))
    simulation.open_epoch()
    vectors = markers.vectors(5)
    markers.check(simulation.sum(vectors), vectors)


def test_a_member_may_leave_if_it_signs_and_every_operator_approves(released, markers):
    sites, _ = released
    second = session(sites[1:], 2)
    given = consents(second.terms.session, sites, sites[1:], [sites[0]])
    change(second, sites[1:], given)
    vectors = markers.vectors(4)
    markers.check(second.sum(vectors), vectors)


def test_a_member_may_join_if_it_signs(released, markers):
    sites, others = released
    larger = [*sites, others[0]]
    second = session(larger, 2)
    given = consents(second.terms.session, sites, larger, [others[0]])
    for site in sites:
        site.persist(
            site.client.change_cohort(
                SOURCE, second.terms.session, keys(larger), given, approved_by="Ada"
            )
        )
    vectors = markers.vectors(6)
    markers.check(second.sum(vectors), vectors)


@pytest.mark.parametrize("case", ["nobody", "someone else", "other session", "other set"])
def test_a_change_that_the_exposed_have_not_signed_is_refused(released, case):
    sites, _ = released
    second = session(sites[1:], 2)
    here = second.terms.session
    given = {
        "nobody": [],
        "someone else": consents(here, sites, sites[1:], sites[1:]),
        "other session": consents(bytes(16), sites, sites[1:], [sites[0]]),
        "other set": consents(here, sites, sites[2:], [sites[0]]),
    }[case]
    with pytest.raises(ConsentMissing):
        change(second, sites[1:], given)


def test_a_forged_consent_is_refused(released):
    sites, _ = released
    second = session(sites[1:], 2)
    given = consents(second.terms.session, sites, sites[1:], [sites[0]])[0]
    values = {**vars(given)}
    values.pop("signature")
    with pytest.raises(ForgedConsent):
        change(second, sites[1:], [Consent.signed(Identity.generate(), **values)])
    with pytest.raises(ForgedConsent):
        change(second, sites[1:], [replace(given, session=bytes(16))])


def test_a_change_needs_the_name_of_an_operator(released):
    sites, _ = released
    second = session(sites[1:], 2)
    given = consents(second.terms.session, sites, sites[1:], [sites[0]])
    with pytest.raises(ApprovalMissing):
        change(second, sites[1:], given, approved_by=" ")


def test_an_approval_serves_one_change_to_one_set_in_one_session(released, markers):
    sites, _ = released
    second = session(sites[1:], 2)
    given = consents(second.terms.session, sites, sites[1:], [sites[0]])
    change(second, sites[1:], given)
    end_all(second)
    with pytest.raises(CohortChanged):
        session(sites[1:], 3).sum(markers.vectors(4))


def test_consent_is_needed_for_every_set_that_was_released_before(released, markers):
    """{1..5}, then {1..6} with 6's consent, then {1..5, 7}: the first set exposes 7."""
    sites, (six, seven) = released
    larger, swapped = [*sites, six], [*sites, seven]
    second = session(larger, 2)
    for site in sites:
        site.persist(
            site.client.change_cohort(
                SOURCE, second.terms.session, keys(larger),
                consents(second.terms.session, sites, larger, [six]), approved_by="Ada",
            )
        )  # fmt: skip
    second.sum(markers.vectors(6))
    end_all(second)
    third = session(swapped, 3)
    here = third.terms.session
    given = consents(here, larger, swapped, [six, seven])
    with pytest.raises(ConsentMissing):
        sites[0].client.change_cohort(SOURCE, here, keys(swapped), given, approved_by="Ada")
    given += consents(here, sites, swapped, [seven])
    sites[0].client.change_cohort(SOURCE, here, keys(swapped), given, approved_by="Ada")


def test_an_approval_given_while_nothing_was_released_does_not_outlive_the_next_upload(markers):
    """Slot 0 is abandoned, so leaving one member out needs no consent; slot 1 is then released."""
    first = session(6, 1)
    task = first.coordinator.begin(statistic="s", length=7)
    first.upload(task, markers.vectors(6))
    assert first.abandon().proof is not None
    smaller = first.sites[:5]
    for site in smaller:
        site.persist(
            site.client.change_cohort(SOURCE, bytes([2]) * 16, keys(smaller), [], approved_by="A")
        )
    vectors = markers.vectors(6)
    markers.check(first.sum(vectors), vectors)
    end_all(first)
    with pytest.raises(CohortChanged):
        session(smaller, 2).sum(markers.vectors(5))


@pytest.mark.parametrize("moved_on", [False, True])
def test_a_table_does_not_escape_the_rule_under_another_name(released, markers, moved_on):
    sites, _ = released
    for site in sites if moved_on else ():
        site.persist(site.client.approve_table(SOURCE, OTHER_TABLE, approved_by="Ada"))
    terms = Terms(bytes([2]) * 16, 1, 3, False)
    second = Simulation(sites[1:], terms=terms)
    for site in second.sites:
        step = site.client.advertise(second.coordinator.opening(), "a new name")
        site.persist(step)
        second.coordinator.add_advert(step.message)
    second.agree()
    second.deliver()
    with pytest.raises(SameTable, match="'table'"):
        second.sum(markers.vectors(4))


def test_survivors_are_everyone_or_nobody(markers):
    simulation = session(5, 1)
    vectors = markers.vectors(5)
    task = simulation.coordinator.begin(statistic="s", length=6)
    simulation.upload(task, vectors)
    proposal = simulation.coordinator.slot.propose()
    with pytest.raises(PartialCohort):
        simulation.sites[0].client.certify(replace(proposal, survivors=(0, 1, 2, 3)))


def test_active_members_are_everyone(markers):
    simulation = session(5, 1)
    with pytest.raises(PartialCohort):
        simulation.sum(markers.vectors(5), active=(0, 1, 2, 3))


# -- tables


def test_another_table_needs_the_name_of_an_operator(released, markers):
    sites, _ = released
    second = session(sites, 2)
    task = second.coordinator.begin(statistic="s", length=6)
    client, vector = sites[0].client, markers.vectors(5)[0]
    with pytest.raises(TableChanged):
        client.upload(task, vector, table=OTHER_TABLE)
    with pytest.raises(ApprovalMissing):
        client.approve_table(SOURCE, OTHER_TABLE, approved_by="")
    with pytest.raises(ApprovalMissing):
        client.approve_table("unknown", OTHER_TABLE, approved_by="Ada")
    sites[0].persist(client.approve_table(SOURCE, OTHER_TABLE, approved_by="Ada Operator"))
    with pytest.raises(TableChanged):
        client.upload(task, vector, table=TABLE)
    client.upload(task, vector, table=OTHER_TABLE)


def test_a_table_that_changes_under_a_sum_stops_it(markers):
    simulation = session(5, 1)
    task = simulation.coordinator.begin(statistic="s", length=6)
    simulation.upload(task, markers.vectors(5))
    site = simulation.sites[0]
    site.persist(site.client.approve_table(SOURCE, OTHER_TABLE, approved_by="Ada"))
    with pytest.raises(TableChanged):
        site.client.certify(simulation.coordinator.slot.propose())


# -- with differential privacy


def test_with_differential_privacy_any_cohort_will_do(markers):
    first = session(6, 1, dp=True)
    for active in [(0, 1, 2, 3, 4, 5), (1, 2, 3, 4, 5), (0, 2, 3, 4, 5)]:
        vectors = markers.vectors(6)
        markers.check(first.sum(vectors, active=active), vectors)
    second = session(first.sites[1:], 2, dp=True)
    vectors = markers.vectors(5)
    markers.check(second.sum(vectors), vectors)


def test_every_upload_is_covered_by_a_draw_of_noise_of_its_own(markers):
    simulation = session(5, 1, dp=True)
    client, vector = simulation.sites[0].client, markers.vectors(5)[0]
    task = simulation.coordinator.begin(statistic="s", length=6)
    with pytest.raises(NoiseMissing):
        client.upload(task, vector, table=TABLE)
    simulation.sites[0].persist(client.upload(task, vector, table=TABLE, noise=b"draw 1"))
    second = session(simulation.sites, 2, dp=True)
    task = second.coordinator.begin(statistic="s", length=6)
    with pytest.raises(NoiseReused):
        second.sites[0].client.upload(task, vector, table=TABLE, noise=b"draw 1")


def test_without_differential_privacy_no_noise_is_claimed(markers):
    simulation = session(5, 1)
    task = simulation.coordinator.begin(statistic="s", length=6)
    with pytest.raises(NoiseMissing):
        simulation.sites[0].client.upload(task, markers.vectors(5)[0], table=TABLE, noise=b"draw 1")
