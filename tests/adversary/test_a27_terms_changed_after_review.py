"""A27: the coordinator shows blind sums while a policy is reviewed, and then opens a session whose
sums, or whose model, it reads itself.

A policy approves a program by its digest. The terms of a session are not part of the program, and
the coordinator chooses them until a hospital has joined: so the policy must keep them.
"""

from dataclasses import replace
from datetime import date

import pytest

from client_sdk.errors import OpenSumsForbidden, PolicyRefused, ServedModelForbidden
from client_sdk.gate.dictionary import Dictionary
from client_sdk.gate.policy import Policy
from client_sdk.gate.policy_draft import draft
from privacy.securesum.terms import Terms, default_terms
from tests.kernels.rounds.tables import program

TODAY = date(2027, 1, 1)
SHOWN = default_terms(bytes(16), 5, blind=True, members_only=True)
SERVED = replace(SHOWN, members_only=False)
OPEN = replace(SERVED, blind=False)


def reviewed(shown: Terms) -> Policy:
    """Return the policy that is drafted for a session under these terms."""
    dictionary = Dictionary.containing(program().schema)
    return Policy.from_toml(draft(program(), shown, dictionary=dictionary))


def joined(policy: Policy, terms: Terms) -> None:
    policy.check_session(program(), terms, today=TODAY, text=program().to_json())


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


def test_terms_that_show_the_coordinator_less_need_no_review() -> None:
    joined(reviewed(OPEN), SHOWN)
