"""A hospital computes every state itself, or takes it from those of whom an honest one has."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from client_sdk.events import ModelNotVerified
from client_sdk.network.exchange import Call, Lost, Reply
from kernels.rounds.program import Program
from tests.client_sdk.conftest import Make
from tests.client_sdk.hospitals import Killed, drive, permissive
from tests.client_sdk.replaying import absent_for, four, vectors


@pytest.mark.parametrize("receivers", [0, 1, 2, 3])
def test_a_new_epoch_goes_on_wherever_the_last_one_ended(
    make: Make, program: Program, receivers: int
) -> None:
    """A crash between certificate and total: some have the total, and have answered from it."""
    coordinator, hospitals = make(permissive(program, max_sums=20))
    restarted = False

    def network(i: int, call: Call) -> Reply | Lost:
        nonlocal restarted
        reply = coordinator.answer(call)
        begun = coordinator.done_sums == 2 and coordinator.in_sum and not restarted
        if begun and len(coordinator.sums.slot.uploaded) == receivers:
            restarted = True
            coordinator.restart()
        return reply

    drive(hospitals, coordinator, network)
    assert restarted
    assert [hospital.error for hospital in hospitals] == [None] * 3
    assert all(hospital.finished is not None for hospital in hospitals)


@pytest.mark.parametrize("point", ["vectors", "next", "messages"])
def test_a_hospital_that_dies_between_any_two_requests_holds_the_same_positions(
    make: Make, point: str
) -> None:
    coordinator, hospitals = make()
    died: set[tuple[str, int]] = set()

    def network(i: int, call: Call) -> Reply | Lost:
        name = (point, coordinator.done_sums)
        if i == 0 and point in call.target and name not in died:
            died.add(name)
            raise Killed
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    assert len(died) >= 3
    assert [hospital.error for hospital in hospitals] == [None] * 3


@pytest.mark.parametrize("sums", [(), (0,), (1,), (0, 1), (2,), (1, 2)])
def test_who_missed_sums_goes_on(homes: Path, sums: Sequence[int]) -> None:
    """Where one total is missing it is replayed; where two are, others must answer first."""
    coordinator, hospitals = four(homes)
    absent_for(coordinator, sums)
    away = hospitals[3]

    def network(i: int, call: Call) -> Reply | Lost:
        if coordinator.outcome is not None:
            coordinator.absent = set()
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    assert [hospital.error for hospital in hospitals] == [None] * 4
    assert vectors(away) == 3 - len(sums)
    downloaded = any("/states/" in path for _, path in coordinator.log)
    assert downloaded == (sums in ((1,), (0, 1)))
    not_verified = any(isinstance(event, ModelNotVerified) for event in away.events)
    assert not_verified == (2 in sums)
