"""With differential privacy a run continues without members that fall silent or refuse."""

from collections.abc import Sequence
from typing import Any

import pytest

from kernels.rounds.plan import release_plan
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind, program_of
from privacy.accounting.cost import cost
from privacy.accounting.promises import promised
from privacy.securesum.terms import Terms
from service.sessions import ledgers, sessions
from tests.kernels.rounds import tables
from tests.service.coordinator import Coordinator
from tests.service.programs import PRIVATE
from tests.service.sites import (
    Site,
    advance,
    loaded,
    lose_memory,
    session_of,
    shown,
    start,
    stop_engine,
    until,
)

TABLES = tables.tables(5, rows=20)


@pytest.fixture
def quiet(coordinator: Coordinator) -> Coordinator:
    stop_engine(coordinator)
    return coordinator


def begun(quiet: Coordinator, **more: Any) -> tuple[list[Site], str]:
    sites = session_of(quiet, PRIVATE, TABLES, epsilon=8.0, runs=4)
    return sites, start(quiet, sites[0].session, **more)


def rounds(sites: Sequence[Site], run: str, times: int = 1) -> None:
    for _ in range(times):
        for site in sites:
            site.work()
        advance(sites[0].coordinator, run)


def finish(sites: Sequence[Site], run: str, *, turns: int = 60) -> dict[str, Any]:
    """Let these sites work until the run has ended; time passes while nothing happens."""
    coordinator = sites[0].coordinator
    for _ in range(turns):
        worked = [site.work() for site in sites]
        advance(coordinator, run, seconds=0.0 if any(worked) else 61.0)
        if shown(coordinator, run)["status"] not in ("waiting", "running"):
            break
    return shown(coordinator, run)


def survivors(coordinator: Coordinator, run: str) -> tuple[str, ...]:
    live = loaded(coordinator, run)
    slot = live.slot
    assert slot is not None
    assert slot.proposal is not None
    names = {member.key: member.name for member in live.roster.members}
    return tuple(sorted(names[slot.epoch.members[rank]] for rank in slot.proposal.survivors))


def active(coordinator: Coordinator, run: str) -> tuple[str, ...]:
    live = loaded(coordinator, run)
    assert live.slot is not None
    names = {member.key: member.name for member in live.roster.members}
    return tuple(sorted(names[live.slot.epoch.members[r]] for r in live.slot.task.active))


def charged(coordinator: Coordinator, site: Site) -> list[tuple[int, int]]:
    with coordinator.context.database.reading() as connection:
        ledger = ledgers.load(connection, site.session)
    assert ledger is not None
    return [(entry.epoch, entry.slot) for entry in ledger.entries]


def test_a_run_with_everyone_begins_at_once(quiet: Coordinator) -> None:
    sites, run = begun(quiet)
    rounds(sites, run)
    assert shown(quiet, run)["status"] == "running"
    assert finish(sites, run)["status"] == "done"


def test_an_epoch_opens_with_those_that_are_there_after_the_gathering_time(
    quiet: Coordinator,
) -> None:
    sites, run = begun(quiet)
    rounds(sites[:3], run)
    advance(quiet, run, seconds=quiet.context.settings.gather_s - 1)
    assert shown(quiet, run)["status"] == "waiting"
    assert sorted(shown(quiet, run)["waiting_for"]) == ["site-3", "site-4"]
    advance(quiet, run, seconds=1)
    assert shown(quiet, run)["status"] == "running"
    assert sites[4].next() is None, "it came too late for this epoch"
    assert finish(sites[:3], run)["status"] == "done"


def test_below_the_minimum_a_run_waits_and_fails_at_its_deadline_by_name(
    quiet: Coordinator,
) -> None:
    sites, run = begun(quiet, deadline_s=1000)
    rounds(sites[:2], run)
    advance(quiet, run, seconds=900)
    assert shown(quiet, run)["status"] == "waiting"
    advance(quiet, run, seconds=101)
    ended = shown(quiet, run)
    assert (ended["status"], ended["code"]) == ("failed", "run.deadline")
    assert "site-4" in ended["detail"]
    assert "site-0" not in ended["detail"]


