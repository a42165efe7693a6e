"""A caller can use the models that its token lists, until it is revoked or expires."""

import pytest
from sqlalchemy import insert

from service.database import tables
from service.http.access import Caller, Reader
from tests.service.coordinator import Coordinator, Hospital


@pytest.fixture
def session(coordinator: Coordinator) -> str:
    """Return a session with the models m1 and m2."""
    session = coordinator.session()
    with coordinator.context.database.changing() as connection:
        for name in ("m1", "m2"):
            connection.execute(
                insert(tables.models).values(
                    id=name, session_id=session, run_id="r", card="", artifact=b"", created_at=0.0
                )
            )
        connection.execute(insert(tables.aliases).values(alias="best", model_id="m2", set_at=0.0))

    @coordinator.app.get("/probe/use/{model}")
    def use(model: str, caller: Caller) -> bool:
        return caller.allows(model)

    @coordinator.app.get("/probe/read/{model}")
    def read(model: str, reader: Reader) -> bool:
        return reader.allows(model, session_id=session)

    return session


def issue(coordinator: Coordinator, *models: str, **more: int) -> dict[str, str]:
    answer = coordinator.admin("POST", "/callers", {"name": "ward", "models": models, **more})
    assert answer.status_code == 201, answer.text
    made: dict[str, str] = answer.json()
    return made


def test_a_caller_has_the_models_that_it_names(coordinator: Coordinator, session: str) -> None:
    token = issue(coordinator, "m1", "best")["token"]
    assert token.startswith("vgp_caller_")
    allowed = {m: coordinator.bearer(token, "GET", f"/probe/use/{m}").json() for m in ("m1", "m2")}
    assert allowed == {"m1": True, "m2": False}
    assert coordinator.bearer(token, "GET", "/probe/use/best").json() is True
    assert coordinator.admin("GET", "/probe/use/m2").json() is True
    assert coordinator.bearer(token, "GET", "/probe/read/m2").json() is False


def test_members_read_the_models_of_their_sessions(coordinator: Coordinator, session: str) -> None:
    hospital, stranger = coordinator.approved(session, "Kiel"), Hospital(coordinator)
    assert hospital.send("GET", "/probe/read/m1").json() is True
    assert hospital.send("GET", "/probe/use/m1").status_code == 401
    other = coordinator.approved(coordinator.session(name="Another"), "Bonn")
    assert other.send("GET", "/probe/read/m1").json() is False
    assert stranger.send("GET", "/probe/read/m1").status_code == 404
    header = hospital.header("GET", "/probe/read/m1")
    assert hospital.forward("GET", "/probe/read/m1", header).status_code == 200
    assert hospital.forward("GET", "/probe/read/m1", header).status_code == 401
    path = f"/sessions/{session}/members/Kiel"
    assert coordinator.admin("PATCH", path, {"status": "suspended"}).status_code == 200
    assert hospital.send("GET", "/probe/read/m1").status_code == 404


def test_a_callers_token_ends(coordinator: Coordinator, session: str) -> None:
    kept, revoked = issue(coordinator, "m1", expires_in_s=60), issue(coordinator, "m1")
    assert coordinator.admin("DELETE", f"/callers/{revoked['id']}").status_code == 204
    assert coordinator.bearer(revoked["token"], "GET", "/probe/use/m1").status_code == 401
    assert coordinator.bearer(kept["token"], "GET", "/probe/use/m1").status_code == 200
    coordinator.clock.now += 60
    assert coordinator.bearer(kept["token"], "GET", "/probe/use/m1").status_code == 401
    listed = coordinator.admin("GET", "/callers")
    assert [each["models"] for each in listed.json()] == [["m1"], ["m1"]]
    assert "vgp_" not in listed.text


def test_a_caller_cannot_name_what_is_not_there(coordinator: Coordinator, session: str) -> None:
    answer = coordinator.admin("POST", "/callers", {"name": "ward", "models": ["m1", "m9"]})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert "'m9'" in answer.json()["detail"]
    assert coordinator.admin("DELETE", "/callers/x").status_code == 404


def test_an_admins_token_cannot_be_revoked_as_a_callers(coordinator: Coordinator) -> None:
    with coordinator.context.database.reading() as connection:
        (row,) = connection.execute(tables.tokens.select())
    assert coordinator.admin("DELETE", f"/callers/{row.id}").status_code == 404
    assert coordinator.admin("GET", "/callers").status_code == 200
