"""Blind and open sums over real processes, each of which is killed: exactly the same model.

Sums are blind in test_session.py and test_replicas.py as well, where another hospital, the
coordinator and, on PostgreSQL, each of two replicas are killed. Deaths at every single message are
tried in one process: of blind runs in tests/client_sdk/conversation/test_blind_crashes.py, of open
ones in test_crash_points.py. There is also the comparison without deaths on each database
(tests/client_sdk/conversation/test_blind_runs.py).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.federation import Federation
from tests.client_sdk.conversation.blind_study import STAGES
from tests.e2e import sessions
from tests.e2e.lives import Lives
from tests.e2e.warm import Warm
from tests.stores import Store


@pytest.fixture
def federation(tmp_path: Path, store: Store) -> Iterator[Federation]:
    settings = {f"VEILGP_{name.upper()}": value for name, value in store.items()}
    with Federation.started(
        tmp_path / "federation", environment=settings, launch=Warm
    ) as federation:
        yield federation


POINTS = {
    "blind": ["draft:2:before", "draft:2:after", "hand-over:1:before"],
    "open": ["certify:2:before", "reveal:3:after", "endorse:1:before"],
}
"""Where the hospital of the lowest rank dies: it is asked first for every task and the model."""


@pytest.mark.parametrize(
    ("sums", "store"),
    [
        ("blind", "sqlite"),
        pytest.param("open", "sqlite", marks=pytest.mark.slow),
        pytest.param("blind", "postgresql", marks=pytest.mark.slow),
        pytest.param("open", "postgresql", marks=pytest.mark.slow),
    ],
    indirect=["store"],
)
def test_a_run_in_which_each_party_is_killed_gives_the_simulations_model(
    federation: Federation, tmp_path: Path, sums: str
) -> None:
    new = {**sessions.NEW, "stages": STAGES, "sums": sums}
    session = federation.admin("POST", "/sessions", new)
    hospitals = federation.enrol(
        session["id"], sessions.files(tmp_path), sessions.policy(session), start=False
    )
    first, second, third = sorted(hospitals, key=lambda each: each.key)
    mortal = [
        Lives(first, POINTS[sums]),
        Lives(second, ["upload:2:after"]),
        Lives(third, ["endorse:1:before"]),
    ]
    for hospital in hospitals:
        assert hospital.process is not None
        hospital.process.start()
    federation.approve(session["id"])
    body = {"kind": "train", "deadline_s": 300}
    run = federation.admin("POST", f"/sessions/{session['id']}/runs", body)
    killed = False

    def kill(now: Mapping[str, Any]) -> None:
        nonlocal killed
        for each in mortal:
            each.go_on()
        if not killed and now["status"] == "running" and now["progress"]["sums"] >= 1:
            assert federation.coordinator is not None
            federation.coordinator.kill()
            killed = True
            federation.restart_coordinator()

    ended = federation.follow(run["id"], seen=kill, wait_s=280, every_s=0.02)
    assert killed
    assert [each.left for each in mortal] == [0, 0, 0]
    homes = sessions.homes_of(federation)
    sessions.assert_same(sessions.trained(federation, ended), sessions.simulated(session, homes))
