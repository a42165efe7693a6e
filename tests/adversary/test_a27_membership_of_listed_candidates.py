"""A27: who of a list of candidates is in the tables, from one exact matrix of an honest run.

S = Σ φφᵀ has M(M + 1)/2 numbers. The attacker has the records of candidates, among them all
members, and solves S = Σ w φφᵀ for one weight w per candidate: 1 for members, 0 for strangers. With
more numbers than candidates this is exact. What limits it is how many numbers become known per row:
the site's disclosure ledger counts them, refuses more than its policy allows, and prints them.
"""

from dataclasses import replace

import numpy as np
import pytest

from client_sdk.errors import TooManyNumbers
from client_sdk.gate.disclosure import Disclosure
from client_sdk.gate.policy import Policy
from client_sdk.home.disclosures import DisclosureLedger, EnteredRun
from kernels.rounds.known import known
from kernels.rounds.plan import declared
from kernels.rounds.program import Program
from kernels.rounds.stated.numbers_known import MEMBERSHIP
from privacy.securesum.terms import default_terms
from tests.client_sdk.hospitals import permissive

from .membership import auc, contributions, dealt, encoding, patients, program, records, total

ROWS = 300
TERMS = default_terms(bytes(16), 5)


def told_apart(own: Program) -> float:
    """Return the AUC of members against strangers on the attacker's list."""
    random = np.random.default_rng(27)
    members, strangers = patients(ROWS, random), patients(ROWS, random)
    seen = total(encoding(own), contributions(own, dealt(members)), random)
    phi = np.concatenate([records(own, who)[0] for who in (members, strangers)])
    upper = np.triu_indices(phi.shape[1])
    products = np.stack([np.outer(each, each)[upper] for each in phi], axis=1)
    weights = np.linalg.lstsq(products, seen["scatter"][upper], rcond=1e-9)[0]
    return auc(weights[:ROWS], weights[ROWS:])


def entering(own: Program) -> EnteredRun:
    found = known(own, members=TERMS.min_cohort, blind=False)
    return EnteredRun(
        run="1",
        session="s",
        source="table",
        at="2026-11-18T00:00:00",
        program="p",
        dealt="d",
        rows="aa",
        exact=True,
        coordinator=found.coordinator,
        hospitals=found.hospitals,
        sums=sum(stage.sums for stage in declared(own)),
    )


def stated(samples: int) -> Program:
    return replace(program(samples=samples, sums=None), least_rows=ROWS)


MANY, FEW = stated(20), stated(4)
"""40 features: 3.6 numbers per row of the others; 8 features: 0.2."""


def test_an_honest_matrix_tells_members_from_strangers_and_is_refused() -> None:
    assert told_apart(MANY) > 0.999
    policy = permissive(MANY, coordinator_ratio=Policy().coordinator_ratio)
    with pytest.raises(TooManyNumbers):
        policy.check_ledger(
            DisclosureLedger(()), entering(MANY), known(MANY, members=5, blind=False)
        )


def test_hospitals_are_limited_by_a_line_of_their_own() -> None:
    policy = permissive(MANY, hospital_ratio=Policy().hospital_ratio)
    with pytest.raises(TooManyNumbers) as refused:
        policy.check_ledger(
            DisclosureLedger(()), entering(MANY), known(MANY, members=5, blind=False)
        )
    assert refused.value.line.startswith("hospital_ratio")


def test_a_matrix_that_the_standard_policy_allows_tells_much_less() -> None:
    standard = Policy()
    policy = permissive(
        FEW,
        coordinator_ratio=standard.coordinator_ratio,
        hospital_ratio=standard.hospital_ratio,
    )
    policy.check_ledger(DisclosureLedger(()), entering(FEW), known(FEW, members=5, blind=False))
    assert told_apart(FEW) < 0.75


def test_many_small_programs_add_up_to_the_same_limit() -> None:
    """A new session, or another kernel seed, is another set of equations about the same rows."""
    standard = Policy()
    policy = permissive(
        FEW, max_runs=999, max_programs=999, max_sums=999,
        coordinator_ratio=standard.coordinator_ratio,
    )  # fmt: skip
    ledger, cells = DisclosureLedger(()), known(FEW, members=5, blind=False)

    def entered(place: int) -> DisclosureLedger:
        run = replace(entering(FEW), run=str(place), session=str(place), program=str(place))
        policy.check_ledger(ledger, run, cells)
        return ledger.with_run(run)

    for place in range(15):
        ledger = entered(place)
    with pytest.raises(TooManyNumbers):
        entered(15)
    assert ledger.coordinator <= standard.coordinator_ratio * cells.cells
    assert len(ledger.entries) > 1


@pytest.mark.parametrize("blind_first", [True, False])
def test_a_blind_run_does_not_make_room_for_an_open_run_of_the_same_program(
    *, blind_first: bool
) -> None:
    """The coordinator reads the sums of the open one, whatever it knew before."""
    policy = permissive(MANY, coordinator_ratio=Policy().coordinator_ratio)
    found = known(MANY, members=5, blind=True, members_only=True)
    opened = entering(MANY)
    blind = replace(opened, run="0", session="b", coordinator=found.coordinator)
    first, second = (blind, opened) if blind_first else (opened, blind)
    ledger = DisclosureLedger((first,)).with_run(second)
    assert ledger.coordinator == opened.coordinator + 1, "the second run's ending"
    with pytest.raises(TooManyNumbers):
        policy.check_ledger(DisclosureLedger((first,)), second, found)


def test_numbers_per_row_are_printed_with_what_they_mean() -> None:
    shown = str(Disclosure.of(MANY, TERMS))
    found = known(MANY, members=TERMS.min_cohort, blind=False)
    assert found.coordinator_per_row > 1
    assert f"{found.coordinator_per_row:.3g} per row" in shown
    assert MEMBERSHIP in shown
