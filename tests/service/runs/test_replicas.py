"""Replicas on one PostgreSQL share the work with leases, and wake each other's members."""

import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Self

import pytest
from sqlalchemy import select

from service import sample
from service.database import notices
from service.database.database import Database
from service.database.notices import NoticeListener
from service.database.tables import leases
from service.http.tokens import Role, issue
from service.runs.leases import Leases
from service.settings import Settings
from tests.postgres import Postgres
from tests.service.coordinator import Clock, Coordinator
from tests.service.programs import TINY, model_bytes, simulated
from tests.service.sites import runs_of, session_of, start, stop_engine, stored_model, until
from tests.stores import Store


@pytest.fixture
def two(postgres: Postgres, tmp_path: Path) -> Iterator[tuple[Coordinator, Coordinator]]:
    """Two replicas with one clock and without running engines."""
    with (
        postgres.database() as url,
        Coordinator(tmp_path / "a", database_url=url) as one,
        Coordinator(tmp_path / "b", database_url=url) as other,
    ):
        other.clock.now = one.clock.now
        one.token = other.token
        for each in (one, other):
            stop_engine(each)
        yield one, other


def leases_of(coordinator: Coordinator, owner: str, seconds: float = 10) -> Leases:
    return Leases(coordinator.context.database, coordinator.clock, owner=owner, seconds=seconds)


def test_a_lease_is_one_replicas_until_it_is_given_back(
    two: tuple[Coordinator, Coordinator],
) -> None:
    one, other = two
    run = start(one, session_of(one)[0].session)
    with leases_of(one, "one").held(run) as ours:
        assert ours
        with leases_of(other, "other").held(run) as theirs:
            assert not theirs
    with leases_of(other, "other").held(run) as theirs:
        assert theirs


def test_a_lease_of_a_silent_replica_ends_and_its_return_does_not_take_it_back(
    two: tuple[Coordinator, Coordinator],
) -> None:
    one, other = two
    run = start(one, session_of(one)[0].session)
    silent = leases_of(one, "one", seconds=1e6)  # so long that it is not renewed during the test
    with silent.held(run) as ours:
        assert ours
        other.clock.now += 1e6 + 1
        with leases_of(other, "other").held(run) as theirs:
            assert theirs
            silent._end_at(run, 1e12)
            with other.context.database.reading() as connection:
                assert connection.execute(select(leases.c.owner)).scalar_one() == "other"


def test_a_lease_is_renewed_while_its_owner_computes(two: tuple[Coordinator, Coordinator]) -> None:
    one, _ = two
    run = start(one, session_of(one)[0].session)

    def ends_at() -> float:
        with one.context.database.reading() as connection:
            return float(connection.execute(select(leases.c.until)).scalar_one())

    with leases_of(one, "one", seconds=0.3).held(run):
        first = ends_at()
        one.clock.now += 100
        while ends_at() < first + 100:
            pass


def test_a_step_that_another_replica_computes_is_left_to_it(
    two: tuple[Coordinator, Coordinator],
) -> None:
    one, other = two
    sites = session_of(one)
    run = start(one, sites[0].session)
    until(sites, "certificate", run)
    for site in sites:
        assert site.work()
    progress = runs_of(one).progress(run)
    assert progress is not None
    with leases_of(other, runs_of(other).replica).held(run):
        runs_of(one).advance(run)
        assert runs_of(one).progress(run) == progress
        runs_of(other).advance(run)
    after = runs_of(one).progress(run)
    assert after is not None
    assert after.sums == progress.sums + 1


def test_two_that_compute_one_step_give_the_model_of_one(
    two: tuple[Coordinator, Coordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if clocks were far apart: leases save work, versions ensure correctness."""
    monkeypatch.setattr(Leases, "_take", lambda *_: True)
    one, _ = two
    sites = session_of(one)
    run = start(one, sites[0].session)
    while any(site.outcome is None for site in sites):
        for site in sites:
            site.work()
        both = [Thread(target=runs_of(each).advance, args=(run,)) for each in two]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
    assert stored_model(one, sites[0]) == model_bytes(simulated(TINY))


class Ear:
    """A replica's listener that is known to receive notices."""

    def __init__(self, own: Coordinator, another: Coordinator) -> None:
        self.told: Queue[str] = Queue()
        self._another = another
        self._listener = NoticeListener(
            own.context.database, self.told.put, own=runs_of(own).replica
        )

    def __enter__(self) -> Self:
        self._listener.start()
        while self.told.empty():
            tell(self._another, "knock")
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.stop()

    def next(self) -> str:
        while (told := self.told.get(timeout=60)) == "knock":
            continue
        return told


def tell(replica: Coordinator, session: str) -> None:
    with replica.context.database.changing() as connection:
        notices.notify(connection, session, sender=runs_of(replica).replica)


def test_a_replica_hears_what_another_has_committed_and_not_itself(
    two: tuple[Coordinator, Coordinator],
) -> None:
    one, other = two
    with Ear(other, one) as ear:
        with one.context.database.engine.connect() as connection:
            notices.notify(connection, "undone")
            connection.rollback()
        tell(other, "own")
        tell(one, "news")
        assert ear.next() == "news"


def test_starting_and_ending_a_run_at_one_replica_is_heard_at_the_other(
    two: tuple[Coordinator, Coordinator],
) -> None:
    one, other = two
    session = session_of(one)[0].session
    with Ear(other, one) as ear:
        run = start(one, session)
        assert ear.next() == session
        runs_of(one).cancel(run)
        assert ear.next() == session
        run = start(one, session)
        assert ear.next() == session
        runs_of(one).give_up(run, "run.internal", "")
        assert ear.next() == session


def test_each_replica_limits_callers_by_itself(postgres: Postgres, tmp_path: Path) -> None:
    with postgres.database() as url:
        settings: Store = {"database_url": url, "caller_rows_per_minute": 1}
        with (
            Coordinator(tmp_path / "a", **settings) as one,
            Coordinator(tmp_path / "b", **settings) as other,
        ):
            now = other.clock.now = one.clock.now
            with one.context.database.changing() as connection:
                sample.seed(connection, now=now)
                caller = issue(connection, Role.CALLER, "ward", now=now, models=[sample.ALIAS])
            body = {"model": sample.ALIAS, "records": sample.PATIENTS[:1]}
            asked = [
                each.bearer(caller.secret, "POST", "/predict", body) for each in (one, one, other)
            ]
            assert [answer.status_code for answer in asked] == [200, 429, 200]


def test_one_process_on_sqlite_needs_no_lease(tmp_path: Path) -> None:
    """Otherwise it would wait for the lease that it held when it was killed."""
    database = Database(Settings(data_dir=tmp_path).url)
    with Leases(database, Clock(), owner="one", seconds=1).held("no table at all") as ours:
        assert ours
