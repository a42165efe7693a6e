"""Sessions in which a test decides what the coordinator says about states, sums and members."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client_sdk.home.home import Home
from kernels.model.noise_plan import NoisePlan
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation
from kernels.rounds.layer import linear
from kernels.rounds.position import Position
from kernels.rounds.program import Program
from privacy.securesum.terms import default_terms
from tests.client_sdk.coordinator import SmallCoordinator
from tests.client_sdk.hospitals import Hospital, drive, permissive
from tests.client_sdk.private import PROGRAM
from tests.dealing import home_keys
from tests.kernels.rounds.tables import tables


def vectors(hospital: Hospital) -> int:
    store = Home(hospital.path).read()
    try:
        return len(list(store.departures()))
    finally:
        store.close()


def stalls(hospitals: list[Hospital], coordinator: SmallCoordinator, network: Any = None) -> None:
    """Run hospitals for a while, until they only wait."""
    with pytest.raises(AssertionError, match="are not done"):
        drive(hospitals, coordinator, network, turns=150)


def at_sum(
    coordinator: SmallCoordinator, number: int, change: Callable[[dict[str, Any]], None]
) -> None:
    """Change what items say about the newest closed sum, from sum `number` on."""
    closed = coordinator._closed

    def other() -> dict[str, Any]:
        said = closed()
        if coordinator.done_sums >= number:
            change(said)
        return said

    coordinator._closed = other  # type: ignore[method-assign]


def crafted(
    coordinator: SmallCoordinator, number: int, craft: Callable[[Position], Position]
) -> None:
    """Let everyone be asked to answer sum `number` from a crafted position."""
    begin = coordinator._begin

    def begin_crafted() -> None:
        if coordinator.done_sums == number:
            coordinator.position = craft(coordinator.position)
        begin()

    coordinator._begin = begin_crafted  # type: ignore[method-assign]


PRIVATE = Program.from_json(
    replace(
        PROGRAM,
        stages=(moments.Spec(), linear.Spec(), evaluation.Spec(recalibrated=False)),
        privacy=NoisePlan(multipliers=(8.0, 6.0, 6.0)),
    ).to_json()
)


def four(homes: Path) -> tuple[SmallCoordinator, list[Hospital]]:
    """Return a session of four, of whom one may collude and one may be absent."""
    names = ("A", "B", "C", "D")
    coordinator = SmallCoordinator(PRIVATE, names)
    terms = default_terms(coordinator.session.bytes, 4, differential_privacy=True)
    coordinator.terms = replace(terms, max_colluders=1, min_cohort=3)
    keys = home_keys(homes, names)
    coordinator.members.update(keys)
    coordinator.start()
    policy = permissive(
        PRIVATE, without_differential_privacy=False, epsilon=50.0, delta=1e-5, least_colluders=0
    )
    hospitals = [
        Hospital(coordinator.link(i), homes / name, table, policy, roster=keys)
        for i, (name, table) in enumerate(zip(names, tables(4), strict=True))
    ]
    return coordinator, hospitals


def absent_for(coordinator: SmallCoordinator, sums: Sequence[int]) -> None:
    """Let D be absent in some sums."""
    begin = coordinator._begin

    def begin_without() -> None:
        begin()
        coordinator.absent = {"D"} if coordinator.done_sums in sums else set()

    coordinator._begin = begin_without  # type: ignore[method-assign]
