"""A13, by the unit: noise that covers rows, over a table in which a patient has many of them.

A coordinator may ask for a session with differential privacy whose schema names no patient, or a
column that splits patients into smaller units, such as a visit. Every number is then covered for
one row, and ε is charged for one: of a patient with thirty rows a sum says thirty times as much as
the noise hides. The site's own data dictionary says which column identifies its patients, and
noise that covers less is refused, whether or not the policy names the column once more.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from client_sdk.errors import UnitForbidden
from client_sdk.gate.dictionary import Dictionary, Entry
from client_sdk.home.home import Home
from kernels.rounds.algorithm import contributed
from kernels.rounds.columns import moments
from kernels.rounds.program import Program
from kernels.rounds.site.site import Site
from privacy.ledger import Budget
from tests.client_sdk.conftest import homes as homes
from tests.client_sdk.hospitals import Hospital, drive
from tests.client_sdk.private import DELTA, PROGRAM, SCHEMA, private_session
from tests.dealing import DEALING
from tests.kernels.rounds.tables import Table, tables

MANY = 30
"""Rows of the victim, of 40."""
BY_PATIENT = replace(PROGRAM, schema=replace(SCHEMA, patient="who"))
UNITS: dict[str, Program] = {
    "rows": PROGRAM,
    "visits": replace(PROGRAM, schema=replace(SCHEMA, patient="visit")),
}


def with_patients(own: Table) -> Table:
    """Return a table whose first patient has MANY rows; every row is another visit."""
    rows = len(own["age"])
    who = np.where(np.arange(rows) < MANY, "victim", np.arange(rows).astype(str))
    return {**own, "who": who, "visit": np.arange(rows).astype(str)}


def with_dictionary(hospital: Hospital, program: Program) -> None:
    """Let the hospital's dictionary say that `who` identifies its patients."""
    known = Dictionary.containing(replace(program.schema, patient=None)).entries
    dictionary = Dictionary({**known, "who": Entry(patient=True)})
    columns = (*hospital.policy.columns, "who", "visit")
    hospital.policy = replace(hospital.policy, dictionary=dictionary, columns=columns)


def charges(hospital: Hospital) -> int:
    store = Home(hospital.path).read()
    try:
        return len(store.ledger("table", Budget(100.0, DELTA)).entries)
    finally:
        store.close()


def test_a_patient_with_many_rows_moves_a_sum_by_many_times_what_the_noise_covers() -> None:
    table = with_patients(tables(1)[0])
    without = {name: column[MANY:] for name, column in table.items()}
    for program, covered in ((PROGRAM, 1), (BY_PATIENT, PROGRAM.privacy.max_rows_per_patient)):  # type: ignore[union-attr]
        state = moments.initial(moments.Spec(), program.start())
        block = next(each for each in moments.layout(state).blocks if each.name == "rows")
        assert block.sensitivity == covered
        both = [
            contributed(
                moments,
                state,
                Site.of_table(program.schema, own, held_out=0.0, dealing=DEALING),
            )["rows"]
            for own in (table, without)
        ]
        moved = float(np.abs(both[0] - both[1]).sum())
        assert moved == (MANY if program is PROGRAM else covered)


@pytest.mark.parametrize("unit", UNITS)
def test_noise_that_covers_less_than_the_dictionarys_patient_is_refused(
    homes: Path, unit: str
) -> None:
    program = UNITS[unit]
    coordinator, hospitals = private_session(
        homes, program, data=[with_patients(own) for own in tables(3)]
    )
    for hospital in hospitals:
        with_dictionary(hospital, program)
        assert hospital.policy.patient is None
    drive(hospitals, coordinator)
    assert all(isinstance(hospital.error, UnitForbidden) for hospital in hospitals)
    assert {told["code"] for told in coordinator.refusals} == {UnitForbidden.code}
    assert coordinator.uploads == []
    assert [charges(hospital) for hospital in hospitals] == [0, 0, 0]


def test_noise_that_covers_the_dictionarys_patient_is_answered(homes: Path) -> None:
    coordinator, hospitals = private_session(
        homes, BY_PATIENT, data=[with_patients(own) for own in tables(3)]
    )
    for hospital in hospitals:
        with_dictionary(hospital, BY_PATIENT)
    drive(hospitals, coordinator)
    assert [hospital.error for hospital in hospitals] == [None] * 3
    assert [charges(hospital) for hospital in hospitals] == [2, 2, 2]
