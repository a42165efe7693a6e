"""With differential privacy nothing leaves a hospital without a charge in its own ledger."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from client_sdk.errors import (
    BudgetMissing,
    BudgetSpent,
    MalformedAnswer,
    PolicyFileError,
    RowsNotRemoved,
    UnitForbidden,
    WrongRun,
    WrongTask,
)
from client_sdk.events import Disclosed, LeftOutWithoutTarget, ReadRowByRow, RunCost
from client_sdk.gate.disclosure import Disclosure
from client_sdk.gate.door import Door
from client_sdk.gate.policy import Policy
from client_sdk.gate.policy_draft import draft
from client_sdk.gate.run_in_hand import RunInHand
from client_sdk.home.home import Home
from client_sdk.home.store import Store
from client_sdk.network.exchange import Call, Lost, Reply
from client_sdk.plots import ledger as ledger_plot
from client_sdk.tables.hospital_table import Changes
from client_sdk.terminal.command import application
from kernels.errors import TableRefused
from kernels.rounds.columns import moments
from kernels.rounds.layer import linear
from kernels.rounds.plan import release_plan, site_dealing
from privacy.accounting.filters import Filter
from privacy.accounting.promises import promised
from privacy.encoding import Encoding
from privacy.errors import BudgetExceeded
from privacy.ledger import Budget, Ledger
from privacy.securesum.messages import Task
from privacy.securesum.records import Uploaded
from privacy.securesum.terms import default_terms
from tests.client_sdk.conversation.test_hostile_coordinator import meddling, with_message
from tests.client_sdk.coordinator import SmallCoordinator
from tests.client_sdk.hospitals import Hospital, Killed, drafted, drive
from tests.client_sdk.private import DELTA, PROGRAM, private_session
from tests.kernels.rounds.tables import tables

Make = Callable[..., tuple[SmallCoordinator, list[Hospital]]]


@pytest.fixture
def make(homes: Path) -> Make:
    return partial(private_session, homes)


def opened(hospital: Hospital) -> Store:
    return Home(hospital.path).read()


def uncharged(store: Store) -> set[tuple[Any, ...]]:
    """Return every upload in the journal or among the departures that was not charged."""
    ledger = store.ledger("table", Budget(1000.0, DELTA))
    paid = {entry.sum: entry for entry in ledger.entries}
    left = {(d.session, d.run, d.epoch, d.slot): d for d in store.departures()}
    records, _ = store.journal()
    uploads = [Uploaded.decode(data) for data in records if data[1] == Uploaded.kind]
    assert len(uploads) == len(left)
    assert len({record.noise for record in uploads}) == len(uploads), "a draw covers one upload"
    assert all(record.noise for record in uploads)
    return {
        sum_
        for sum_, departure in left.items()
        if sum_ not in paid or paid[sum_].release.dimension != departure.elements
    }


def test_everything_that_left_was_charged_before_and_as_much_as_the_run_said(make: Make) -> None:
    coordinator, hospitals = make()
    drive(hospitals, coordinator)
    assert coordinator.terms is not None
    honest = coordinator.terms.honest
    plan = promised(release_plan(PROGRAM), honest=honest)
    most = Filter(1.0, DELTA).spent(plan).epsilon
    for hospital in hospitals:
        assert hospital.error is None
        store = opened(hospital)
        assert uncharged(store) == set()
        ledger = store.ledger("table", Budget(1.0, DELTA))
        assert len(ledger.entries) == 2
        assert 0.99 * most <= ledger.spent.epsilon <= most
        store.close()


def test_the_search_for_uncharged_departures_finds_one(make: Make) -> None:
    coordinator, hospitals = make()
    drive(hospitals, coordinator)
    store = opened(hospitals[0])
    store._db.execute("DELETE FROM charges WHERE slot = 1")
    assert [sum_[3] for sum_ in uncharged(store)] == [1]
    store.close()


def test_a_policy_without_a_budget_denies_a_private_session(make: Make) -> None:
    coordinator, hospitals = make(epsilon=None)
    drive(hospitals[:1], coordinator, first_error=True)
    assert isinstance(hospitals[0].error, BudgetMissing)
    (refusal,) = coordinator.refusals
    assert refusal["code"] == "policy.epsilon"


def test_a_run_that_the_sites_own_ledger_cannot_pay_is_refused_as_a_whole_and_beforehand(
    make: Make,
) -> None:
    coordinator, hospitals = make(epsilon=0.3)
    drive(hospitals[:1], coordinator, first_error=True)
    error = hospitals[0].error
    assert isinstance(error, BudgetSpent)
    assert "0 is already spent, and this site allows 0.3" in str(error)
    assert coordinator.uploads == []
    (refusal,) = coordinator.refusals
    assert refusal["code"] == "policy.budget"
    assert "0.3" not in refusal["detail"]


def test_what_other_sessions_spent_counts(make: Make) -> None:
    coordinator, hospitals = make(epsilon=1.0)
    drive(hospitals, coordinator)
    assert all(hospital.error is None for hospital in hospitals)
    other, _ = make(epsilon=1.0)
    for i, hospital in enumerate(hospitals):
        hospital.link = other.link(i)
    drive(hospitals[:1], other, first_error=True)
    assert isinstance(hospitals[0].error, BudgetSpent)
    assert other.uploads == []


def test_the_same_table_under_a_second_name_has_no_second_budget(make: Make) -> None:
    coordinator, hospitals = make(epsilon=1.0)
    drive(hospitals, coordinator)
    other, _ = make(epsilon=1.0)
    for i, hospital in enumerate(hospitals):
        hospital.link, hospital.source = other.link(i), "again"
    shuffled = {name: cells[::-1] for name, cells in tables(3)[0].items()}
    hospitals[0].data = shuffled
    drive(hospitals[:1], other, first_error=True)
    assert isinstance(hospitals[0].error, BudgetSpent)
    assert other.uploads == []


def test_another_table_has_its_own_budget_until_it_was_charged_for_the_same_rows(
    make: Make,
) -> None:
    coordinator, hospitals = make(epsilon=1.0)
    drive(hospitals, coordinator)
    other, _ = make(epsilon=1.0)
    for i, (hospital, table) in enumerate(zip(hospitals, tables(6)[3:], strict=True)):
        hospital.link, hospital.source, hospital.data = other.link(i), "another", table
    drive(hospitals, other)
    assert [hospital.error for hospital in hospitals] == [None] * 3
    store, budget = opened(hospitals[0]), Budget(1.0, DELTA)
    assert [len(store.ledger(name, budget).entries) for name in ("table", "another")] == [2, 2]
    store._db.execute("UPDATE charges SET rows = 'ab'")
    assert [len(store.ledger(name, budget).entries) for name in ("table", "another")] == [4, 4]
    store._db.execute("UPDATE charges SET rows = ''")  # unknown rows belong to no source
    assert [len(store.ledger(name, budget).entries) for name in ("table", "another")] == [2, 2]
    store.close()


@pytest.mark.parametrize("answered", [False, True])
def test_a_crash_between_charge_and_send_is_charged_once_and_sends_the_same_bytes(
    make: Make, *, answered: bool
) -> None:
    coordinator, hospitals = make()
    kills, sent = [0], []

    def network(i: int, call: Call) -> Reply | Lost:
        if i == 0 and call.target.partition("?")[0].endswith("/vectors"):
            sent.append(b"".join(bytes(part) for part in call.parts))
            if kills[0] < 2:
                kills[0] += 1
                if answered:
                    coordinator.answer(call)
                raise Killed
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    assert hospitals[0].error is None
    assert kills == [2]
    assert len(set(sent)) == 2, "one vector for each sum"
    store = opened(hospitals[0])
    assert uncharged(store) == set()
    assert len(store.ledger("table", Budget(1.0, DELTA)).entries) == 2
    store.close()


def test_a_task_with_less_noise_than_the_program_says_is_refused(make: Make) -> None:
    coordinator, hospitals = make()

    def quieter(plain: dict[str, Any]) -> None:
        task = Task.decode(plain["message"])
        encoding = coordinator.encoding
        less = tuple(max(1, share // 2) for share in encoding.share_deviations)
        changed = replace(encoding, share_deviations=less).digest()
        with_message(plain, replace(task, encoding=changed).encode())

    meddling(coordinator, "task", quieter)
    drive(hospitals, coordinator, first_error=True)
    assert isinstance(hospitals[0].error, WrongTask)
    assert coordinator.uploads == []
    store = opened(hospitals[0])
    assert store.charged_sources() == []
    store.close()


def test_a_refusal_about_the_table_is_not_told_to_anyone(make: Make) -> None:
    coordinator, hospitals = make()
    hospitals[0].data = {name: cells for name, cells in tables(3)[0].items() if name != "age"}
    drive(hospitals[:1], coordinator, first_error=True)
    assert isinstance(hospitals[0].error, TableRefused)
    assert coordinator.refusals == []


def test_few_rows_and_rare_levels_are_no_reason_to_refuse(make: Make) -> None:
    coordinator, hospitals = make()
    strict = replace(hospitals[0].policy, least_rows=10_000, least_level_rows=100)
    for hospital in hospitals:
        hospital.policy = strict
    drive(hospitals, coordinator)
    assert all(hospital.error is None for hospital in hospitals)


def test_what_a_run_costs_is_said_at_the_sessions_delta(make: Make) -> None:
    coordinator, hospitals = make()
    meddling(coordinator, "membership", lambda plain: plain["session"].update(delta=1e-7))
    drive(hospitals, coordinator)
    (disclosed,) = (str(event) for event in hospitals[0].events if isinstance(event, Disclosed))
    assert "at δ = 1e-07" in disclosed


@pytest.mark.parametrize("delta", ["1e-5", 0.0, 1.0, 1, float("nan"), True, []])
def test_a_delta_that_is_none_is_refused(make: Make, delta: object) -> None:
    coordinator, hospitals = make()
    meddling(coordinator, "membership", lambda plain: plain["session"].update(delta=delta))
    drive(hospitals[:1], coordinator, first_error=True)
    assert isinstance(hospitals[0].error, MalformedAnswer)


def test_a_hospital_hears_beforehand_what_a_run_costs(make: Make) -> None:
    coordinator, hospitals = make()
    drive(hospitals, coordinator)
    events = hospitals[0].events
    disclosed = next(str(event) for event in events if isinstance(event, Disclosed))
    assert "differential privacy: yes, for each row" in disclosed
    assert "with noise of 8 times what any one row can change" in disclosed
    assert "including through the difference from an exact sum of another session" in disclosed
    spending = next(event for event in events if isinstance(event, RunCost))
    assert f"ε = 0 of 1 is spent, at δ = {DELTA:g}" in str(spending)


@pytest.mark.parametrize("delta", [None, 1e-7])
def test_a_draft_allows_exactly_one_run_at_the_sessions_delta(delta: float | None) -> None:
    terms = default_terms(bytes(16), 5, differential_privacy=True)
    policy = drafted(PROGRAM, terms, delta=delta)
    asked = Disclosure.of(PROGRAM, terms, delta=delta)
    assert asked.cost is not None
    assert policy.epsilon is not None
    assert policy.epsilon == asked.cost.epsilon, "what is said is what the ledger needs"
    assert policy.delta == asked.cost.delta == (delta or DELTA)
    run = promised(release_plan(PROGRAM), honest=terms.honest)
    Ledger(Budget(policy.epsilon, policy.delta)).affords(run)
    with pytest.raises(BudgetExceeded):
        Ledger(Budget(policy.epsilon - 0.01, policy.delta)).affords(run)
    assert not policy.without_differential_privacy


@pytest.mark.parametrize(
    "lines", ["epsilon = 1.0", "delta = 1e-5", 'epsilon = "1"\ndelta = 1e-5', "epsilon=1\ndelta=2"]
)
def test_a_budget_has_both_numbers(lines: str) -> None:
    with pytest.raises(PolicyFileError):
        Policy.from_toml(lines)


def test_a_run_has_the_privacy_of_its_session_but_for_its_noise(make: Make) -> None:
    coordinator, hospitals = make()
    assert PROGRAM.privacy is not None
    wider = replace(PROGRAM, privacy=replace(PROGRAM.privacy, target_clip=30.0))
    meddling(coordinator, "opening", lambda plain: plain.update(program=wider.to_json()))
    drive(hospitals[:1], coordinator, first_error=True)
    assert isinstance(hospitals[0].error, WrongRun)


def test_the_command_shows_every_charge_and_what_is_left(make: Make, tmp_path: Path) -> None:
    coordinator, hospitals = make()
    home = ["--home", str(hospitals[0].path)]
    before = CliRunner().invoke(application(), ["ledger", *home])
    assert "Nothing has been spent" in before.output
    drive(hospitals, coordinator)
    policy = tmp_path / "policy.toml"
    policy.write_text(f"epsilon = 2.0\ndelta = {DELTA}\n")
    shown = CliRunner().invoke(application(), ["ledger", *home, "--policy", str(policy)])
    assert shown.exit_code == 0, shown.output
    assert "table: 2 charges, ε = " in shown.output
    assert "of 2 left" in shown.output
    assert "moments/" in shown.output
    assert f"after run {coordinator.run}" in shown.output
    assert f"session {coordinator.session}: the unit is the row; exact discrete Gaussian" in (
        shown.output
    )
    assert coordinator.terms is not None
    assert f"at most {coordinator.terms.max_colluders} are assumed to collude" in shown.output


def test_a_policy_without_a_budget_is_said_to_have_none(tmp_path: Path) -> None:
    Home(tmp_path / "home").identity()
    policy = tmp_path / "policy.toml"
    policy.write_text("without_differential_privacy = true\n")
    asked = ["ledger", "--home", str(tmp_path / "home"), "--policy", str(policy)]
    shown = CliRunner().invoke(application(), asked)
    assert shown.exit_code == 0, shown.output
    assert "Nothing has been spent" in shown.output
    assert "has no epsilon and delta: it allows no sums with differential privacy" in shown.output
    assert "session" not in shown.output, "there is none"


def test_the_plot_shows_what_was_spent_after_each_sum_under_the_sites_limit(
    make: Make, tmp_path: Path
) -> None:
    coordinator, hospitals = make()
    drive(hospitals, coordinator)
    store = opened(hospitals[0])
    ledger = store.ledger("table", Budget(2.0, DELTA))
    store.close()
    axes = ledger_plot.draw({"$a$": ledger}, limited=True, ax=Figure().subplots())
    curve, _, limit = axes.lines
    spent = Filter(2.0, DELTA).spent
    after = [spent([e.release for e in ledger.entries[:i]]).epsilon for i in range(3)]
    assert list(curve.get_ydata()) == after
    assert set(limit.get_ydata()) == {2.0}
    unlimited = ledger_plot.draw({"table": ledger}, limited=False, ax=Figure().subplots())
    assert len(unlimited.lines) == 2

    picture = tmp_path / "ledger.png"
    asked = ["ledger", "--home", str(hospitals[0].path), "--plot"]
    shown = CliRunner().invoke(application(), [*asked, str(picture)])
    assert shown.exit_code == 0, shown.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    for wrong in (tmp_path / "nowhere" / "ledger.png", tmp_path / "ledger.doc"):
        refused = CliRunner().invoke(application(), [*asked, str(wrong)])
        assert (refused.exit_code, "[global_model.plot]" in refused.output) == (1, True)


def test_exact_sums_are_named_beside_what_is_spent_for_no_number_covers_them(make: Make) -> None:
    coordinator, hospitals = make()
    drive(hospitals, coordinator)
    home = ["--home", str(hospitals[0].path)]
    assert "no noise" not in CliRunner().invoke(application(), ["ledger", *home]).output
    store = opened(hospitals[0])
    store._db.execute("DELETE FROM charges WHERE slot = 1")  # as a sum without noise would leave it
    assert store.uncharged() == [(str(coordinator.session), 1)]
    store.close()
    shown = CliRunner().invoke(application(), ["ledger", *home])
    assert "has no noise: 1 vectors were sent for its exact sums. No ε covers them" in shown.output


def test_the_site_says_what_a_patient_is_not_the_session(make: Make) -> None:
    coordinator, hospitals = make()
    hospitals[0].policy = replace(hospitals[0].policy, patient="who")
    drive(hospitals[:1], coordinator, first_error=True)
    error = hospitals[0].error
    assert isinstance(error, UnitForbidden)
    assert "covers each row" in str(error)
    (refusal,) = coordinator.refusals
    assert refusal["code"] == "policy.patient"
    assert "who" not in refusal["detail"].split()
    assert coordinator.uploads == []
    with pytest.raises(PolicyFileError, match="patient"):
        Policy.from_toml("patient = 3")


def test_a_draft_names_the_patient_that_the_session_names() -> None:
    terms = default_terms(bytes(16), 5, differential_privacy=True)
    named = replace(PROGRAM, schema=replace(PROGRAM.schema, patient="who"))
    assert drafted(named, terms).patient == "who"
    assert drafted(PROGRAM, terms).patient is None
    assert "EACH ROW" in draft(PROGRAM, terms)


def test_a_stage_that_was_said_to_be_free_is_not_charged_for() -> None:
    free = replace(PROGRAM, stages=(moments.Spec(from_bounds=True), linear.Spec()))
    encoding = Encoding.noisy(
        moments.layout_of_moments(free.start()), multiplier=8.0, honest=3, max_clients=3
    )
    run = RunInHand(UUID(int=1), UUID(int=2), "train", free.to_json(), free, None)
    nothing: Any = None
    home = SimpleNamespace(
        store=nothing,
        client=SimpleNamespace(journal=SimpleNamespace(entry=lambda _: (nothing, nothing))),
    )
    task = SimpleNamespace(epoch_id=bytes(32))
    door = Door(cast("Any", home), nothing, nothing, nothing, run, nothing)
    with pytest.raises(WrongTask, match="plans none"):
        door._charge(encoding, nothing, cast("Any", task), 0)


def test_a_row_that_was_corrected_may_pay_in_two_parts_so_another_table_is_another_dealing(
    make: Make,
) -> None:
    coordinator, hospitals = make(epsilon=3.0)
    drive(hospitals, coordinator)
    other, _ = make(epsilon=3.0)
    for i, hospital in enumerate(hospitals):
        hospital.link = other.link(i)
    corrected = tables(3)[0]
    hospitals[0].data = {**corrected, "age": [*corrected["age"][:-1], 50.0]}
    drive(hospitals, other)
    for hospital, dealings in zip(hospitals, (2, 1, 1), strict=True):
        assert hospital.error is None
        store = opened(hospital)
        entries = store.ledger("table", Budget(3.0, DELTA)).entries
        store.close()
        assert len(entries) == 4
        assert len({entry.release.dealing for entry in entries}) == dealings


def test_a_patient_stays_in_its_part_whatever_else_is_in_the_table() -> None:
    named = replace(PROGRAM, schema=replace(PROGRAM.schema, patient="who"))
    one, other = ({"commitment": bytes(32), "table": table} for table in (b"one", b"other"))
    assert site_dealing(named, **one) == site_dealing(named, **other)
    assert site_dealing(PROGRAM, **one) != site_dealing(PROGRAM, **other)


def test_no_cell_keeps_a_hospital_from_a_private_session_and_only_its_operator_hears(
    make: Make,
) -> None:
    whole = tables(3)
    odd = {name: list(cells) for name, cells in whole[0].items()}
    odd["age"][:3] = [121.0, -1.0, None]
    odd["ward"][3], odd["stay"][4], odd["stay"][5] = "hospice", "long", 31.0
    odd["stay"][6] = None
    nothing = {name: ["unreadable"] * 3 for name in whole[1]}
    coordinator, hospitals = make(data=[odd, nothing, whole[2]])
    drive(hospitals, coordinator)
    assert [hospital.error for hospital in hospitals] == [None] * 3
    assert coordinator.refusals == []
    told = [[e for e in h.events if isinstance(e, ReadRowByRow)] for h in hospitals]
    assert told == [[ReadRowByRow(3, 3)], [ReadRowByRow(0, 3)], []]
    left_out = [[e for e in h.events if isinstance(e, LeftOutWithoutTarget)] for h in hospitals]
    assert left_out == [[LeftOutWithoutTarget(1)], [], []]


def test_rows_to_remove_are_refused_before_a_private_session_is_joined(make: Make) -> None:
    coordinator, hospitals = make()
    hospitals[0].changes = Changes(removed=tables(1)[0])
    drive(hospitals[:1], coordinator, first_error=True)
    assert isinstance(hospitals[0].error, RowsNotRemoved)
    assert (coordinator.refusals, coordinator.uploads) == ([], [])
    store = opened(hospitals[0])
    assert store.last_run(str(coordinator.session)) is None
    store.close()
