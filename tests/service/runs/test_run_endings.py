"""Every run ends: done, failed with a reason, or cancelled; and members are notified."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.exc import OperationalError

from service.database.tables import runs
from service.http import long_poll
from service.runs import engine as engine_module
from service.runs import saving
from tests.service.coordinator import Coordinator
from tests.service.programs import TINY, model_bytes, simulated
from tests.service.sites import (
    Site,
    advance,
    loaded,
    runs_of,
    session_of,
    shown,
    start,
    stop_engine,
    stored_model,
    until,
    work,
)


@pytest.fixture
def quiet(coordinator: Coordinator) -> Coordinator:
    stop_engine(coordinator)
    return coordinator


def rounds(sites: list[Site], run: str, times: int) -> None:
    for _ in range(times):
        for site in sites:
            site.work()
        advance(sites[0].coordinator, run)


def outcomes(sites: list[Site]) -> set[tuple[str, str | None]]:
    for site in sites:
        site.work()
    return {(site.outcome["status"], site.outcome["code"]) for site in sites if site.outcome}


@pytest.mark.parametrize("kind", ["opening", "adverts", "task", "certificate"])
def test_the_deadline_names_whose_answer_is_missing(quiet: Coordinator, kind: str) -> None:
    sites = session_of(quiet)
    run = start(quiet, sites[0].session, deadline_s=1000)
    until(sites, kind, run)
    for site in sites[:2]:
        site.work()
    assert shown(quiet, run)["waiting_for"] == ["site-2"]
    advance(quiet, run, seconds=1001)
    ended = shown(quiet, run)
    assert (ended["status"], ended["code"]) == ("failed", "run.deadline")
    assert "site-2" in ended["detail"]
    assert "site-0" not in ended["detail"]
    assert ended["waiting_for"] == []
    assert outcomes(sites) == {("failed", "run.deadline")}


@pytest.mark.parametrize(("said", "until_s"), [({}, 77), ({"deadline_s": 5}, 5)])
def test_the_settings_say_when_a_run_ends_that_does_not(
    tmp_path: Path, said: dict[str, int], until_s: int
) -> None:
    with Coordinator(tmp_path, run_deadline_s=77) as coordinator:
        sites = session_of(coordinator)
        run = start(coordinator, sites[0].session, **said)
        deadline = loaded(coordinator, run).plan.deadline_at
        assert deadline == coordinator.clock() + until_s


def test_the_engine_keeps_deadlines_by_itself(coordinator: Coordinator) -> None:
    sites = session_of(coordinator)
    run = start(coordinator, sites[0].session, deadline_s=1000)
    for site in sites:
        site.work()
    coordinator.clock.now += 1001
    coordinator.app.state.engine.wake(run)
    work(sites)
    assert outcomes(sites) == {("failed", "run.deadline")}


def test_a_cancelled_run_tells_its_members_and_the_next_one_can_start(quiet: Coordinator) -> None:
    sites = session_of(quiet)
    run = start(quiet, sites[0].session)
    rounds(sites, run, 3)
    again = quiet.admin("POST", f"/sessions/{sites[0].session}/runs", {"kind": "train"})
    assert (again.status_code, again.json()["code"]) == (409, "run.open")
    assert quiet.admin("POST", f"/runs/{run}/retry").json()["code"] == "run.not_ended"
    assert quiet.admin("POST", f"/runs/{run}/cancel").json()["status"] == "cancelled"
    assert quiet.admin("POST", f"/runs/{run}/cancel").json()["code"] == "run.ended"
    target, body = sites[0].sent[-1]
    assert sites[0].post(target, body).json()["code"] == "run.ended"
    assert outcomes(sites) == {("cancelled", "run.cancelled")}
    retried = quiet.admin("POST", f"/runs/{run}/retry").json()["id"]
    for site in sites:
        site.outcome = None
    while any(site.outcome is None for site in sites):
        rounds(sites, retried, 1)
    assert stored_model(quiet, sites[0]) == model_bytes(simulated(TINY))


def test_a_refusal_ends_the_run_with_the_members_reason(quiet: Coordinator) -> None:
    sites = session_of(quiet)
    run = start(quiet, sites[0].session)
    rounds(sites, run, 2)
    refusal = {"run": run, "code": "policy.steps", "detail": "too many steps"}
    for _ in range(2):
        target = f"/sessions/{sites[1].session}/refusals"
        assert sites[1].send("POST", target, refusal).status_code == 204
    ended = shown(quiet, run)
    assert (ended["status"], ended["code"]) == ("failed", "run.member_refused")
    assert ended["detail"] == "site-1 refused (policy.steps): too many steps"
    assert outcomes(sites) == {("failed", "run.member_refused")}


def test_only_a_member_of_the_run_can_refuse_it(quiet: Coordinator) -> None:
    sites, others = session_of(quiet), session_of(quiet)
    run = start(quiet, sites[0].session)
    refusal = {"run": run, "code": "policy.steps", "detail": "too many steps"}
    response = others[0].send("POST", f"/sessions/{others[0].session}/refusals", refusal)
    assert response.status_code == 404
    assert shown(quiet, run)["status"] == "waiting"


def test_a_sum_that_no_upload_may_carry_ends_the_run(tmp_path: Path) -> None:
    with Coordinator(tmp_path, max_vector=10) as coordinator:
        sites = session_of(coordinator)
        run = start(coordinator, sites[0].session)
        work(sites)
        ended = shown(coordinator, run)
        assert (ended["status"], ended["code"]) == ("failed", "layout.invalid")
        assert "max_vector" in ended["detail"]


@pytest.mark.parametrize(
    ("from_the_end", "code"), [(17, "collection.inconsistent"), (18, "run.site_failed")]
)
def test_an_error_of_the_sum_ends_the_run_with_its_code(
    quiet: Coordinator, from_the_end: int, code: str
) -> None:
    """One hospital's constant is changed, or its coordinate `failed`."""
    sites = session_of(quiet)
    run = start(quiet, sites[0].session)
    rounds(sites, run, 2)
    items = [site.next() for site in sites]
    for site, item in zip(sites, items, strict=True):
        assert item is not None
        body = site.vector(item)
        at = len(body) - 8 * from_the_end
        wrong = body[:at] + bytes(8) + body[at + 8 :] if site is sites[0] else body
        target = f"/sessions/{site.session}/runs/{run}/vectors"
        assert site.post(target, wrong).status_code == 204
    rounds(sites, run, 2)
    ended = shown(quiet, run)
    assert (ended["status"], ended["code"]) == ("failed", code)
    if code == "run.site_failed":
        assert "One site could not compute" in ended["detail"]
        assert not any(site.name in ended["detail"] for site in sites)


