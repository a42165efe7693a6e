"""A6, within one run: the rows to add or remove change after the run was entered.

An `update` run sums what hospitals add and remove. If only one of them does, the sum is that
hospital's own numbers, and with one added patient that patient's features and outcome. So a site
that has rows to add or remove enters such a run only if its operator has consented by name. Without
a check after entry the consent was for nothing: a hospital that had entered without any such rows,
was interrupted, and joined again with some answered with these, and one that had consented to many
rows answered with one.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from client_sdk.errors import ConsentNotGiven
from client_sdk.network.exchange import Call, Lost, Reply
from client_sdk.tables.hospital_table import Changes
from kernels.rounds.run_kinds import Kind
from privacy.securesum.errors import TableChanged
from tests.client_sdk.conftest import homes as homes
from tests.client_sdk.coordinator import SmallCoordinator
from tests.client_sdk.from_a_parent import from_a_parent
from tests.client_sdk.hospitals import Hospital, Killed, drive
from tests.client_sdk.replaying import vectors
from tests.kernels.rounds.artifacts import PLAIN, artifact
from tests.kernels.rounds.tables import Table, table

PATIENT: Table = {name: column[:1] for name, column in table(20, seed=8).items()}
MANY = table(20, seed=9)
OTHERS: dict[str, tuple[tuple[str, ...], Changes | None, Changes]] = {
    "none, then one patient": ((), None, Changes(added=PATIENT)),
    "none, then one patient less": ((), None, Changes(removed=PATIENT)),
    "many with consent, then one patient": (
        ("update",),
        Changes(added=MANY),
        Changes(added=PATIENT),
    ),
    "many with consent, then none": (("update",), Changes(added=MANY), Changes()),
}
Case = tuple[tuple[str, ...], Changes | None, Changes]


def begun(homes: Path, consents: tuple[str, ...]) -> tuple[SmallCoordinator, list[Hospital]]:
    parent = artifact(PLAIN)
    return from_a_parent(homes, Kind.UPDATE, parent.id, parent, consents=consents)


def interrupted(
    coordinator: SmallCoordinator,
    hospitals: list[Hospital],
    changes: Changes,
    then: Callable[[], None] = lambda: None,
) -> None:
    """Let the first hospital enter, be killed when all have, and join again with other rows."""
    killed = False

    def network(i: int, call: Call) -> Reply | Lost:
        nonlocal killed
        if i == 0 and not killed and coordinator.in_sum:
            killed, hospitals[0].changes = True, changes
            then()
            raise Killed
        return coordinator.answer(call)

    drive(hospitals, coordinator, network, first_error=True)
    assert killed


def test_with_consent_the_sum_of_one_hospitals_change_is_its_patient(homes: Path) -> None:
    """What is at stake: yᵀy of the total is the square of the one added outcome."""
    coordinator, hospitals = begun(homes, ("update",))
    hospitals[0].changes = Changes(added=PATIENT)
    before = coordinator.base
    drive(hospitals, coordinator, first_error=True)
    after = coordinator.model
    assert before is not None
    assert before.statistics is not None
    assert before.standardiser is not None
    assert after.statistics is not None
    scale = before.standardiser.targets[0]
    square = float(after.statistics.target_squares[0] - before.statistics.target_squares[0])
    guess = np.sqrt(square) * scale.scale
    assert np.isclose(guess, abs(float(PATIENT["stay"][0]) - scale.mean), atol=1e-4)


def test_without_consent_nobody_enters_with_rows_to_add(homes: Path) -> None:
    coordinator, hospitals = begun(homes, ())
    hospitals[0].changes = Changes(added=PATIENT)
    drive(hospitals, coordinator, first_error=True)
    assert isinstance(hospitals[0].error, ConsentNotGiven)
    assert [vectors(each) for each in hospitals] == [0, 0, 0]


@pytest.mark.parametrize("case", OTHERS.values(), ids=OTHERS)
def test_a_run_is_answered_with_the_rows_that_it_was_entered_with(homes: Path, case: Case) -> None:
    consents, first, then = case
    coordinator, hospitals = begun(homes, consents)
    hospitals[0].changes = first
    interrupted(coordinator, hospitals, then)
    assert isinstance(hospitals[0].error, TableChanged)
    assert vectors(hospitals[0]) == 0
    assert coordinator.refusals == [], "that the rows are others is nobody else's business"


@pytest.mark.parametrize("case", OTHERS.values(), ids=OTHERS)
def test_a_new_epoch_is_not_entered_with_other_rows(homes: Path, case: Case) -> None:
    consents, first, then = case
    coordinator, hospitals = begun(homes, consents)
    hospitals[0].changes = first
    interrupted(coordinator, hospitals, then, coordinator.restart)
    assert isinstance(hospitals[0].error, TableChanged)
    assert coordinator.members["A"] not in coordinator.sums.advertised
    assert coordinator.refusals == []


def test_with_the_same_rows_a_hospital_goes_on(homes: Path) -> None:
    coordinator, hospitals = begun(homes, ("update",))
    hospitals[0].changes = Changes(added=PATIENT)
    interrupted(coordinator, hospitals, Changes(added=dict(PATIENT)))
    assert vectors(hospitals[0]) == 1