def test_who_does_not_upload_in_time_is_left_out_and_takes_part_again(quiet: Coordinator) -> None:
    sites, run = begun(quiet)
    until(sites, "task", run)
    rounds(sites[:3], run)
    advance(quiet, run, seconds=quiet.context.settings.leave_out_after_s - 1)
    assert sites[0].next() is None
    advance(quiet, run, seconds=1)
    assert survivors(quiet, run) == ("site-0", "site-1", "site-2")
    assert sites[3].next() is None, "it has nothing to do, and is there again"
    lose_memory(quiet)
    until(sites[:3], "task", run)
    assert shown(quiet, run)["progress"]["sums"] == 1
    assert active(quiet, run) == ("site-0", "site-1", "site-2", "site-3")
    assert finish(sites[:4], run)["status"] == "done"


def test_with_too_few_vectors_a_sum_waits_and_goes_on_with_the_one_that_returns(
    quiet: Coordinator,
) -> None:
    sites, run = begun(quiet)
    until(sites, "task", run)
    rounds(sites[:2], run)
    advance(quiet, run, seconds=5 * quiet.context.settings.leave_out_after_s)
    assert loaded(quiet, run).epoch.number == 0
    assert [site.next() for site in sites[:2]] == [None, None]
    rounds(sites[2:3], run)
    assert survivors(quiet, run) == ("site-0", "site-1", "site-2")
    assert finish(sites[:3], run)["status"] == "done"


def test_a_silent_survivor_that_owes_a_key_for_a_dropped_member_loses_the_sum(
    quiet: Coordinator,
) -> None:
    sites, run = begun(quiet)
    until(sites, "task", run)
    rounds(sites[:4], run)
    advance(quiet, run, seconds=quiet.context.settings.leave_out_after_s)
    until(sites[:4], "certificate", run)
    rounds(sites[:3], run)
    advance(quiet, run, seconds=quiet.context.settings.repair_after_s)
    assert not loaded(quiet, run).repairing, "no share replaces its pair key"
    advance(quiet, run, seconds=quiet.context.settings.restart_after_s)
    live = loaded(quiet, run)
    assert (live.epoch.number, live.sums, live.slot) == (1, 0, None)
    rounds(sites[:3], run)
    advance(quiet, run, seconds=quiet.context.settings.gather_s)
    until(sites[:3], "task", run)
    assert charged(quiet, sites[0]) == [(0, 0), (1, 0)], "it counts as released, and is paid again"


def test_a_sum_is_charged_before_its_task_goes_out_and_once_however_often_it_is_asked_for(
    quiet: Coordinator,
) -> None:
    sites, run = begun(quiet)
    rounds(sites, run, 2)
    assert charged(quiet, sites[0]) == [(0, 0)]
    assert all(site.next()["kind"] == "task" for site in sites)
    lose_memory(quiet)
    advance(quiet, run)
    assert charged(quiet, sites[0]) == [(0, 0)]


def test_a_sum_that_the_budget_does_not_allow_twice_is_waited_for(quiet: Coordinator) -> None:
    sites = session_of(quiet, PRIVATE, TABLES, epsilon=1.0)
    run = start(quiet, sites[0].session, deadline_s=100_000)
    until(sites, "proposal", run)
    rounds(sites[:2], run)
    advance(quiet, run, seconds=10 * quiet.context.settings.restart_after_s)
    live = loaded(quiet, run)
    assert (live.status, live.epoch.number) == ("running", 0)
    until(sites, "certificate", run)


def test_a_repeat_that_the_budget_does_not_allow_ends_the_run_by_name(quiet: Coordinator) -> None:
    """Three refuse: too few members of the epoch are left, but enough of the session."""
    sites = session_of(quiet, PRIVATE, [*TABLES, *TABLES[:1]], epsilon=1.0)
    run = start(quiet, sites[0].session)
    rounds(sites[:5], run)
    advance(quiet, run, seconds=quiet.context.settings.gather_s)
    until(sites[:5], "task", run)
    for site in sites[:3]:
        refuse(site, run)
    assert loaded(quiet, run).epoch.number == 1
    for _ in range(4):
        rounds(sites[3:], run)
    ended = shown(quiet, run)
    assert (ended["status"], ended["code"]) == ("failed", "ledger.budget_exceeded")
    assert charged(quiet, sites[0]) == [(0, 0)], "nothing is spent on a run that cannot end"
    assert "above the budget of 1" in ended["detail"]


