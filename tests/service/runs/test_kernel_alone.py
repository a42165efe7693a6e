"""A session without a global layer (pFedGP): the hospitals train a kernel alone."""

from collections.abc import Iterator

import numpy as np
import pytest

from client_sdk.model.model import GlobalModel
from client_sdk.simulation import simulate
from kernels.errors import NotFitted
from kernels.rounds.in_words import KERNEL_ALONE, in_words
from kernels.rounds.program import Program
from kernels.rounds.site.site import Site as Rows
from privacy.identity import Identity
from service.sessions import sessions
from tests.dealing import DEALING
from tests.kernels.rounds import tables
from tests.service.coordinator import Coordinator
from tests.service.programs import model_bytes
from tests.service.sites import Site, start, stored_model, work

SCHEMA = {
    "features": [
        {"kind": "numeric", "name": "age", "unit": "a", "lower": 0, "upper": 120},
        {"kind": "numeric", "name": "lactate", "unit": "mmol/l", "may_be_missing": True},
        {"kind": "categorical", "name": "ward", "levels": ["medical", "surgical"]},
    ],
    "targets": [{"name": "stay", "unit": "d"}],
}
STAGES = [
    {"algorithm": "moments", "parameters": {"min_sites": 3}},
    {"algorithm": "fedavg", "parameters": {"rounds": 2, "local_steps": 2}},
]
TABLES = tables.tables(3, rows=60)


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with Coordinator(tmp_path_factory.mktemp("data")) as coordinator:
        yield coordinator


def test_a_kernel_alone_is_trained_stored_fetched_and_made_personal(
    coordinator: Coordinator,
) -> None:
    session = coordinator.session(schema=SCHEMA, stages=STAGES, members=3)
    sites = []
    for number, table in enumerate(TABLES):
        name = f"site-{number}"
        sites.append(site := Site(coordinator, Identity.generate(), name, session, table))
        assert site.enrol(session, coordinator.invite(session, name)).status_code == 201
        path = f"/sessions/{session}/members/{name}"
        assert coordinator.admin("PATCH", path, {"status": "approved"}).status_code == 200
    start(coordinator, session)
    work(sites)

    with coordinator.context.database.reading() as connection:
        program = Program.from_json(sessions.find(connection, session).program)
    assert KERNEL_ALONE in in_words(program, blind=True)
    trained = simulate(program, TABLES, DEALING, secure=False)
    assert stored_model(coordinator, sites[0]) == model_bytes(trained.model)

    # The coordinator has it, and says what it is for; it predicts nothing.
    assert sites[0].outcome is not None
    served = sites[0].outcome["model"]
    card = coordinator.admin("GET", f"/models/{served}").json()
    assert (card["methods"], card["layer"], card["rows"]) == ([], [], 0)
    columns = {"age": [61, 30], "lactate": [1.7, None], "ward": ["medical", "surgical"]}
    answer = coordinator.admin("POST", "/predict", {"model": served, "columns": columns})
    assert answer.json()["code"] == "model.not_fitted"
    assert "veilgp personal" in answer.json()["detail"]
    (listed,) = coordinator.admin("GET", "/models").json()
    assert listed["methods"] == []

    # A hospital has it, and its own model from it.
    data = coordinator.admin("GET", f"/models/{served}/artifact").content
    model = GlobalModel.from_artifact(data, card, expected_id=served)
    with pytest.raises(NotFitted, match=r"model\.personal"):
        model.predict(columns)
    assert "none: a kernel without a layer" in repr(model.card)
    own = Rows.of_table(program.schema, TABLES[0], held_out=program.held_out, dealing=DEALING)
    personal, expected = model.personal(own), trained.personal(TABLES[0])
    assert personal.gain is None
    assert np.array_equal(personal.predict(columns).mean, expected.predict(columns).mean)
    lower, upper = personal.intervals(columns)["stay"]
    assert bool((lower < upper).all())
