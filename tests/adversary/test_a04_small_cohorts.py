"""A4: in a cohort of two, each member learns the other's vector from the sum."""

import pytest

from privacy.errors import RosterError
from privacy.identity import Roster
from privacy.securesum.errors import (
    NotActive,
    PartialCohort,
    TermsError,
    TooFewActive,
    TooFewMembers,
    TooFewSurvivors,
    UnknownRank,
)
from privacy.securesum.terms import Terms

from .coordinator import SESSION, Attacker


@pytest.mark.parametrize(("colluders", "least"), [(0, 2), (1, 2), (2, 3), (33, 34)])
def test_terms_under_which_one_honest_member_would_stand_alone_do_not_exist(colluders, least):
    with pytest.raises(TermsError):
        Terms(SESSION, colluders, least, False)
    Terms(SESSION, colluders, max(3, colluders + 2), False)


def test_a_roster_of_two_does_not_exist():
    with pytest.raises(RosterError):
        Roster(Attacker(3).roster.members[:2])


def test_an_epoch_below_the_least_cohort_is_refused():
    attacker = Attacker(5, least=4)
    with pytest.raises(TooFewMembers):
        attacker.open([0, 1, 2])


def test_a_sum_over_too_few_active_members_is_refused():
    """Five members have a quorum of four, independent of the least cohort."""
    lair = Attacker(5, private=True).open()
    with pytest.raises(TooFewActive):
        lair.upload(lair.task(active=(0, 1, 2)), 0)
    lair.upload(lair.task(active=(0, 1, 2, 3)), 0)


def test_a_sum_below_the_least_cohort_is_refused():
    lair = Attacker(7, colluders=0, least=6, private=True).open()
    with pytest.raises(TooFewActive):
        lair.upload(lair.task(active=(0, 1, 2, 3, 4)), 0)


def test_survivors_below_the_least_cohort_are_not_certified():
    lair = Attacker(7, colluders=0, least=6, private=True).open()
    task = lair.task()
    lair.uploads(task)
    with pytest.raises(TooFewSurvivors):
        lair.certify(lair.proposal(task, (0, 1, 2, 3, 4)), 0)


def test_survivors_below_a_quorum_are_not_certified():
    lair = Attacker(7, colluders=2, least=4, private=True).open()
    task = lair.task()
    lair.uploads(task)
    with pytest.raises(TooFewSurvivors):
        lair.certify(lair.proposal(task, (0, 1, 2, 3)), 0)


def test_without_differential_privacy_some_of_the_members_are_too_few():
    lair = Attacker(6).open()
    with pytest.raises(PartialCohort):
        lair.upload(lair.task(active=(0, 1, 2, 3, 4)), 0)


def test_a_task_that_does_not_list_the_victim_is_not_answered():
    lair = Attacker(5, private=True).open()
    with pytest.raises(NotActive):
        lair.upload(lair.task(active=(1, 2, 3, 4)), 0)


def test_members_that_the_epoch_does_not_have_do_not_fill_a_cohort():
    lair = Attacker(5, private=True).open()
    with pytest.raises(UnknownRank):
        lair.upload(lair.task(active=(0, 1, 2, 3, 4, 5)), 0)
