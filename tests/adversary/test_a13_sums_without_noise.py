"""A13: a sum alone is not private: an attacker who knows all other rows learns the last one.

So a session declares whether it has noise, and a site allows neither kind by default.
"""

from datetime import date

import numpy as np
import pytest
from pydantic import ValidationError

from client_sdk.errors import BudgetMissing, PrivacyRequired
from client_sdk.gate.policy import Policy
from privacy.encoding import Encoding
from privacy.layout import Block, Layout
from privacy.noise import draw
from privacy.securesum.terms import default_terms
from service.sessions.sessions import NewPrivacy
from tests.client_sdk.hospitals import permissive
from tests.client_sdk.private import PROGRAM

LAYOUT = Layout((Block("sums", (20,), bound=1e4, resolution=1e-6, sensitivity=1.0),))
HOSPITALS = 5
TRIALS = 200
"""A guess is right with probability 0.541: 160 of 200 happen by chance once in 5e13 runs."""


def guesses(encoding: Encoding) -> float:
    """Return how often a coordinator that knows all other rows is right about one patient.

    The patient's row changes the sum by 1 in a direction that the attacker knows.
    """
    random = np.random.default_rng(4)
    patient = np.full(20, 20**-0.5)
    right = 0
    for trial in range(TRIALS):
        rest = [random.normal(size=20) for _ in range(HOSPITALS)]
        there = trial % 2
        rows = [rest[0] + there * patient, *rest[1:]]
        vectors = [
            encoding.encode(
                {"sums": own},
                noise=draw(encoding).once() if encoding.share_deviations else None,
            )
            for own in rows
        ]
        total = encoding.decode(np.add.reduce(vectors), contributors=HOSPITALS)
        excess = float((total["sums"] - np.sum(rest, 0)) @ patient)
        right += (excess > 0.5) == bool(there)
    return right / TRIALS


def test_a_patient_is_read_from_exact_sums_and_not_from_noisy_ones() -> None:
    assert guesses(Encoding.finest(LAYOUT, max_clients=HOSPITALS)) == 1.0
    noisy = Encoding.noisy(LAYOUT, multiplier=3.732, honest=3, max_clients=HOSPITALS)
    assert guesses(noisy) < 0.8, "ε = 1 allows a little over a half"


def test_a_session_has_no_default() -> None:
    with pytest.raises(ValidationError, match="differential_privacy"):
        NewPrivacy()


@pytest.mark.parametrize(("private", "refusal"), [(False, PrivacyRequired), (True, BudgetMissing)])
def test_a_site_allows_neither_unless_its_policy_names_it(
    *, private: bool, refusal: type[Exception]
) -> None:
    terms = default_terms(bytes(16), 5, differential_privacy=private)
    named = {"without_differential_privacy": False, "least_cohort": 5}
    with pytest.raises(refusal):
        permissive(PROGRAM, **named).check_session(PROGRAM, terms, today=date(2026, 1, 1))
    assert Policy().epsilon is None
    assert not Policy().without_differential_privacy
