"""The coordinator never loses what it has acknowledged, whenever it dies."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from httpx import Response
from sqlalchemy import event

from service.runs.machine.run import Run
from tests.service.coordinator import Coordinator
from tests.service.programs import TINY, model_bytes, simulated
from tests.service.sites import (
    Site,
    advance,
    loaded,
    lose_memory,
    runs_of,
    session_of,
    start,
    stop_engine,
    stored_model,
)
from tests.stores import EVERY_STORE, Store

pytestmark = EVERY_STORE


@pytest.fixture
def coordinator(tmp_path: Path, store: Store) -> Iterator[Coordinator]:
    with Coordinator(tmp_path, **store) as coordinator:
        stop_engine(coordinator)
        yield coordinator


def told(run: Run) -> tuple[object, ...]:
    """Return the whole state of a run, without the vector of a sum whose total has been used."""
    epoch = run.epoch.state()
    if run.position.finished:
        sums = (replace(each, total=b"", unmasked=True) for each in epoch.summations)
        epoch = replace(epoch, summations=tuple(sums))
    return (
        epoch,
        run.position.stage,
        run.position.encoded,
        run.sums,
        run.since,
        run.repairing,
        run.status,
        run.plan.text,
    )


def test_a_coordinator_that_dies_between_any_two_requests_gives_the_same_model(
    coordinator: Coordinator,
) -> None:
    class Mortal(Site):
        def header(self, method: str, target: str, body: bytes = b"") -> str:
            lose_memory(self.coordinator)
            return super().header(method, target, body)

    sites = session_of(coordinator, site=Mortal)
    run = start(coordinator, sites[0].session)
    while any(site.outcome is None for site in sites):
        for site in sites:
            site.work()
        lose_memory(coordinator)
        advance(coordinator, run)
    assert stored_model(coordinator, sites[0]) == model_bytes(simulated(TINY))


class Died(BaseException):
    """The coordinator's process ends here."""


def test_a_coordinator_that_dies_in_the_middle_of_requests_gives_the_same_model(
    coordinator: Coordinator,
) -> None:
    """It dies before a commit, so that the request has no effect, or before the answer is sent."""
    dice = random.Random(1)
    deaths = {"before a commit": 0, "before an answer": 0}

    def maybe_die(when: str) -> None:
        if dice.random() < 0.2:
            deaths[when] += 1
            raise Died

    class Unanswered(Site):
        def forward(self, *request: object, **more: object) -> Response:
            response = super().forward(*request, **more)
            maybe_die("before an answer")
            return response

        def post(self, *request: object, **more: object) -> Response:
            response = super().post(*request, **more)
            maybe_die("before an answer")
            return response

    sites = session_of(coordinator, site=Unanswered)
    run = start(coordinator, sites[0].session, deadline_s=24 * 3600)
    engine = coordinator.context.database.engine
    event.listen(engine, "commit", lambda _: maybe_die("before a commit"))
    for _ in range(1000):
        for act in (*(site.work for site in sites), lambda: advance(coordinator, run)):
            try:
                act()
            except Died:
                lose_memory(coordinator)
                # The work of a dead replica is free when its lease has ended.
                coordinator.clock.now += coordinator.context.settings.lease_s
        if all(site.outcome is not None for site in sites):
            break
    assert min(deaths.values()) > 10, deaths
    assert stored_model(coordinator, sites[0]) == model_bytes(simulated(TINY))


def test_a_run_read_from_its_rows_is_the_run_in_memory(coordinator: Coordinator) -> None:
    sites = session_of(coordinator)
    run = start(coordinator, sites[0].session)
    compared = 0
    while any(site.outcome is None for site in sites):
        for site in sites:
            site.work()
            if site.outcome is None and runs_of(coordinator).progress(run) is not None:
                with runs_of(coordinator).live.looking(run) as (live, _):
                    assert told(live) == told(loaded(coordinator, run))
                compared += 1
        advance(coordinator, run)
    assert compared > 30


def test_a_closed_application_goes_on_where_it_was(tmp_path: Path, store: Store) -> None:
    with Coordinator(tmp_path / "one", **store) as first:
        sites = session_of(first)
        start(first, sites[0].session)
        for _ in range(4):
            for site in sites:
                site.work(wait=0.1)
    with Coordinator(tmp_path / "one", **store) as second:
        for site in sites:
            site.coordinator = second
        while any(site.outcome is None for site in sites):
            for site in sites:
                site.work(wait=0.1)
        assert stored_model(second, sites[0]) == model_bytes(simulated(TINY))


def test_another_replicas_change_is_seen(
    coordinator: Coordinator, tmp_path: Path, store: Store
) -> None:
    with Coordinator(tmp_path, **store) as replica:
        stop_engine(replica)
        coordinator.token = replica.token
        sites = session_of(coordinator)
        run = start(coordinator, sites[0].session)
        turn = 0
        while any(site.outcome is None for site in sites):
            for site in sites:
                here, there = (coordinator, replica)[:: 1 if turn % 2 else -1]
                turn += 1
                assert turn < 500
                site.coordinator = here
                item = site.next()
                site.coordinator = there
                if item is not None:
                    site.answer(item)
            advance(here, run)
        assert stored_model(replica, sites[0]) == model_bytes(simulated(TINY))
