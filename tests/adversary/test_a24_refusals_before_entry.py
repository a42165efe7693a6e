"""A24: refusals as questions, before a hospital enters a run.

A coordinator may choose the program: bounds that only one hospital's table exceeds, levels that one
patient has, floors of the policy. Whatever a hospital decides by its table or by what it disclosed
before, the coordinator sees only that it is absent; and bounds or levels of the coordinator's
choice are refused whatever the table has, because they do not contain the site's data dictionary.
What follows from the policy's text and the program is reported with its reason.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import (
    DictionaryMismatch,
    ExactAndPrivate,
    PolicyError,
    ProgramNotApproved,
    RecipeForbidden,
    TooFewRows,
    TooManyNumbers,
    TooManyRuns,
)
from client_sdk.home.disclosures import EnteredRun
from client_sdk.home.home import Home
from kernels.features.spec import Architecture, KernelSpec
from kernels.rounds.program import Program
from kernels.rounds.task import program_digest
from kernels.tables.schema import Categorical, Schema
from privacy.securesum.records import Step
from tests.client_sdk.conftest import Make, homes, make, program
from tests.client_sdk.coordinator import SmallCoordinator
from tests.client_sdk.hospitals import Hospital, drive, permissive
from tests.kernels.rounds.tables import table

__all__ = ["homes", "make", "program"]


def asked(
    made: Make, program: Program, change: Callable[[Hospital], None], **policy: Any
) -> tuple[SmallCoordinator, Hospital]:
    """Return what a coordinator saw of one hospital that was asked to join, and that hospital."""
    coordinator, hospitals = made(permissive(program, **policy))
    coordinator.program = program
    coordinator.start()
    change(hospitals[0])
    drive(hospitals[:1], coordinator, first_error=True)
    return coordinator, hospitals[0]


def with_age(program: Program, **bounds: Any) -> Program:
    age, *others = program.schema.features
    schema = replace(program.schema, features=(replace(age, **bounds), *others))
    return replace(program, schema=schema)


def merged(schema: Schema) -> Schema:
    """Return the schema with all levels but one merged: the patients of that one are apart."""
    features = [
        Categorical(each.name, (each.levels[0], "all others"), "all others", each.may_be_missing)
        if isinstance(each, Categorical)
        else each
        for each in schema.features
    ]
    return replace(schema, features=tuple(features))


@pytest.mark.parametrize("attack", ["narrow bounds", "levels of choice"])
def test_bounds_and_levels_of_choice_are_refused_whatever_the_table_has(
    make: Make, program: Program, attack: str
) -> None:
    crafted = (
        with_age(program, lower=98.0, upper=100.0)
        if attack == "narrow bounds"
        else replace(program, schema=merged(program.schema))
    )
    dictionary = permissive(program).dictionary
    seen = []
    for age in (99.0, 41.0):

        def change(hospital: Hospital, age: float = age) -> None:
            hospital.data = {**table(40), "age": np.append(table(39)["age"], age)}

        coordinator, hospital = asked(make, crafted, change, dictionary=dictionary)
        assert isinstance(hospital.error, DictionaryMismatch)
        assert coordinator.refusals == []
        assert coordinator.uploads == []
        seen.append([(method, path.rsplit("/", 1)[-1]) for method, path in coordinator.log])
        (hospital.path / "journal.sqlite").unlink()
        (hospital.path / "identity.key").unlink()
        (hospital.path / "dealing.key").unlink()
    assert seen[0] == seen[1], "the coordinator sees the same, with the patient and without"


def _entered(hospital: Hospital, **changes: Any) -> None:
    """Put an earlier run over the hospital's data source into its ledger."""
    entry = EnteredRun(
        run="earlier",
        session="another",
        source=hospital.source,
        at="2026-01-01T00:00:00",
        program="q",
        dealt="d",
        rows="",
        exact=True,
        coordinator=10**6,
        hospitals=10**6,
        sums=1,
    )
    with Home(hospital.path).open() as home:
        home.store.commit(Step(None), entered=replace(entry, **changes))


SILENT: dict[str, tuple[dict[str, Any], dict[str, Any] | None, type[PolicyError]]] = {
    "too few rows": ({"least_rows": 100}, None, TooFewRows),
    "M above the ledger": ({"coordinator_ratio": 0.5}, None, TooManyNumbers),
    "numbers of an earlier session": (
        {"hospital_ratio": 1e5 / 60},
        {"hospitals": 10**9},
        TooManyNumbers,
    ),
    "runs of an earlier session": ({"max_runs": 1}, {}, TooManyRuns),
    "private sums of an earlier session": ({}, {"exact": False}, ExactAndPrivate),
}


@pytest.mark.parametrize("name", SILENT)
def test_what_depends_on_the_table_or_the_ledger_looks_like_absence(
    make: Make, program: Program, name: str
) -> None:
    lines, earlier, error = SILENT[name]

    def change(hospital: Hospital) -> None:
        if earlier is not None:
            _entered(hospital, **earlier)

    coordinator, hospital = asked(make, program, change, **lines)
    assert isinstance(hospital.error, error)
    assert coordinator.refusals == []
    assert coordinator.uploads == []
    assert not coordinator.sums.advertised


def _extreme(program: Program) -> Program:
    steep = KernelSpec(
        architecture=Architecture.RBF, inputs=program.kernel.inputs, samples=4, lengthscale=1e-6
    )
    return replace(program, kernel=steep)


def test_what_follows_from_text_and_program_is_reported(make: Make, program: Program) -> None:
    for crafted, lines, error, code in (
        (program, {"programs": ()}, ProgramNotApproved, "policy.program"),
        (_extreme(program), {}, RecipeForbidden, "policy.recipe"),
    ):
        coordinator, hospital = asked(make, crafted, lambda _: None, **lines)
        assert isinstance(hospital.error, error)
        assert [told["code"] for told in coordinator.refusals][:1] == [code]
        assert coordinator.uploads == []


def test_a_program_that_is_not_approved_is_refused_before_the_table_is_opened(
    make: Make, program: Program
) -> None:
    class Unread:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"the table was asked for {name}")

    def change(hospital: Hospital) -> None:
        hospital.data = Unread()

    _, hospital = asked(make, program, change, programs=(program_digest("{}"),))
    assert isinstance(hospital.error, ProgramNotApproved)