def test_a_second_run_does_not_start_where_the_first_has_spent_all(quiet: Coordinator) -> None:
    sites = session_of(quiet, PRIVATE, TABLES, epsilon=1.0)
    run = start(quiet, sites[0].session)
    rounds(sites, run, 2)
    quiet.admin("POST", f"/runs/{run}/cancel")
    again = quiet.admin("POST", f"/sessions/{sites[0].session}/runs", {"kind": "train"})
    assert (again.status_code, again.json()["code"]) == (409, "ledger.budget_exceeded")
    assert "is spent" in again.json()["detail"]
    assert quiet.admin("POST", f"/runs/{run}/retry").json()["code"] == "ledger.budget_exceeded"


@pytest.mark.parametrize("kind", ["linear", "evaluate", "update"])
def test_every_kind_of_run_has_noise_and_a_price(quiet: Coordinator, kind: str) -> None:
    sites = session_of(quiet, PRIVATE, TABLES, epsilon=1.0)
    with quiet.context.database.reading() as connection:
        whole = Program.from_json(sessions.find(connection, sites[0].session).program)
    program = program_of(Kind(kind), whole)
    terms = Terms(bytes(16), 0, 3, differential_privacy=True)
    assert 0 < cost(promised(release_plan(program), honest=terms.honest), delta=1e-5).epsilon <= 1.5
    assert program.privacy is not None
    assert whole.privacy is not None
    assert program.privacy.target_clip == whole.privacy.target_clip


def test_the_report_says_what_a_run_costs_before_the_first(quiet: Coordinator) -> None:
    sites = session_of(quiet, PRIVATE, TABLES, epsilon=1.0)
    shared = quiet.admin("GET", f"/sessions/{sites[0].session}/privacy").json()
    assert (shared["spent"], shared["releases"]) == (0.0, [])
    assert 0.9 < shared["after_another_run"] == shared["budget"]["run_costs"] <= 1.0


def test_too_few_left_to_certify_lose_the_sum_and_a_new_epoch_repeats_it(
    quiet: Coordinator,
) -> None:
    sites, run = begun(quiet)
    until(sites, "proposal", run)
    rounds(sites[:2], run)
    advance(quiet, run, seconds=quiet.context.settings.restart_after_s)
    assert loaded(quiet, run).epoch.number == 1
    assert finish(sites[2:], run)["status"] == "done"


def test_a_lost_sum_is_not_given_up_where_no_time_is_left_for_another(quiet: Coordinator) -> None:
    patience = quiet.context.settings.restart_after_s
    sites, run = begun(quiet, deadline_s=1.5 * patience)
    until(sites, "proposal", run)
    rounds(sites[:2], run)
    advance(quiet, run, seconds=1.2 * patience)
    assert loaded(quiet, run).epoch.number == 0
    assert finish(sites, run)["status"] == "done"


@pytest.mark.parametrize("kind", ["opening", "adverts", "task", "proposal", "certificate"])
def test_a_member_that_refuses_is_done_without_wherever_the_run_is(
    quiet: Coordinator, kind: str
) -> None:
    sites, run = begun(quiet)
    until(sites, kind, run)
    refuse(sites[2], run)
    assert shown(quiet, run)["status"] in ("waiting", "running")
    assert sites[2].next() is None
    others = [site for site in sites if site is not sites[2]]
    for _ in range(12):
        rounds(others, run)
        advance(quiet, run, seconds=21)
    assert shown(quiet, run)["progress"]["sums"] >= 1


def test_when_too_many_refuse_the_run_ends_with_the_last_ones_reason(quiet: Coordinator) -> None:
    sites, run = begun(quiet)
    until(sites, "task", run)
    for site in sites[:2]:
        refuse(site, run)
    assert shown(quiet, run)["status"] == "running"
    refuse(sites[2], run)
    ended = shown(quiet, run)
    assert (ended["status"], ended["code"]) == ("failed", "run.member_refused")
    assert "site-2 refused (policy.budget)" in ended["detail"]


def test_enough_members_but_too_few_of_the_epoch_make_a_new_epoch(quiet: Coordinator) -> None:
    sites, run = begun(quiet)
    rounds(sites[:3], run)
    advance(quiet, run, seconds=quiet.context.settings.gather_s)
    until(sites[:3], "task", run)
    refuse(sites[0], run)
    assert loaded(quiet, run).epoch.number == 1
    assert finish(sites[1:], run)["status"] == "done"


def refuse(site: Site, run: str) -> None:
    refusal = {"run": run, "code": "policy.budget", "detail": "the site has spent its budget"}
    assert site.send("POST", f"/sessions/{site.session}/refusals", refusal).status_code == 204
