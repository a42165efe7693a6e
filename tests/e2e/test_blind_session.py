"""Blind and open sums over real processes that are killed: exactly the same model.

Sums are blind in test_session.py and test_replicas.py as well, where another hospital, the
coordinator and, on PostgreSQL, each of two replicas are killed. Deaths at every single message are
tried in one process: of blind runs in tests/client_sdk/conversation/test_blind_crashes.py, of open
ones in test_crash_points.py. There is also the comparison without deaths on each database
(tests/client_sdk/conversation/test_blind_runs.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.federation import Federation
from tests.client_sdk.conversation.blind_study import STAGES
from tests.e2e import sessions
from tests.e2e.lives import Lives
from tests.e2e.warm import Warm
from tests.stores import EVERY_STORE, Store

Points = Sequence[Sequence[str]]
"""Where the hospital of each rank dies. The first is asked for every task, and for the model."""

POINTS: Mapping[str, Points] = {
    "blind": (
        ["draft:2:before", "draft:2:after", "hand-over:1:before"],
        ["upload:2:after"],
        ["endorse:1:before"],
    ),
    "open": (
        ["certify:2:before", "reveal:3:after"],
        ["upload:2:after"],
        ["endorse:1:before"],
    ),
}


@pytest.fixture
def federation(tmp_path: Path, store: Store) -> Iterator[Federation]:
    settings = {f"VEILGP_{name.upper()}": value for name, value in store.items()}
    with Federation.started(
        tmp_path / "federation", environment=settings, launch=Warm
    ) as federation:
        yield federation


def run_with_deaths(
    federation: Federation, folder: Path, *, sums: str, points: Points, coordinator: bool
) -> None:
    """Kill hospitals at these points, and the coordinator once: the model is the simulation's."""
    new = {**sessions.NEW, "stages": STAGES, "sums": sums}
    session = federation.admin("POST", "/sessions", new)
    hospitals = federation.enrol(
        session["id"], sessions.files(folder), sessions.policy(session), start=False
    )
    by_rank = sorted(hospitals, key=lambda each: each.key)
    mortal = [Lives(each, own) for each, own in zip(by_rank, points, strict=True)]
    for hospital in hospitals:
        assert hospital.process is not None
        hospital.process.start()
    federation.approve(session["id"])
    body = {"kind": "train", "deadline_s": 300}
    run = federation.admin("POST", f"/sessions/{session['id']}/runs", body)
    to_kill = coordinator

    def kill(now: Mapping[str, Any]) -> None:
        nonlocal to_kill
        for each in mortal:
            each.go_on()
        if to_kill and now["status"] == "running" and now["progress"]["sums"] >= 1:
            assert federation.coordinator is not None
            federation.coordinator.kill()
            to_kill = False
            federation.restart_coordinator()

    ended = federation.follow(run["id"], seen=kill, wait_s=280, every_s=0.02)
    assert not to_kill
    assert [each.left for each in mortal] == [0, 0, 0], "all have died where they should"
    homes = sessions.homes_of(federation)
    sessions.assert_same(sessions.trained(federation, ended), sessions.simulated(session, homes))


def test_a_hospital_killed_while_it_writes_a_task_and_hands_over_the_model_changes_nothing(
    federation: Federation, tmp_path: Path
) -> None:
    points = ["draft:2:after", "hand-over:1:before"], [], []
    run_with_deaths(federation, tmp_path, sums="blind", points=points, coordinator=False)


@pytest.mark.slow
@EVERY_STORE
@pytest.mark.parametrize("sums", ["blind", "open"])
def test_a_run_in_which_each_party_is_killed_gives_the_same_model(
    federation: Federation, tmp_path: Path, sums: str
) -> None:
    run_with_deaths(federation, tmp_path, sums=sums, points=POINTS[sums], coordinator=True)
