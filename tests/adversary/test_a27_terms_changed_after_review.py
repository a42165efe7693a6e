"""A27: the coordinator shows blind sums while a policy is reviewed, and then opens a session whose
sums, or whose model, it reads itself.

A policy approves a program by its digest. The terms of a session are not part of the program, and
the coordinator chooses them: so a policy allows neither open sums nor a model that the coordinator
has unless it says so, and within one session the terms that were shown first are the only ones.
"""

from contextlib import suppress
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from client_sdk.conversation.offer import OfferReview
from client_sdk.errors import (
    OpenSumsForbidden,
    PolicyRefused,
    ServedModelForbidden,
    SessionChanged,
)
from client_sdk.gate.policy import Policy
from client_sdk.home.home import Home
from client_sdk.network.exchange import Call, Lost, Reply
from privacy.securesum.terms import Terms, default_terms
from tests.client_sdk.conftest import Make, homes, make, program
from tests.client_sdk.coordinator import SmallCoordinator
from tests.client_sdk.hospitals import Hospital, drafted, drive
from tests.client_sdk.private import DELTA
from tests.client_sdk.private import PROGRAM as NOISY
from tests.kernels.rounds.tables import program as program_with

__all__ = ["homes", "make", "program"]

TODAY = date(2027, 1, 1)
PROGRAM = program_with()
SHOWN = default_terms(bytes(16), 5, blind=True, members_only=True)
SERVED = replace(SHOWN, members_only=False)
OPEN = replace(SERVED, blind=False)


def reviewed(shown: Terms) -> Policy:
    """Return the policy that is drafted for a session under these terms."""
    return drafted(PROGRAM, shown)


def joined(policy: Policy, terms: Terms) -> None:
    policy.check_session(PROGRAM, terms, today=TODAY, text=PROGRAM.to_json())


@pytest.mark.parametrize("terms", [SHOWN, SERVED, OPEN])
def test_a_drafted_policy_allows_the_terms_that_it_was_drafted_for(terms: Terms) -> None:
    joined(reviewed(terms), terms)


def test_sums_that_were_shown_as_blind_are_not_answered_as_open_ones() -> None:
    with pytest.raises(OpenSumsForbidden):
        joined(reviewed(SERVED), OPEN)


def test_a_model_that_was_shown_as_for_members_is_not_made_for_the_coordinator() -> None:
    with pytest.raises(ServedModelForbidden):
        joined(reviewed(SHOWN), SERVED)
    with pytest.raises(PolicyRefused):
        joined(reviewed(SHOWN), OPEN)


def test_a_policy_without_these_lines_lets_the_coordinator_read_neither_sums_nor_model() -> None:
    assert not Policy().open_sums
    assert not Policy().served_model
    silent = replace(reviewed(OPEN), open_sums=Policy().open_sums)
    with pytest.raises(OpenSumsForbidden) as no_sums:
        joined(silent, OPEN)
    silent = replace(reviewed(SERVED), served_model=Policy().served_model)
    with pytest.raises(ServedModelForbidden) as no_model:
        joined(silent, SERVED)
    # The first thing to do is to ask for another session, not to allow it.
    for refusal, asked in ((no_sums, "blind sums"), (no_model, "for members only")):
        before, after = str(refusal.value).split("To allow it all the same", 1)
        assert "Ask the session's admin" in before
        assert asked in before
        assert refusal.value.line in after


def test_terms_that_show_the_coordinator_less_need_no_review() -> None:
    joined(reviewed(OPEN), SHOWN)


def test_noise_covers_sums_and_model_so_neither_line_is_needed() -> None:
    terms = default_terms(bytes(16), 5, differential_privacy=True)
    policy = drafted(NOISY, terms, delta=DELTA)
    assert not policy.open_sums
    assert not policy.served_model
    policy.check_session(NOISY, terms, today=TODAY, text=NOISY.to_json())


# -- within one session


CHANGES = [
    ({"blind": False, "members_only": False}, "blind sums: yes before, no now"),
    ({"members_only": False}, "model for members only: yes before, no now"),
    ({"max_colluders": 1}, "max_colluders"),
    ({"differential_privacy": True, "blind": False, "members_only": False}, "differential"),
]


def shown(make: Make) -> tuple[SmallCoordinator, Hospital]:
    """Return a coordinator that shows blind sums and a model for members, and one hospital."""
    coordinator, hospitals = make()
    coordinator.start()
    assert coordinator.terms is not None
    coordinator.terms = replace(coordinator.terms, max_colluders=0, blind=True, members_only=True)
    return coordinator, hospitals[0]


def changed(coordinator: SmallCoordinator, change: dict[str, Any]) -> None:
    assert coordinator.terms is not None
    coordinator.terms = replace(coordinator.terms, **change)


def check_refused(hospital: Hospital, coordinator: SmallCoordinator, named: str) -> None:
    assert isinstance(hospital.error, SessionChanged)
    assert named in str(hospital.error)
    assert [each["code"] for each in coordinator.refusals] == ["session.changed"]
    with Home(hospital.path).open() as home:
        assert home.client.journal.count == 1


@pytest.mark.parametrize(("change", "named"), CHANGES)
def test_terms_do_not_change_between_the_draft_of_a_policy_and_the_join(
    make: Make, change: dict[str, Any], named: str
) -> None:
    coordinator, hospital = shown(make)
    with hospital.open() as side:
        talk, reply = OfferReview(side).read(), None
        with suppress(StopIteration):
            while True:
                effect = talk.send(reply)
                assert isinstance(effect, Call)
                reply = coordinator.answer(effect)
    changed(coordinator, change)
    drive([hospital], coordinator)
    check_refused(hospital, coordinator, named)


@pytest.mark.parametrize(("change", "named"), CHANGES)
def test_terms_do_not_change_while_a_hospital_waits_for_approval(
    make: Make, change: dict[str, Any], named: str
) -> None:
    coordinator, hospital = shown(make)
    coordinator.approve = False
    asked = 0

    def approve_under_other_terms(_: int, call: Call) -> Reply | Lost:
        nonlocal asked
        if call.target.split("?")[0].endswith("/membership"):
            asked += 1
            if asked == 2:
                coordinator.approve = True
                changed(coordinator, change)
        return coordinator.answer(call)

    drive([hospital], coordinator, approve_under_other_terms)
    check_refused(hospital, coordinator, named)
