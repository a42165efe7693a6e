"""A30: noise, samples and accountants that are chosen after seeing results spend no more.

The ledger is a filter with a proof (`privacy/accounting/filters.py`), and the noise of every run is
fixed with its session.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants.analysis.rdp import compute_rdp

from client_sdk.errors import WrongRun
from client_sdk.gate.agreed_run import check_run
from client_sdk.gate.run_in_hand import RunInHand
from kernels.errors import ProgramError
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind, program_of
from privacy.accounting import gaussian
from privacy.accounting.cost import cost
from privacy.accounting.events import Release
from privacy.errors import BudgetExceeded
from privacy.ledger import Budget, Entry, Ledger
from tests.client_sdk.private import PROGRAM

BUDGET = Budget(1.0, 1e-5)


def release(z: float, q: float = 1.0, *, sums: int = 1) -> Release:
    return Release.planned(
        multiplier=z, honest=3, statistic="s", part="training", sums=sums, sampling_rate=q
    )


def by_one_accountant(releases: list[Release], budget: Budget) -> float:
    """Return the less of two accountants that were fixed with the budget, by textbook formulas."""
    mu = math.sqrt(sum(each.sums / each.multiplier**2 for each in releases))
    order = budget.filter.order
    divergence = sum(
        float(
            np.ravel(
                compute_rdp(
                    q=each.sampling_rate,
                    noise_multiplier=each.multiplier,
                    steps=each.sums,
                    orders=[order],
                )
            )[0]
        )
        for each in releases
    )
    renyi = gaussian.from_renyi([order], [divergence], budget.delta / 4)
    return min(gaussian.epsilon(mu, 0.75 * budget.delta), renyi)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.floats(0.7, 40.0), st.sampled_from([0.01, 0.2, 1.0])), max_size=20))
def test_no_choice_of_noise_or_samples_is_charged_below_accountants_fixed_beforehand(
    chosen: list[tuple[float, float]],
) -> None:
    ledger = Ledger(BUDGET)
    for slot, (z, q) in enumerate(chosen):
        try:
            ledger = ledger.charge(Entry(0.0, f"session {slot}", "run", 0, slot, release(z, q)))
        except BudgetExceeded:
            continue
        charged = [entry.release for entry in ledger.entries]
        least = by_one_accountant(charged, BUDGET) * (1 - 1e-12)
        assert least <= ledger.spent.epsilon <= BUDGET.epsilon


def test_what_only_the_best_accountant_afterwards_would_allow_is_refused() -> None:
    best = [release(1.5, 0.01, sums=1000)]
    assert cost(best, delta=BUDGET.delta).epsilon < BUDGET.epsilon
    with pytest.raises(BudgetExceeded):
        Ledger(BUDGET).affords(best)
    tight = [release(gaussian_multiplier() * 1.001)]
    assert cost(tight, delta=BUDGET.delta).epsilon < BUDGET.epsilon
    with pytest.raises(BudgetExceeded):
        Ledger(BUDGET).affords(tight)


def gaussian_multiplier() -> float:
    return 1 / gaussian.most_mu(BUDGET.epsilon, BUDGET.delta)


def test_the_accountants_follow_from_the_budget_and_from_nothing_that_was_released() -> None:
    ledger = Ledger(BUDGET)
    order = ledger.budget.filter.order
    for slot, z in enumerate((9.0, 30.0, 50.0)):
        ledger = ledger.charge(Entry(0.0, "session", "run", 0, slot, release(z, 0.2)))
        assert ledger.budget.filter.order == order
    assert Budget(1.0, 1e-5).filter == BUDGET.filter


def test_an_adaptive_adversary_does_not_exceed_delta() -> None:
    """Play the strategy that turns to the other accountant when the loss so far is already high.

    δ is large enough to be measured. A unit's presence moves each sum by 1; L is the privacy loss.
    """
    budget, players = Budget(1.0, 0.02), 40_000
    random = np.random.default_rng(30)
    first = 4.0
    loss = _gaussian_loss(random, first, players)
    high = loss > np.quantile(loss, 0.7)
    for of_these, z, q in ((high, 4.0, 1.0), (~high, 2.0, 0.25)):
        ledger = Ledger(budget).charge(Entry(0.0, "session", "run", 0, 0, release(first)))
        for slot in range(1, 10_000):
            try:
                ledger = ledger.charge(Entry(0.0, "session", "run", 0, slot, release(z, q)))
            except BudgetExceeded:
                break
            loss[of_these] += _sampled_loss(random, z, q, int(of_these.sum()))
        assert slot > 1
    measured = np.maximum(1 - np.exp(budget.epsilon - loss), 0)
    assert measured.mean() - 4 * measured.std() / math.sqrt(players) <= budget.delta


def _gaussian_loss(random: np.random.Generator, z: float, count: int) -> np.ndarray:
    return _sampled_loss(random, z, 1.0, count)


def _sampled_loss(random: np.random.Generator, z: float, q: float, count: int) -> np.ndarray:
    x = (random.random(count) < q) + z * random.standard_normal(count)
    ratio = np.exp((2 * x - 1) / (2 * z**2))
    loss: np.ndarray = np.log1p(q * (ratio - 1))
    return loss


def session() -> Program:
    assert PROGRAM.privacy is not None
    privacy = replace(PROGRAM.privacy, evaluate=6.0, update=9.0)
    return replace(PROGRAM, privacy=privacy)


def in_hand(kind: Kind, program: Program) -> RunInHand:
    parent = None if kind is Kind.TRAIN else "0" * 64
    return RunInHand(UUID(int=1), UUID(int=2), kind.value, program.to_json(), program, parent)


def with_other_noise(program: Program) -> Iterator[Program]:
    privacy = program.privacy
    assert privacy is not None
    for stage, z in enumerate(privacy.multipliers):
        noise = list(privacy.multipliers)
        for noise[stage] in (z / 2, math.nextafter(z, 0), 2 * z):
            yield replace(program, privacy=replace(privacy, multipliers=tuple(noise)))
    yield replace(program, privacy=replace(privacy, update=1.0))


@pytest.mark.parametrize("kind", list(Kind))
def test_a_run_with_other_noise_than_its_session_states_is_not_entered(kind: Kind) -> None:
    agreed = program_of(kind, session())
    text = session().to_json()
    check_run(in_hand(kind, agreed), session(), text)
    for other in with_other_noise(agreed):
        with pytest.raises(WrongRun, match="must not compute"):
            check_run(in_hand(kind, other), session(), text)


def test_a_kind_of_run_whose_noise_the_session_does_not_state_does_not_exist() -> None:
    stated = json.loads(PROGRAM.to_json())["privacy"]
    assert stated["evaluate"] is stated["update"] is None
    for kind in (Kind.EVALUATE, Kind.UPDATE):
        with pytest.raises(ProgramError, match="states no noise"):
            program_of(kind, PROGRAM)
        run = in_hand(kind, program_of(kind, session()))
        with pytest.raises(WrongRun, match="no runs of kind"):
            check_run(run, PROGRAM, PROGRAM.to_json())
