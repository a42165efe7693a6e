"""A24: with blind sums, why a run ends must not say anything about totals."""

from dataclasses import replace

import pytest

from client_sdk.conversation.replay import encoding_at
from client_sdk.gate.refusal_report import about_totals, public_code, public_detail
from kernels.errors import ComputationFailed, FewerRowsThanStated, StateError
from kernels.rounds.position import start
from privacy.errors import PrivacyError
from privacy.securesum.errors import NoUpdate

from .blind_run import PROGRAM, BlindRun

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
