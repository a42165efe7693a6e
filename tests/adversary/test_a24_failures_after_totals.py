"""A24: with blind sums, why a run ends must not say anything about totals."""

from dataclasses import replace
from typing import Any

import pytest

from client_sdk.conversation.finishing import Finishing
from client_sdk.conversation.replay import encoding_at
from client_sdk.gate.door import Door
from client_sdk.gate.refusal_report import about_totals, public_code, public_detail
from kernels.errors import ComputationFailed, FewerRowsThanStated, KernelsError, StateError
from kernels.rounds.position import start
from privacy.errors import PrivacyError
from privacy.securesum.errors import NoUpdate
from privacy.securesum.item_kinds import ItemKind

from .blind_run import PROGRAM, BlindRun, side_of

REASONS = [
    FewerRowsThanStated("all sites together have 4711 training rows"),
    ComputationFailed("the matrix of 4711 rows is not positive definite"),
    StateError("4711"),
    PrivacyError("4711 is beyond its bound"),
    ZeroDivisionError("4711"),
]


@pytest.mark.parametrize("reason", REASONS, ids=lambda each: type(each).__name__)
def test_every_failure_that_follows_from_totals_is_told_alike(reason: Exception) -> None:
    with pytest.raises(NoUpdate, match="4711") as caught, about_totals(hidden=True):
        raise reason
    told = public_code(caught.value), public_detail(caught.value)
    assert told == (NoUpdate.code, NoUpdate.public_detail)
    assert "4711" not in str(told)


def test_what_does_not_follow_from_hidden_totals_keeps_its_reason() -> None:
    with pytest.raises(StateError), about_totals(hidden=False):
        raise StateError("of an open sum")
    with pytest.raises(OSError, match="disk"), about_totals(hidden=True):
        raise OSError("the disk is full")


def test_fewer_rows_than_stated_are_not_told_to_the_coordinator_of_blind_sums() -> None:
    run = BlindRun(replace(PROGRAM, least_rows=100_000))
    run.sum()
    run.sum()  # the number of rows is in the second sum
    for rank in range(4):
        with pytest.raises(NoUpdate, match="100000"):
            run.newest(rank)


def test_a_state_that_is_not_usable_is_told_alike_after_the_first_total() -> None:
    run = BlindRun()
    first = start(run.run.program, None)
    unusable = replace(first, state=object.__new__(type(first.state)))
    with pytest.raises(AttributeError):
        encoding_at(unusable, run.epoch)
    with pytest.raises(NoUpdate):
        encoding_at(replace(unusable, sum_index=1), run.epoch)


def test_a_state_that_fails_on_made_up_rows_is_told_alike_after_the_first_total() -> None:
    run = BlindRun()
    first = start(run.run.program, None)
    task = run.draft(0, first)
    side = side_of(run, 0, [], None)
    unused: Any = None
    door = Door(side.home, side.exchange, unused, unused, run.run, side.watch)
    unusable = replace(first, state=object.__new__(type(first.state)))
    with pytest.raises(KernelsError):
        door._computed(task, first.algorithm, unusable)
    with pytest.raises(NoUpdate):
        door._computed(task, first.algorithm, replace(unusable, sum_index=1))


def test_a_final_model_that_cannot_be_stored_is_told_alike() -> None:
    run = BlindRun()
    holding = run.finish()
    finishing = Finishing(side_of(run, 0, [], None), run.simulation.terms, run.run)
    model = replace(holding.newest.state.model)
    object.__setattr__(model, "max_rows", float("nan"))
    state = replace(holding.newest.state)
    object.__setattr__(state, "model", model)
    broken = replace(holding, newest=replace(holding.newest, state=state))
    item = run.item(ItemKind.ENDORSE, run.last, **run.closed)
    with pytest.raises(NoUpdate):
        list(finishing.endorsed(item, broken))
    with pytest.raises(NoUpdate):
        finishing.own_artifact(broken, None)
