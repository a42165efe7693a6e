"""The disclosure ledger: what becomes known about a data source, over all sessions."""

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from client_sdk.errors import (
    ExactAndPrivate,
    ParentForbidden,
    PolicyRefusal,
    ProgramNotApproved,
    TooManyNumbers,
    TooManyPrograms,
    TooManyRuns,
    TooManySums,
)
from client_sdk.gate.policy import Policy
from client_sdk.home.disclosures import DisclosureLedger, EnteredRun
from client_sdk.home.home import Home
from client_sdk.home.remembered import Departure, KnownRun
from client_sdk.terminal.command import application
from kernels.rounds.judging import evaluation
from kernels.rounds.known import (
    known,
    known_to_coordinator,
    known_to_hospitals,
    numbers_in_sums,
)
from kernels.rounds.plan import declared
from kernels.rounds.program import Program
from kernels.rounds.stated.numbers_known import Known, known_to
from kernels.rounds.task import program_digest
from privacy.securesum.records import Step
from privacy.securesum.terms import default_terms
from tests.client_sdk.hospitals import drafted, permissive
from tests.kernels.rounds.tables import program as program_with

TERMS = default_terms(bytes(16), 5)
ROOM = Known(coordinator=101, hospitals=401, rows=80.0, columns=5)
"""400 cells."""


def run(name: str = "1", **changes: Any) -> EnteredRun:
    entry = EnteredRun(
        run=name,
        session="s",
        source="table",
        at="2026-11-18T00:00:00",
        program="p",
        dealt="d",
        rows="aa",
        exact=True,
        coordinator=101,
        hospitals=401,
        sums=3,
    )
    return replace(entry, **changes)


def test_a_repetition_adds_only_that_it_was_run_again() -> None:
    once = DisclosureLedger((run("1"),))
    again = once.with_run(run("2"))
    assert (once.coordinator, once.hospitals) == (101, 401)
    assert (again.coordinator, again.hospitals) == (102, 402), "a run that failed is one number"
    assert (again.runs, again.programs) == (2, 1)
    other = again.with_run(run("3", dealt="another")).with_run(run("4", program="q"))
    assert (other.coordinator, other.programs) == (304, 2)
    noisy = once.with_run(run("2", exact=False, program="q"))
    assert noisy.coordinator == once.coordinator, "noise covers these"
    assert noisy.private
    assert not once.private


LIMITS: dict[str, tuple[dict[str, Any], DisclosureLedger, EnteredRun, type[PolicyRefusal]]] = {
    "coordinator": ({"coordinator_ratio": 0.25}, DisclosureLedger(()), run(), TooManyNumbers),
    "hospitals": ({"hospital_ratio": 1.0}, DisclosureLedger(()), run(), TooManyNumbers),
    "a new session": (
        {"coordinator_ratio": 0.5},
        DisclosureLedger((run("0", session="another", program="q"),)),
        run(),
        TooManyNumbers,
    ),
    "runs": ({"max_runs": 1}, DisclosureLedger((run("0", session="another"),)), run(), TooManyRuns),
    "programs": (
        {"max_programs": 1},
        DisclosureLedger((run("0", program="q"),)),
        run(),
        TooManyPrograms,
    ),
    "sums": ({"max_sums": 4}, DisclosureLedger((), vectors=2), run(), TooManySums),
    "exact after private": (
        {},
        DisclosureLedger((run("0", exact=False),)),
        run(),
        ExactAndPrivate,
    ),
    "private after exact": (
        {},
        DisclosureLedger((run("0"),)),
        run(exact=False),
        ExactAndPrivate,
    ),
}


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_refuses_with_the_line_that_would_change(name: str) -> None:
    lines, ledger, entering, error = LIMITS[name]
    open_policy = Policy(coordinator_ratio=9, hospital_ratio=9, max_sums=99, exact_and_private=True)
    open_policy.check_ledger(ledger, entering, ROOM)
    with pytest.raises(error) as refused:
        replace(open_policy, **{"exact_and_private": False, **lines}).check_ledger(
            ledger, entering, ROOM
        )
    line = next(iter(lines), "exact_and_private")
    assert refused.value.line.startswith(line)
    assert not any(letter.isdigit() for letter in refused.value.public_detail) or lines


