"""A6: two sums that differ by one member, or by one patient, expose that member or patient.

Without differential privacy the steady-cohort rule binds a data source to one set of members and
one table, across epochs, runs and sessions. For differential privacy, see test_a06_with_noise.
Numbers are hospitals; the victim is the last.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from privacy.securesum.errors import (
    ApprovalMissing,
    CohortChanged,
    ConsentMissing,
    EpochEnded,
    EpochStillOpen,
    ForgedConsent,
    PartialCohort,
    SameTable,
    TableChanged,
)
from privacy.securesum.messages import Consent
from privacy.securesum.terms import Terms

from .coordinator import (
    OTHER_RUN,
    OTHER_SESSION,
    SESSION,
    SOURCE,
    Attacker,
    Lair,
    is_noise,
    marker,
)

STRICT = Terms(OTHER_SESSION, 1, 3, False)
PRIVATE = Terms(OTHER_SESSION, 1, 3, True)


def consents(
    attacker: Attacker, old: Iterable[int], new: Iterable[int], session: bytes = SESSION
) -> list[Consent]:
    """Return the consents of everyone who is in only one of the two sets."""
    before, after = set(old), set(new)
    return [
        attacker.hospitals[i].client.consent(session, attacker.keys(before), attacker.keys(after))
        for i in sorted(before ^ after)
    ]


def change(
    attacker: Attacker,
    new: Iterable[int],
    given: Iterable[Consent],
    *,
    at: Iterable[int],
    session: bytes = SESSION,
    approved_by: str = "Dr Ada",
) -> None:
    """Let the operators of some hospitals approve another set of members."""
    agreed = list(given)
    for i in at:
        hospital = attacker.hospitals[i]
        hospital.does(
            hospital.client.change_cohort(
                SOURCE, session, attacker.keys(new), agreed, approved_by=approved_by
            )
        )


# -- one member less


def test_the_next_epoch_without_one_member_is_refused():
    attacker = Attacker(6)
    attacker.open().sum()
    smaller = attacker.open([0, 1, 2, 3, 4], number=1)
    for rank in smaller.everyone:
        with pytest.raises(CohortChanged):
            smaller.upload(smaller.task(), rank)


def test_the_next_epoch_with_one_member_more_is_refused():
    attacker = Attacker(6)
    attacker.open([0, 1, 2, 3, 4]).sum()
    larger = attacker.open(number=1)
    for rank in (0, 1, 2, 3, 4):
        with pytest.raises(CohortChanged):
            larger.upload(larger.task(), rank)


def test_a_second_session_without_one_member_is_refused():
    attacker = Attacker(6)
    attacker.join(STRICT)
    first = attacker.open()
    first.sum()
    first.end()
    second = attacker.open([0, 1, 2, 3, 4], terms=STRICT)
    with pytest.raises(CohortChanged):
        second.upload(second.task(), 0)


def test_two_epochs_side_by_side_are_refused():
    """Nothing is certified in the first epoch before the second is opened, in any run.

    The quorums of two epochs need not share a member, so no quorum would see both sums.
    """
    attacker = Attacker(6)
    attacker.join(STRICT)
    first = attacker.open()
    first.uploads(first.task())
    for beside in (
        attacker.open([0, 1, 2, 3, 4], run=OTHER_RUN),
        attacker.open([0, 1, 2, 3, 4], terms=STRICT),
    ):
        for rank in beside.everyone:
            with pytest.raises(EpochStillOpen):
                beside.upload(beside.task(), rank)
    # After the epoch has ended, the sum still counts as released.
    first.end()
    again = attacker.open([0, 1, 2, 3, 4], run=OTHER_RUN, number=1)
    with pytest.raises(CohortChanged):
        again.upload(again.task(), 0)


def test_an_epoch_that_was_left_is_not_taken_up_again():
    """The new epoch of the run ends the old one: its uploads are not certified later."""
    attacker = Attacker(6)
    first = attacker.open()
    first.uploads(first.task())
    attacker.open(number=1)
    with pytest.raises(EpochEnded):
        first.certify(first.proposal(first.task()), 0)


def test_a_pretended_dropout_is_not_certified():
    lair = Attacker(6).open()
    task = lair.task()
    lair.uploads(task)
    with pytest.raises(PartialCohort):
        lair.certify(lair.proposal(task, (0, 1, 2, 3, 4)), 0)


def test_nothing_is_certified_or_revealed_once_the_source_has_moved_on():
    """The operators approved another table between upload and reveal."""
    lair = Attacker(6).open()
    task = lair.task()
    lair.uploads(task)
    certificate = lair.certificate(lair.proposal(task))
    for rank, hospital in lair.members.items():
        hospital.does(hospital.client.approve_table(SOURCE, bytes([7]) * 32, approved_by="Dr Ada"))
        with pytest.raises(TableChanged):
            lair.reveal(certificate, rank)
        with pytest.raises(TableChanged):
            lair.certify(lair.proposal(task), rank)


def test_shares_are_not_opened_once_the_source_has_moved_on():
    lair = Attacker(6).open()
    task = lair.task()
    lair.uploads(task)
    certificate = lair.certificate(lair.proposal(task))
    lair.reveal(certificate, 1)
    hospital = lair.members[1]
    hospital.does(hospital.client.approve_table(SOURCE, bytes([7]) * 32, approved_by="Dr Ada"))
    with pytest.raises(TableChanged):
        lair.repair(task, 1, 0)


# -- one patient more


def test_the_same_members_with_one_patient_more_are_refused():
    attacker = Attacker()
    lair = attacker.open()
    lair.sum()
    task = lair.task(1, proof=lair.last.encode())
    grown = bytes([1]) * 32
    with pytest.raises(TableChanged):
        lair.upload(task, 0, table=grown)
    lair.end()
    # Not in another run either.
    other = attacker.open(run=OTHER_RUN)
    with pytest.raises(TableChanged):
        other.upload(other.task(), 0, table=grown)


def test_another_table_needs_the_name_of_an_operator():
    lair = Attacker().open()
    lair.sum()
    hospital, grown = lair.members[0], bytes([1]) * 32
    for name in ("", " "):
        with pytest.raises(ApprovalMissing):
            hospital.client.approve_table(SOURCE, grown, approved_by=name)
    hospital.does(hospital.client.approve_table(SOURCE, grown, approved_by="Dr Ada"))
    lair.upload(lair.task(1, proof=lair.last.encode()), 0, table=grown)


def test_one_table_under_two_names_is_one_source():
    """Otherwise a renamed data source could be summed with another set of members."""
    attacker = Attacker(6)
    lair = attacker.open()
    lair.sum()
    lair.end()
    renamed = attacker.open(range(5), number=1, source="table, renamed")
    with pytest.raises(SameTable):
        renamed.upload(renamed.task(), 0)
    # Not even after the source itself has moved on to another table.
    hospital = renamed.members[0]
    hospital.does(hospital.client.approve_table(SOURCE, bytes([7]) * 32, approved_by="Dr Ada"))
    with pytest.raises(SameTable):
        renamed.upload(renamed.task(), 0)


def test_a_table_that_was_never_summed_is_not_approved_beforehand():
    hospital = Attacker().hospitals[0]
    with pytest.raises(ApprovalMissing):
        hospital.client.approve_table(SOURCE, bytes(32), approved_by="Dr Ada")


# -- consent


def test_a_change_needs_the_consent_of_the_one_that_is_left_out():
    attacker = Attacker(6)
    attacker.open().sum()
    everyone, rest = range(6), range(5)
    with pytest.raises(ConsentMissing):
        change(attacker, rest, [], at=rest)
    given = consents(attacker, everyone, rest)
    with pytest.raises(ApprovalMissing):
        change(attacker, rest, given, at=rest, approved_by=" ")
    change(attacker, rest, given, at=rest)
    smaller = attacker.open(rest, number=1)
    np.testing.assert_array_equal(smaller.sum(), sum(marker(i) for i in rest))


def test_consent_is_not_given_in_anothers_name():
    attacker = Attacker(6)
    attacker.open().sum()
    (given,) = consents(attacker, range(6), range(5))
    forged = replace(given, signature=bytes(64))
    with pytest.raises(ForgedConsent):
        change(attacker, range(5), [forged], at=[0])
    by_colluder = attacker.hospitals[1].client.consent(
        SESSION, attacker.keys(range(6)), attacker.keys(range(5))
    )
    with pytest.raises(ConsentMissing):
        change(attacker, range(5), [by_colluder], at=[0])
    renamed = replace(by_colluder, identity=given.identity)
    with pytest.raises(ForgedConsent):
        change(attacker, range(5), [renamed], at=[0])


def test_consent_to_other_sets_does_not_serve():
    attacker = Attacker(7)
    attacker.open([0, 1, 2, 3, 4, 6]).sum()
    given = consents(attacker, range(7), [0, 1, 2, 3, 4, 5])
    with pytest.raises(ConsentMissing):
        change(attacker, range(5), given, at=[0])


def test_consent_in_one_session_does_not_serve_in_another():
    attacker = Attacker(6)
    attacker.join(STRICT)
    lair = attacker.open()
    lair.sum()
    lair.end()
    given = consents(attacker, range(6), range(5), SESSION)
    with pytest.raises(ConsentMissing):
        change(attacker, range(5), given, at=[0], session=OTHER_SESSION)
    change(attacker, range(5), given, at=range(5))
    elsewhere = attacker.open(range(5), terms=STRICT)
    with pytest.raises(CohortChanged):
        elsewhere.upload(elsewhere.task(), 0)


def test_every_set_that_was_ever_released_needs_its_consents():
    """S1 = {0..4}, S2 = S1 + 5, S3 = S1 + 6: with consents to S2 → S3 alone, S1 exposes 6."""
    attacker = Attacker(7)
    s1, s2, s3 = [0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 6]
    attacker.open(s1).sum()
    change(attacker, s2, consents(attacker, s1, s2), at=s1)
    attacker.open(s2, number=1).sum()
    last_only = consents(attacker, s2, s3)
    with pytest.raises(ConsentMissing):
        change(attacker, s3, last_only, at=[0])
    change(attacker, s3, [*last_only, *consents(attacker, s1, s3)], at=[0])


def test_the_member_that_is_in_every_set_is_asked_too():
    """{c,1..4} + {c,5..8} − {c,1..8} = c, who is in no difference: its operator must approve."""
    attacker = Attacker(9)
    s1, s2 = [0, 1, 2, 3, 4], [0, 5, 6, 7, 8]
    attacker.open(s1).sum()
    given = consents(attacker, s1, s2)
    change(attacker, s2, given, at=[1])  # other operators' approval does not suffice
    second = attacker.open(s2, number=1)
    with pytest.raises(CohortChanged):
        second.upload(second.task(), 0)


def test_an_approval_serves_once():
    attacker = Attacker(6)
    attacker.open().sum()
    change(attacker, range(5), consents(attacker, range(6), range(5)), at=range(5))
    smaller = attacker.open(range(5), number=1)
    smaller.sum()
    back = attacker.open(number=2)
    with pytest.raises(CohortChanged):
        back.upload(back.task(), 0)


def test_an_approval_does_not_outlive_what_it_was_given_for():
    """Nothing is released yet, so no consent is needed; then the old set is summed after all."""
    attacker = Attacker(6)
    lair = attacker.open()
    lair.uploads(lair.task())
    proof = lair.abandonment(lair.everyone)
    change(attacker, range(5), [], at=range(5))
    lair.sum(1, proof=proof.encode())
    smaller = attacker.open(range(5), number=1)
    with pytest.raises(CohortChanged):
        smaller.upload(smaller.task(), 0)


def test_an_abandoned_slot_frees_the_source_and_an_open_one_does_not():
    attacker = Attacker(6)
    lair = attacker.open()
    lair.uploads(lair.task())
    proof = lair.abandonment(lair.everyone, tell=False)
    lair.end()
    smaller = attacker.open(range(5), number=1)
    with pytest.raises(CohortChanged):
        smaller.upload(smaller.task(), 0)
    for hospital in attacker.hospitals:
        hospital.does(hospital.client.close(proof))
    smaller.uploads(smaller.task())
    assert is_noise(lair.unmask(lair.task(), [5]))


# -- sessions under other rules


def moved(before: Terms | None, after: Terms | None, attacker: Attacker) -> Lair:
    """Sum everyone in one session, then open an epoch without the victim in the other."""
    first = attacker.open(terms=before)
    first.sum()
    first.end()
    return attacker.open(range(5), terms=after)


def test_with_differential_privacy_the_noise_covers_differences():
    attacker = Attacker(6)
    attacker.join(PRIVATE)
    lair = attacker.open()
    lair.sum()
    beside = attacker.open(range(5), terms=PRIVATE)
    beside.upload(beside.task(), 0)
