"""A session of a number and a yes or no, from the first request to predictions of its model."""

from collections.abc import Iterator

import pytest

from client_sdk.simulation import simulate
from kernels.model.prediction import predict
from kernels.rounds.program import Program
from privacy.identity import Identity
from service.sessions import sessions
from tests.dealing import DEALING
from tests.kernels.rounds import every_kind
from tests.service.coordinator import Coordinator
from tests.service.programs import model_bytes
from tests.service.sites import Site, start, stored_model, work

SCHEMA = {
    "features": [
        {"kind": "numeric", "name": "age", "unit": "a", "lower": 0, "upper": 120},
        {"kind": "numeric", "name": "lactate", "unit": "mmol/l", "may_be_missing": True},
        {"kind": "categorical", "name": "ward", "levels": ["medical", "surgical"]},
    ],
    "targets": [
        {"name": "stay", "unit": "d"},
        {"kind": "binary", "name": "readmitted", "levels": ["no", "yes"], "event": "yes"},
    ],
}
STAGES = [
    {"algorithm": "moments", "parameters": {"min_sites": 3}},
    {"algorithm": "linear"},
    {"algorithm": "outcomes", "parameters": {"sums": 3}},
]
TABLES = every_kind.hospitals(3, rows=40)


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with Coordinator(tmp_path_factory.mktemp("data")) as coordinator:
        yield coordinator


def test_two_kinds_of_targets_from_joining_to_predicting(coordinator: Coordinator) -> None:
    session = coordinator.session(schema=SCHEMA, stages=STAGES, members=3)
    sites = []
    for number, table in enumerate(TABLES):
        name = f"site-{number}"
        sites.append(site := Site(coordinator, Identity.generate(), name, session, table))
        assert site.enrol(session, coordinator.invite(session, name)).status_code == 201
        approved = {"status": "approved"}
        path = f"/sessions/{session}/members/{name}"
        assert coordinator.admin("PATCH", path, approved).status_code == 200
    start(coordinator, session)
    work(sites)

    with coordinator.context.database.reading() as connection:
        program = Program.from_json(sessions.find(connection, session).program)
    model = simulate(program, TABLES, DEALING, secure=False).model
    assert stored_model(coordinator, sites[0]) == model_bytes(model)

    assert sites[0].outcome is not None
    served = sites[0].outcome["model"]
    columns = {"age": [61, 30], "lactate": [1.7, None], "ward": ["medical", "surgical"]}
    body = {"model": served, "columns": columns}
    answer = coordinator.admin("POST", "/predict", body).json()
    stay, readmitted = answer["targets"]
    expected = predict(model, columns)
    assert stay["mean"] == expected.mean[:, 0].tolist()
    assert readmitted["mean"] == expected.outcome("readmitted").mean.tolist()
    assert all(0 < each < 1 for each in readmitted["mean"])

    start(coordinator, session, "linear", model=served)
    work(sites)
    again = simulate(program, TABLES, DEALING, secure=False).model
    assert stored_model(coordinator, sites[0]) == model_bytes(again), "the same layers, refitted"