def test_numbers_are_those_of_all_totals_and_without_open_sums_those_of_the_model() -> None:
    program = program_with()
    every = known_to_hospitals(program)
    assert known_to_coordinator(program, blind=False, members_only=False) == every
    assert known_to_coordinator(program, blind=True, members_only=False) <= every
    assert every == numbers_in_sums(program) + 1, "how the run ended is one more"
    assert known_to_coordinator(program, blind=True, members_only=True) == 1
    judged = replace(
        program, stages=(*program.stages, evaluation.Spec(part="stopping", recalibrated=False))
    )
    scores = declared(judged)[-1].leaves
    assert known_to_coordinator(judged, blind=True, members_only=True) == scores + 2, "and rows"
    found = known(replace(program, least_rows=1000), members=5, blind=False)
    assert found.rows == 800
    assert found.columns == len(program.schema.features) + len(program.schema.targets)
    assert found.hospitals_per_row == found.hospitals / 800


def test_a_program_is_approved_by_its_digest_before_the_table_is_opened(program: Program) -> None:
    policy, text = permissive(program), program.to_json()
    policy.check_session(program, TERMS, today=date(2026, 1, 1), text=text)
    with pytest.raises(ProgramNotApproved) as refused:
        replace(policy, programs=()).check_session(
            program, TERMS, today=date(2026, 1, 1), text=text
        )
    assert program_digest(text) in refused.value.line


def test_a_run_starts_from_a_model_that_was_obtained_or_approved() -> None:
    Policy().check_parent("m", obtained=True)
    Policy(parents=("m",)).check_parent("m", obtained=False)
    with pytest.raises(ParentForbidden):
        Policy().check_parent("m", obtained=False)


def test_a_draft_has_the_standard_ratio_where_the_program_fits(program: Program) -> None:
    many = replace(program, least_rows=10**9)
    policy = drafted(many, TERMS)
    assert policy.coordinator_ratio == policy.hospital_ratio == Policy().coordinator_ratio
    few = drafted(replace(program, least_rows=300), TERMS)
    assert few.coordinator_ratio > Policy().coordinator_ratio
    assert few.programs == (program_digest(replace(program, least_rows=300).to_json()),)
    assert few.exact_and_private is False
    made_known = known(replace(program, least_rows=300), members=TERMS.min_cohort, blind=False)
    entering = run(
        coordinator=made_known.coordinator, hospitals=made_known.hospitals, sums=few.max_sums // 2
    )
    few.check_ledger(DisclosureLedger(()), entering, made_known)


def test_the_store_counts_a_table_under_any_name_and_every_vector(tmp_path: Path) -> None:
    with Home(tmp_path).open() as home:
        store = home.store
        for name, source, rows in (("1", "a", "aa"), ("2", "b", "aa"), ("3", "c", "cc")):
            own = KnownRun(name, "s", "train", "{}")
            store.commit(Step(None), run=own, entered=run(name, source=source, rows=rows))
        for slot, of in enumerate(("1", "1", "2", "3")):
            departure = Departure("t", "s", of, 0, slot, 0, "x/1", "[]", 1, 8, "", slot + 1)
            store.commit(Step(None), departure=departure)
        assert store.disclosures("a").runs == 2, "b had the same rows"
        assert store.disclosures("a").vectors == 3
        assert store.disclosures("c").vectors == 1
        assert store.disclosures("new", rows=bytes.fromhex("cc")).vectors == 1
        assert store.disclosures("new").runs == 0
        assert not store.obtained("m")
        store.commit(Step(None), run=KnownRun("1", "s", "train", "{}", "done", model="m"))
        assert not store.obtained("m"), "not before its bytes were checked"
        store.commit(
            Step(None), run=KnownRun("1", "s", "train", "{}", "done", model="m", replayed=True)
        )
        assert store.obtained("m")
    shown = CliRunner().invoke(application(), ["ledger", "--home", str(tmp_path)])
    assert "2 run(s) of 1 program(s) entered, 3 vector(s) computed" in shown.output
    assert known_to(coordinator=102, hospitals=402) in shown.output
