"""What is charged stays charged, and a budget is never exceeded."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.accounting.events import Release
from privacy.accounting.planning import Stage, multipliers
from privacy.errors import AlreadyCharged, BudgetExceeded, LedgerError, PrivacyError
from privacy.ledger import Budget, Entry, Ledger

BUDGET = Budget(epsilon=1.0, delta=1e-5)


def release(
    multiplier: float, *, part: str = "training", dealing: bytes = b"", rate: float = 1.0
) -> Release:
    return Release.planned(
        multiplier=multiplier,
        honest=3,
        statistic="linear",
        part=part,
        dealing=dealing,
        sampling_rate=rate,
    )


def entry(slot: int, of: Release, *, run: str = "run-1", session: str = "study") -> Entry:
    return Entry(1.7e9 + slot, session, run, 1, slot, of)


def test_charges_add_up_and_the_old_ledger_does_not_change() -> None:
    empty = Ledger(BUDGET)
    assert empty.spent.epsilon == 0.0
    first = empty.charge(entry(0, release(10.0)))
    second = first.charge(entry(1, release(10.0)))
    assert 0 < first.spent.epsilon < second.spent.epsilon < 1
    assert (empty.entries, len(first.entries), len(second.entries)) == ((), 1, 2)
    assert first.after([release(10.0)]) == second.spent


def test_a_charge_beyond_the_budget_is_refused_with_its_numbers() -> None:
    ledger = Ledger(BUDGET).charge(entry(0, release(4.0)))
    with pytest.raises(BudgetExceeded, match=r"linear would increase ε to 1\.3.*budget of 1; 0\.9"):
        ledger.charge(entry(1, release(4.0)))
    with pytest.raises(BudgetExceeded):
        ledger.affords([release(1e3), release(4.0)])
    assert ledger.affords([release(1e3)]).epsilon <= 1.0
    assert len(ledger.entries) == 1


def test_a_planned_run_fits_its_budget_to_the_last_sum_and_one_more_does_not() -> None:
    (z,) = multipliers([Stage(part="training", sums=12)], epsilon=1.0, delta=1e-5)
    ledger = Ledger(BUDGET)
    assert ledger.affords([replace(release(z), sums=12)]).epsilon <= 1.0
    for slot in range(12):
        ledger = ledger.charge(entry(slot, release(z)))
    assert 0.995 < ledger.spent.epsilon <= 1.0
    with pytest.raises(BudgetExceeded):
        ledger.charge(entry(12, release(z)))


def test_parts_of_one_dealing_spend_side_by_side_and_another_dealing_does_not() -> None:
    ledger = Ledger(BUDGET).charge(entry(0, release(4.0, part="training", dealing=b"deal")))
    before = ledger.spent
    ledger = ledger.charge(entry(1, release(4.0, part="calibration", dealing=b"deal")))
    assert ledger.spent == before
    for dealing in (b"another", b""):
        with pytest.raises(BudgetExceeded):
            ledger.charge(entry(2, release(4.0, part="calibration", dealing=dealing)))


@pytest.mark.full
def test_sampled_sums_are_charged_until_the_budget_ends() -> None:
    ledger = Ledger(BUDGET)
    for slot in range(40):
        ledger = ledger.charge(entry(slot, release(2.0, rate=0.01)))
    assert ledger.spent.accountant == "renyi"
    assert ledger.spent.epsilon < 1.0
    # A list that is fixed beforehand costs less, and the budget does not rely on it.
    assert ledger.fixed_beforehand.accountant == "numerical"
    assert ledger.fixed_beforehand.epsilon < ledger.spent.epsilon
    with pytest.raises(BudgetExceeded):
        ledger.charge(entry(99, release(0.5, rate=0.9)))


def test_a_sum_is_charged_once_and_there_are_no_refunds() -> None:
    ledger = Ledger(BUDGET).charge(entry(0, release(10.0)))
    with pytest.raises(AlreadyCharged, match="retry"):
        ledger.charge(entry(0, release(20.0)))
    for other in (entry(0, release(10.0), run="run-2"), entry(0, release(10.0), session="other")):
        assert len(ledger.charge(other).entries) == 2
    with pytest.raises(AlreadyCharged):
        Ledger(BUDGET, (entry(0, release(10.0)), entry(0, release(9.0))))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(2.0, 60.0),
            st.sampled_from(["training", "calibration"]),
            st.sampled_from([b"", b"1", b"2"]),
        ),
        max_size=12,
    )
)
def test_what_is_spent_only_grows_and_never_beyond_the_budget(
    asked: list[tuple[float, str, bytes]],
) -> None:
    ledger = Ledger(BUDGET)
    for slot, (z, part, dealing) in enumerate(asked):
        before = ledger.spent.epsilon
        try:
            ledger = ledger.charge(entry(slot, release(z, part=part, dealing=dealing)))
        except BudgetExceeded:
            continue
        assert before <= ledger.spent.epsilon <= BUDGET.epsilon
    data = json.loads(json.dumps(ledger.to_json()))
    assert Ledger.from_json(data) == ledger
    assert Ledger.from_json(data).spent == ledger.spent
    entries = [json.loads(json.dumps(each.to_json())) for each in ledger.entries]
    assert tuple(Entry.from_json(each) for each in entries) == ledger.entries


def test_junk_is_no_ledger() -> None:
    good = Ledger(BUDGET, (entry(0, release(10.0)),)).to_json()
    (charged,) = good["entries"]
    for junk in (
        None,
        [],
        {},
        good | {"more": 1},
        good | {"entries": {}},
        good | {"entries": [None]},
        good | {"entries": [charged | {"slot": -1}]},
        good | {"entries": [charged | {"slot": True}]},
        good | {"entries": [charged | {"at": math.nan}]},
        good | {"entries": [charged | {"session": ""}]},
        good | {"entries": [charged | {"release": {}}]},
        good | {"entries": [charged | {"release": charged["release"] | {"sums": 0}}]},
        good | {"entries": [charged, charged]},
        good | {"budget": {"epsilon": 1.0}},
        good | {"budget": {"epsilon": 0.0, "delta": 1e-5}},
        good | {"budget": {"epsilon": math.nan, "delta": 1e-5}},
        good | {"budget": {"epsilon": 1.0, "delta": 0.0}},
        good | {"budget": {"epsilon": "1", "delta": 1e-5}},
    ):
        with pytest.raises(LedgerError):
            Ledger.from_json(junk)
    for wrong in ((None, ()), (BUDGET, []), (BUDGET, (None,))):
        with pytest.raises(PrivacyError):
            Ledger(*wrong)
