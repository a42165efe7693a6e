"""Two coordinators on one PostgreSQL serve one run together, and each of them is killed once."""

import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.federation import Federation, Hospital, Process
from tests.e2e import sessions
from tests.e2e.warm import Warm
from tests.postgres import Postgres


@pytest.fixture
def federation(tmp_path: Path, postgres: Postgres) -> Iterator[Federation]:
    with postgres.database() as url:
        settings = {"VEILGP_DATABASE_URL": url, "VEILGP_LEASE_S": "2"}
        with Federation.started(
            tmp_path / "federation", environment=settings, launch=Warm
        ) as federation:
            yield federation


@pytest.fixture
def second(federation: Federation) -> Iterator[Federation]:
    """The same federation with its other coordinator, which has its own data directory."""
    with federation.replica() as second:
        yield second


def test_two_replicas_that_are_each_killed_once_give_the_same_model(
    federation: Federation, second: Federation, tmp_path: Path
) -> None:
    session = sessions.create(federation)
    members = federation.enrol(
        session["id"], sessions.files(tmp_path), sessions.policy(session), start=False
    )
    for hospital in members:
        hospital.process = _roaming((federation.port, second.port), hospital)
        hospital.process.start()
    federation.approve(session["id"])
    run = federation.admin(
        "POST", f"/sessions/{session['id']}/runs", {"kind": "train", "deadline_s": 300}
    )

    def sums(replica: Federation, least: int) -> int:
        def as_many(now: Mapping[str, Any]) -> bool:
            federation.check_hospitals()
            return bool(now["progress"]["sums"] >= least)

        seen = replica.follow_until(run["id"], as_many)
        return int(seen["progress"]["sums"])

    assert federation.coordinator is not None
    assert second.coordinator is not None
    sums(federation, 1)
    second.coordinator.kill()
    sums(federation, sums(federation, 0) + 1)
    _hold(members[0], signal.SIGSTOP)  # otherwise the run would end before the other is back
    second.restart_coordinator()
    _hold(members[0], signal.SIGCONT)
    before = sums(second, 3)
    federation.coordinator.kill()
    ended = second.follow(run["id"], wait_s=280)
    assert ended["progress"]["sums"] > before
    sessions.assert_same(
        sessions.trained(second, ended), sessions.simulated(session, sessions.homes_of(federation))
    )
    for own in ("coordinator", "replica"):
        assert list((federation.folder / own).iterdir()) == [], "all is in the database"


def _roaming(ports: tuple[int, int], hospital: Hospital) -> Process:
    assert hospital.process is not None
    joining = list(hospital.process.command)
    link, table = joining[joining.index("join") + 1 : joining.index("join") + 3]
    roster, policy = (joining[joining.index(o) + 1] for o in ("--roster", "--policy"))
    command = [sys.executable, "-m", "tests.e2e.roaming", ",".join(map(str, ports))]
    return replace(
        hospital.process, command=[*command, link, table, policy, roster, str(hospital.home)]
    )


def _hold(hospital: Hospital, how: signal.Signals) -> None:
    assert hospital.process is not None
    assert hospital.process.running is not None
    hospital.process.running.send_signal(how)
