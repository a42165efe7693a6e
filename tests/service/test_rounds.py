"""A run over HTTP: the numbers of a simulation, through crashes, repeats and nonsense."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from client_sdk.simulation import simulate
from kernels.rounds import evaluation, exact, linear, moments, recalibration, storage
from kernels.rounds.program import Program
from service import models
from tests.rounds import tables
from tests.service.coordinator import Coordinator
from tests.service.sites import Site, session_of, start, work

PROGRAM = Program(
    tables.SCHEMA,
    tables.KERNEL,
    (
        moments.Spec(),
        exact.Spec(steps=2, penalties=(3.0,)),
        linear.Spec(),
        recalibration.Spec(min_rows=1),
        evaluation.Spec(),
    ),
    max_rows=1000,
    held_out=0.4,
)
SHORT = Program(
    tables.SCHEMA, tables.KERNEL, (moments.Spec(), linear.Spec()), max_rows=1000, held_out=0.0
)
TABLES = tables.tables(3)


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    with Coordinator(tmp_path) as coordinator:
        yield coordinator


def model_bytes(coordinator: Coordinator, site: Site) -> bytes:
    assert site.outcome is not None
    assert site.outcome["status"] == "done", site.outcome
    with coordinator.context.database.reading() as connection:
        return models.artifact(connection, site.outcome["model"])


def simulated(program: Program, **more: Any) -> bytes:
    # As every site reads it: a bound of 0 is 0.0 after JSON.
    read = Program.from_json(program.to_json())
    return storage.encode(simulate(read, TABLES, 1, secure=False, **more).model)


def test_a_run_gives_the_model_of_a_simulation_to_the_last_bit(coordinator: Coordinator) -> None:
    sites = session_of(coordinator, PROGRAM, TABLES)
    run = start(coordinator, sites[0].session)
    work(sites)
    assert model_bytes(coordinator, sites[0]) == simulated(PROGRAM)
    shown = coordinator.admin("GET", f"/runs/{run}").json()
    assert shown["status"] == "done"
    assert shown["progress"]["sums"] == 2 + 2 * 2 + 1 + 1 + 1
    assert [each["step"] for each in shown["metrics"]] == [0, 1]
