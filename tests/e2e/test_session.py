"""Whole sessions over real processes, through real crashes: the same model, bit for bit."""

import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.federation import Federation, Hospital, Process, wait_until
from kernels.layer.statistics import Statistics
from kernels.rounds.site.site import Part, Site
from tests.e2e import sessions
from tests.e2e.warm import Warm
from tests.stores import EVERY_STORE, Store


@pytest.fixture
def federation(tmp_path: Path, store: Store) -> Iterator[Federation]:
    settings = {f"VEILGP_{name.upper()}": value for name, value in store.items()}
    with Federation.started(
        tmp_path / "federation", environment=settings, launch=Warm
    ) as federation:
        yield federation


def _killed_at(point: str, hospital: Hospital, joining: Process) -> Process:
    command = list(joining.command)
    link, table = command[command.index("join") + 1 : command.index("join") + 3]
    roster, policy = (command[command.index(o) + 1] for o in ("--roster", "--policy"))
    mortal = [sys.executable, "-m", "tests.e2e.hospital", point, link, table, policy, roster]
    return replace(joining, command=[*mortal, str(hospital.home)])


def start(federation: Federation, session: str, **body: object) -> str:
    run: str = federation.admin("POST", f"/sessions/{session}/runs", {"kind": "train", **body})[
        "id"
    ]
    return run


POINTS = (
    ["advert:1:after", "reveal:2:after"],
    ["boxes:1:before", "certify:2:before"],
    ["upload:2:after", "upload:1:before"],
)


@EVERY_STORE
def test_hospitals_killed_at_each_stage_of_a_sum_go_on_to_the_pooled_model(
    federation: Federation, tmp_path: Path
) -> None:
    session = sessions.create(federation)
    members = federation.enrol(
        session["id"], sessions.files(tmp_path), sessions.policy(), start=False
    )
    lives: dict[str, list[Process]] = {}
    for hospital, points in zip(members, POINTS, strict=True):
        assert hospital.process is not None
        mortal = [_killed_at(point, hospital, hospital.process) for point in points]
        hospital.process, *lives[hospital.name] = [*mortal, hospital.process]
        hospital.process.start()
    federation.approve(session["id"])
    run = start(federation, session["id"], deadline_s=300)

    def restart_the_dead(_: object) -> None:
        for hospital in members:
            assert hospital.process is not None
            # Asked once: it may die between two questions.
            code = hospital.process.code()
            assert code in (None, 0, -signal.SIGKILL), hospital.process.words()[-3000:]
            if code == -signal.SIGKILL:
                hospital.process = lives[hospital.name].pop(0)
                hospital.process.start()

    model = sessions.trained(federation, federation.follow(run, seen=restart_the_dead, wait_s=280))
    assert not any(lives.values()), "each was killed twice"
    sessions.assert_same(model, sessions.simulated(session))
    whole = Site.of_table(model.schema, sessions.pooled_table(), held_out=0.2, seed=sessions.SEED)
    pooled = Statistics.of_table(model.urk, *whole.table(Part.TRAINING, model))
    assert model.statistics is not None
    for ours, theirs in (
        (model.statistics.scatter, pooled.scatter),
        (model.statistics.cross, pooled.cross),
    ):
        assert torch.dist(ours, theirs) <= 1e-6 * theirs.norm()


# On PostgreSQL it is killed in test_replicas.py.
def test_a_coordinator_killed_five_times_gives_the_same_model(
    federation: Federation, tmp_path: Path
) -> None:
    session = sessions.create(federation)
    federation.enrol(session["id"], sessions.files(tmp_path), sessions.policy())
    federation.approve(session["id"])
    run = start(federation, session["id"], deadline_s=300)
    moments = random.Random(5)
    kills = 0

    def kill() -> None:
        nonlocal kills
        for _ in range(5):
            time.sleep(moments.uniform(0.1, 0.6))
            assert federation.coordinator is not None
            federation.coordinator.kill()
            kills += 1
            federation.restart_coordinator()

    killer = threading.Thread(target=kill)
    killer.start()
    ended = federation.follow(run, wait_s=280)
    killer.join()
    assert kills == 5
    sessions.assert_same(sessions.trained(federation, ended), sessions.simulated(session))


def test_a_member_that_never_returns_ends_the_run_at_its_deadline(
    federation: Federation, tmp_path: Path
) -> None:
    session = sessions.create(federation)
    members = federation.enrol(session["id"], sessions.files(tmp_path), sessions.policy())
    federation.approve(session["id"])
    gone, *others = members
    assert gone.process is not None
    gone.process.kill()
    for hospital in others:
        # One that came after the deadline would wait for the next run, and rightly.
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
    rules = sessions.policy(algorithms=["moments", "linear"])
    hospital, *_ = federation.enrol(session["id"], sessions.files(tmp_path), rules, start=False)
    process = hospital.process
    assert process is not None
    process.start()
    wait_until(lambda: process.code() is not None, "the hospital refuses")
    assert process.code() == 3
    (member,) = federation.admin("GET", f"/sessions/{session['id']}/members")
    assert member["refusal"]["code"].startswith("policy.")
    assert "exact" in member["refusal"]["detail"]
