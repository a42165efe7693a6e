"""Whole sessions over real processes, with real crashes: exactly the same model."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.federation import Federation, wait_until
from tests.e2e import sessions
from tests.e2e.lives import Lives
from tests.e2e.warm import Warm


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    with Federation.started(tmp_path / "federation", launch=Warm) as federation:
        yield federation


def start(federation: Federation, session: str, **body: object) -> str:
    run: str = federation.admin("POST", f"/sessions/{session}/runs", {"kind": "train", **body})[
        "id"
    ]
    return run


# One real signal for each role. All other crash points are tested in one process: a hospital's in
# test_crash_points.py, the coordinator's in tests/service/runs/test_run_crashes.py.


def test_a_hospital_killed_after_its_vector_has_left_goes_on_to_the_same_model(
    federation: Federation, tmp_path: Path
) -> None:
    session = sessions.create(federation)
    mortal, *others = federation.enrol(
        session["id"], sessions.files(tmp_path), sessions.policy(session), start=False
    )
    lives = Lives(mortal, ["upload:2:after"])
    for hospital in (mortal, *others):
        assert hospital.process is not None
        hospital.process.start()
    federation.approve(session["id"])
    run = start(federation, session["id"], deadline_s=300)
    ended = federation.follow(run, seen=lives.go_on, wait_s=280)
    assert lives.left == 0, "it was killed"
    sessions.assert_same(
        sessions.trained(federation, ended),
        sessions.simulated(session, sessions.homes_of(federation)),
    )


# On PostgreSQL it is killed in test_replicas.py.
def test_a_coordinator_killed_in_the_middle_of_a_run_gives_the_same_model(
    federation: Federation, tmp_path: Path
) -> None:
    session = sessions.create(federation)
    federation.enrol(session["id"], sessions.files(tmp_path), sessions.policy(session))
    federation.approve(session["id"])
    run = start(federation, session["id"], deadline_s=300)
    killed = False

    def kill(now: Mapping[str, Any]) -> None:
        nonlocal killed
        if not killed and now["status"] == "running" and now["progress"]["sums"] >= 1:
            assert federation.coordinator is not None
            federation.coordinator.kill()
            killed = True
            federation.restart_coordinator()

    ended = federation.follow(run, seen=kill, wait_s=280, every_s=0.02)
    assert killed
    sessions.assert_same(
        sessions.trained(federation, ended),
        sessions.simulated(session, sessions.homes_of(federation)),
    )


def test_a_member_that_never_returns_ends_the_run_at_its_deadline(
    federation: Federation, tmp_path: Path
) -> None:
    session = sessions.create(federation)
    members = federation.enrol(session["id"], sessions.files(tmp_path), sessions.policy(session))
    federation.approve(session["id"])
    gone, *others = members
    assert gone.process is not None
    gone.process.kill()
    for hospital in others:
        # A member that comes after the deadline would correctly wait for the next run.
        wait_until(lambda p=hospital.process: "Approved" in p.words(), "it hears of its approval")
    run = start(federation, session["id"], deadline_s=5)
    ended = federation.follow(run, wait_s=60)
    assert (ended["status"], ended["code"]) == ("failed", "run.deadline")
    assert gone.name in ended["detail"]
    for hospital in others:
        assert hospital.name not in ended["detail"]
        process = hospital.process
        assert process is not None
        wait_until(lambda process=process: process.code() is not None, "it learns of the end")
        assert "run.deadline" in process.words()


def test_a_policy_that_forbids_an_algorithm_is_seen_by_the_admin(
    federation: Federation, tmp_path: Path
) -> None:
    session = sessions.create(federation)
    rules = sessions.policy(session, algorithms=["moments", "linear"])
    hospital, *_ = federation.enrol(session["id"], sessions.files(tmp_path), rules, start=False)
    process = hospital.process
    assert process is not None
    process.start()
    wait_until(lambda: process.code() is not None, "the hospital refuses")
    assert process.code() == 3
    (member,) = federation.admin("GET", f"/sessions/{session['id']}/members")
    assert member["refusal"]["code"].startswith("policy.")
    assert "exact" in member["refusal"]["detail"]