def test_a_survivor_that_falls_silent_is_done_without(quiet: Coordinator) -> None:
    sites = session_of(quiet)
    run = start(quiet, sites[0].session)
    until(sites, "certificate", run)
    for site in sites[:2]:
        site.work()
    assert [site.next() for site in sites[:2]] == [None, None]
    advance(quiet, run, seconds=quiet.context.settings.repair_after_s)
    assert loaded(quiet, run).repairing
    for site in sites[:2]:
        item = site.next()
        assert item is not None
        assert item["kind"] == "repair"
        site.answer(item)
    advance(quiet, run)
    assert shown(quiet, run)["progress"]["sums"] == 1
    while any(site.outcome is None for site in sites):
        rounds(sites, run, 1)
    assert stored_model(quiet, sites[0]) == model_bytes(simulated(TINY))


def test_an_epoch_whose_boxes_do_not_come_begins_anew(quiet: Coordinator) -> None:
    sites = session_of(quiet)
    patience = quiet.context.settings.restart_after_s
    run = start(quiet, sites[0].session, deadline_s=2.5 * patience)
    rounds(sites, run, 1)
    rounds(sites[:2], run, 1)
    advance(quiet, run, seconds=patience)
    items = [site.next() for site in sites]
    assert [item and (item["kind"], item["number"]) for item in items] == [("opening", 1)] * 3
    rounds(sites, run, 1)
    rounds(sites[:2], run, 1)
    advance(quiet, run, seconds=patience)  # too late for a third
    assert shown(quiet, run)["waiting_for"] == ["site-2"]
    while any(site.outcome is None for site in sites):
        rounds(sites, run, 1)
    assert stored_model(quiet, sites[0]) == model_bytes(simulated(TINY))


def test_a_run_that_cannot_be_read_fails_and_the_engine_lives(coordinator: Coordinator) -> None:
    broken, sound = session_of(coordinator), session_of(coordinator)
    run = start(coordinator, broken[0].session)
    stop_engine(coordinator)
    with coordinator.context.database.changing() as connection:
        connection.execute(update(runs).where(runs.c.id == run).values(state=b"?", version=9))
    engine = type(coordinator.app.state.engine)(runs_of(coordinator), coordinator.clock)
    coordinator.app.state.engine = engine
    engine.start()
    start(coordinator, sound[0].session)
    work(sound)
    assert stored_model(coordinator, sound[0]) == model_bytes(simulated(TINY))
    ended = shown(coordinator, run)
    assert (ended["status"], ended["code"]) == ("failed", "run.internal")
    engine.stop()


def test_a_database_that_fails_for_a_while_ends_no_run(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "LOOK_AGAIN_S", 0.05)
    failures = iter(range(3))
    storing = saving.write_prepared

    def failing(*arguments: Any) -> None:
        if next(failures, None) is not None:
            raise OperationalError("UPDATE", {}, OSError("disk I/O error"))
        storing(*arguments)

    monkeypatch.setattr(saving, "write_prepared", failing)
    sites = session_of(coordinator)
    start(coordinator, sites[0].session)
    work(sites)
    assert next(failures, None) is None
    assert stored_model(coordinator, sites[0]) == model_bytes(simulated(TINY))


def test_a_whole_roster_waits_without_a_thread_and_is_woken_by_the_start(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More members wait than there are threads, and the admin's request is still answered."""
    monkeypatch.setattr(long_poll, "LOOK_AGAIN_S", 60.0)
    tables: list[dict[str, Any]] = [{} for _ in range(60)]
    sites = session_of(coordinator, tables=tables)

    async def wait(site: Site) -> int:
        target = f"/sessions/{site.session}/next?wait=25"
        headers = {"Authorization": site.header("GET", target)}
        response = await coordinator._http.get(target, headers=headers)
        return response.status_code

    async def admin() -> int:
        await asyncio.sleep(0.5)
        response = await coordinator._http.post(
            f"/sessions/{sites[0].session}/runs",
            json={"kind": "train"},
            headers={"Authorization": f"Bearer {coordinator.token}"},
        )
        return response.status_code

    async def everyone() -> list[int]:
        return await asyncio.gather(admin(), *(wait(site) for site in sites))

    assert coordinator._runner.run(everyone()) == [201] + [200] * 60
