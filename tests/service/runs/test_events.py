"""Admins can follow a run as events, and the stream ends with the run."""

import asyncio
import json
from typing import Any

import pytest
from httpx import Response

from service.http.tokens import Role, issue
from service.routes import events
from tests.service.coordinator import Coordinator
from tests.service.sites import Site, lose_memory, session_of, start, stop_engine, work


def states(response: Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"].startswith("text/event-stream")
    lines = response.text.splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


def following(coordinator: Coordinator, run: str) -> "asyncio.Task[Response]":
    """Start following; the stream continues whenever the coordinator answers another request."""
    return coordinator.begin(
        "GET", f"/runs/{run}/events", headers={"Authorization": f"Bearer {coordinator.token}"}
    )


def test_a_run_is_followed_to_its_end(coordinator: Coordinator) -> None:
    sites = session_of(coordinator)
    run = start(coordinator, sites[0].session)
    stream = following(coordinator, run)
    work(sites)
    seen = states(coordinator.finish(stream))
    assert seen[0]["status"] == "waiting"
    assert seen[-1] == coordinator.admin("GET", f"/runs/{run}").json()
    assert seen[-1]["status"] == "done"
    sums = [state["progress"]["sums"] for state in seen]
    assert sums == sorted(sums)


def test_who_has_heard_the_end_need_not_come_again(coordinator: Coordinator) -> None:
    sites = session_of(coordinator)
    run = start(coordinator, sites[0].session)
    assert coordinator.admin("POST", f"/runs/{run}/cancel").status_code == 200
    first = coordinator.admin("GET", f"/runs/{run}/events")
    (state,) = states(first)
    assert state["status"] == "cancelled"
    heard = first.text.partition("id: ")[2].split()[0]
    headers = {"Authorization": f"Bearer {coordinator.token}"}
    for known, status in ((heard, 204), ("another", 200)):
        more = {**headers, "Last-Event-ID": known}
        again = coordinator.request("GET", f"/runs/{run}/events", headers=more)
        assert again.status_code == status


def test_a_connection_without_news_is_kept_alive(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.0)
    monkeypatch.setattr(events, "LOOK_AGAIN_S", 0.01)
    monkeypatch.setattr(events, "LONGEST_S", 0.2)
    sites = session_of(coordinator)
    run = start(coordinator, sites[0].session)
    stop_engine(coordinator)
    answer = coordinator.admin("GET", f"/runs/{run}/events")
    assert len(states(answer)) == 1
    assert ": still here\n\n" in answer.text


def test_the_present_state_comes_first_after_a_restart(coordinator: Coordinator) -> None:
    sites = session_of(coordinator)
    run = start(coordinator, sites[0].session)
    stop_engine(coordinator)
    lose_memory(coordinator)
    stream = following(coordinator, run)
    assert coordinator.admin("POST", f"/runs/{run}/cancel").status_code == 200
    seen = states(coordinator.finish(stream))
    assert [state["status"] for state in seen][-1] == "cancelled"


def test_only_an_admin_follows_a_run(coordinator: Coordinator) -> None:
    sites = session_of(coordinator)
    path = f"/runs/{start(coordinator, sites[0].session)}/events"
    with coordinator.context.database.changing() as connection:
        caller = issue(connection, Role.CALLER, "ward", now=coordinator.clock(), models=["m"])
        page = issue(connection, Role.PAGE, "admin", now=coordinator.clock())
    assert coordinator.request("GET", path).status_code == 401
    assert coordinator.bearer(caller.secret, "GET", path).status_code == 403
    assert coordinator.bearer(page.secret, "GET", path).status_code == 401
    assert _cookie(coordinator, caller.secret, path) == 401
    assert sites[0].send("GET", path).status_code == 401


def _cookie(coordinator: Coordinator, secret: str, path: str) -> int:
    headers = {"Cookie": f"veilgp_page={secret}"}
    return coordinator.request("GET", path, headers=headers).status_code


def test_no_event_has_a_figure_of_one_site(coordinator: Coordinator) -> None:
    sites: list[Site] = session_of(coordinator)
    run = start(coordinator, sites[0].session)
    stream = following(coordinator, run)
    work(sites)
    for state in states(coordinator.finish(stream)):
        assert set(state.pop("waiting_for")) <= {site.name for site in sites}
        assert not any(site.name in json.dumps(state) for site in sites)
