"""Models: stored once, named, renamed at once, deleted permanently; visible only with access."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import func, select, update

from kernels.model.artifact import Artifact
from kernels.model.card import Card
from kernels.model.model import Model
from service import models
from service.database import tables
from service.errors import NotFound
from service.http.access import ModelAccess
from service.prediction.loaded_models import LoadedModels
from tests.kernels.rounds import artifacts
from tests.service.coordinator import Coordinator
from tests.service.stored import add_caller, add_member, add_model, add_session, later

RECORDS = [{"age": 61, "lactate": None, "ward": "medical"}]
EVERYTHING = ModelAccess(everything=True)


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    with Coordinator(tmp_path, most_membership_auc=1, models_in_memory=2) as coordinator:
        yield coordinator


def served(coordinator: Coordinator, token: str, name: str) -> str | int:
    """Return the id of the model that answered, or the status of the refusal."""
    response = coordinator.bearer(token, "POST", "/predict", {"model": name, "records": RECORDS})
    found: str | int = response.json().get("model", response.status_code)
    return found


def point(coordinator: Coordinator, alias: str, model: str) -> int:
    return coordinator.admin("PUT", f"/models/aliases/{alias}", {"model": model}).status_code


def test_the_same_model_twice_is_one(coordinator: Coordinator) -> None:
    session = add_session(coordinator)
    first = add_model(coordinator, session_id=session)
    assert add_model(coordinator, session_id=session) == first
    with coordinator.context.database.reading() as connection:
        assert connection.execute(select(func.count()).select_from(tables.models)).scalar() == 1


def test_card_and_artifact_are_the_models_own(coordinator: Coordinator) -> None:
    model = add_model(coordinator)
    card = coordinator.admin("GET", f"/models/{model}")
    data = coordinator.admin("GET", f"/models/{model}/artifact")
    assert data.headers["content-type"] == "application/octet-stream"
    read = Artifact.from_bytes(data.content, Card.from_json(card.text), expected_id=model)
    assert read.card == artifacts.artifact().card
    assert data.content == artifacts.artifact().to_bytes()


def test_the_list_has_the_newest_first_with_their_aliases(coordinator: Coordinator) -> None:
    old = add_model(coordinator)
    coordinator.clock.now += 60
    new = add_model(coordinator, later(artifacts.artifact()))
    for alias in ("stay", "best"):
        assert point(coordinator, alias, new) == 200
    listed = coordinator.admin("GET", "/models").json()
    assert [(each["id"], each["aliases"]) for each in listed] == [
        (new, ["best", "stay"]),
        (old, []),
    ]
    assert listed[0]["created_at"] > listed[1]["created_at"]


def test_an_alias_points_elsewhere_at_once(coordinator: Coordinator) -> None:
    old, new = add_model(coordinator), add_model(coordinator, later(artifacts.artifact()))
    token = add_caller(coordinator, "stay")
    assert served(coordinator, token, "stay") == 404
    for model in (old, new, old):
        assert point(coordinator, "stay", model) == 200
        assert served(coordinator, token, "stay") == model
    assert coordinator.admin("DELETE", "/models/aliases/stay").status_code == 204
    assert served(coordinator, token, "stay") == 404
    assert coordinator.admin("DELETE", "/models/aliases/stay").status_code == 404


@pytest.mark.parametrize(
    "alias", ["-stay", ".stay", "a b", "é", "a" * 101, "0123456789abcdef" * 4, "%00", "a%0A"]
)
def test_what_cannot_be_an_alias(coordinator: Coordinator, alias: str) -> None:
    model = add_model(coordinator)
    response = coordinator.admin("PUT", f"/models/aliases/{alias}", {"model": model})
    assert (response.status_code, response.json()["code"]) == (422, "alias.invalid")


def test_an_alias_of_nothing_is_refused_and_the_old_one_stays(coordinator: Coordinator) -> None:
    model = add_model(coordinator)
    assert point(coordinator, "stay", model) == 200
    for nothing in ("0" * 64, "stay", "other"):  # an alias points at a model, not at an alias
        assert point(coordinator, "stay", nothing) == 404
    assert served(coordinator, coordinator.token, "stay") == model


def test_a_deleted_model_is_gone_at_once_with_its_aliases(coordinator: Coordinator) -> None:
    model, other = add_model(coordinator), add_model(coordinator, later(artifacts.artifact()))
    token = add_caller(coordinator, model, "stay")
    assert point(coordinator, "stay", model) == point(coordinator, "rest", other) == 200
    assert served(coordinator, token, "stay") == model
    assert coordinator.admin("DELETE", "/models/stay").status_code == 404  # by its id only
    assert coordinator.admin("DELETE", f"/models/{model}").status_code == 204
    for name in (model, "stay"):
        assert served(coordinator, token, name) == 404
        assert coordinator.bearer(token, "GET", f"/models/{name}").status_code == 404
    assert coordinator.admin("DELETE", f"/models/{model}").status_code == 404
    assert served(coordinator, coordinator.token, "rest") == other
    # After it is stored again, the token that lists its id may use it again.
    assert add_model(coordinator) == model
    assert served(coordinator, token, model) == model
    assert served(coordinator, token, "stay") == 404


def test_a_caller_uses_the_models_of_its_token_by_any_name_and_no_other(
    coordinator: Coordinator,
) -> None:
    own, other = add_model(coordinator), add_model(coordinator, later(artifacts.artifact()))
    by_id, by_alias = add_caller(coordinator, own), add_caller(coordinator, "stay")
    assert point(coordinator, "stay", own) == 200
    for token in (by_id, by_alias):
        for name in (own, "stay"):
            assert served(coordinator, token, name) == own
            assert coordinator.bearer(token, "GET", f"/models/{name}").status_code == 200
            assert coordinator.bearer(token, "GET", f"/models/{name}/artifact").status_code == 200
        hidden = coordinator.bearer(token, "GET", f"/models/{other}")
        absent = coordinator.bearer(token, "GET", f"/models/{'0' * 64}")
        assert hidden.status_code == absent.status_code == 404
        assert hidden.json()["detail"].replace(other, "0" * 64) == absent.json()["detail"]
        assert served(coordinator, token, other) == 404
    # When the alias points at another model, a token that lists the alias may use that model.
    assert point(coordinator, "stay", other) == 200
    assert served(coordinator, by_alias, own) == 404
    assert served(coordinator, by_id, "stay") == 404
    assert served(coordinator, by_alias, other) == served(coordinator, by_alias, "stay") == other


def test_only_an_admin_lists_names_and_deletes(coordinator: Coordinator) -> None:
    model = add_model(coordinator)
    token = add_caller(coordinator, model)
    for method, path, body in (
        ("GET", "/models", None),
        ("PUT", "/models/aliases/stay", {"model": model}),
        ("DELETE", "/models/aliases/stay", None),
        ("DELETE", f"/models/{model}", None),
    ):
        assert coordinator.bearer(token, method, path, body).status_code == 403
        assert coordinator.request(method, path, json=body).status_code == 401
    assert served(coordinator, token, model) == model


def test_a_member_reads_the_models_of_its_sessions_and_no_other(coordinator: Coordinator) -> None:
    session, elsewhere = add_session(coordinator), add_session(coordinator)
    own = add_model(coordinator, session_id=session)
    other = add_model(coordinator, later(artifacts.artifact()), session_id=elsewhere)
    member = add_member(coordinator, session)
    for path in (own, f"{own}/artifact"):
        assert member.send("GET", f"/models/{path}").status_code == 200
    for path in (other, f"{other}/artifact", "0" * 64):
        assert member.send("GET", f"/models/{path}").status_code == 404
    for status in ("pending", "suspended"):
        stranger = add_member(coordinator, session, status)
        assert stranger.send("GET", f"/models/{own}").status_code == 404


def test_a_member_gets_its_own_model_however_small(tmp_path: Path) -> None:
    with Coordinator(tmp_path, most_membership_auc=0.5) as coordinator:
        session = add_session(coordinator)
        model = add_model(coordinator, session_id=session)
        member = add_member(coordinator, session)
        assert member.send("GET", f"/models/{model}/artifact").status_code == 200


def test_a_damaged_model_does_not_predict(coordinator: Coordinator) -> None:
    model = add_model(coordinator)
    data = bytearray(artifacts.artifact().to_bytes())
    data[-1] ^= 1
    with coordinator.context.database.changing() as connection:
        connection.execute(update(tables.models).values(artifact=bytes(data)))
    body = {"model": model, "records": RECORDS}
    response = coordinator.admin("POST", "/predict", body)
    assert (response.status_code, response.json()["code"]) == (500, "model.damaged")
    with coordinator.context.database.changing() as connection:
        connection.execute(update(tables.models).values(artifact=artifacts.artifact().to_bytes()))
    assert served(coordinator, coordinator.token, model) == model


def test_more_models_than_memory_holds_are_all_served(coordinator: Coordinator) -> None:
    names = [add_model(coordinator, later(artifacts.artifact(), days)) for days in range(4)]
    for name in (*names, *reversed(names)):
        assert served(coordinator, coordinator.token, name) == name
    assert len(coordinator.app.state.predictor._models) == 2


def test_while_an_alias_moves_and_models_go_every_answer_is_one_models(
    coordinator: Coordinator,
) -> None:
    """Readers in threads: the alias always refers to a model that exists."""
    database = coordinator.context.database
    ids = [add_model(coordinator, later(artifacts.artifact(), days)) for days in range(3)]
    assert point(coordinator, "stay", ids[0]) == 200
    stop = threading.Event()

    def read() -> list[str]:
        seen = []
        while not stop.is_set():
            with database.reading() as connection:
                seen.append(models.resolve(connection, "stay", EVERYTHING))
        return seen

    def move() -> None:
        try:
            for turn in range(60):
                with database.changing(lasting=False) as connection:
                    models.point(connection, "stay", ids[turn % 2], now=float(turn))
                if turn == 30:
                    with database.changing(lasting=False) as connection:
                        models.remove(connection, ids[2])
        finally:
            stop.set()

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        pool.submit(move).result()
        seen = {each for reader in readers for each in reader.result()}
    assert seen == set(ids[:2])


def test_pointing_at_a_model_and_deleting_it_at_once_leaves_no_dangling_alias(
    coordinator: Coordinator,
) -> None:
    database = coordinator.context.database
    for _ in range(10):
        model = add_model(coordinator)
        together = threading.Barrier(2)

        def point_at(model: str = model, together: threading.Barrier = together) -> None:
            together.wait()
            with database.changing(lasting=False) as connection:
                models.point(connection, "stay", model, now=0.0)

        def delete(model: str = model, together: threading.Barrier = together) -> None:
            together.wait()
            with database.changing(lasting=False) as connection:
                models.remove(connection, model)

        with ThreadPoolExecutor(2) as pool:
            pointing, deleting = pool.submit(point_at), pool.submit(delete)
            deleting.result()
            assert pointing.exception() is None or isinstance(pointing.exception(), NotFound)
        with database.reading() as connection:
            assert not connection.execute(select(tables.aliases)).all()


def test_threads_that_want_a_model_read_it_once() -> None:
    loaded, calls = LoadedModels(2), []
    model = artifacts.artifact().model
    together = threading.Barrier(4)

    def load() -> Model:
        calls.append(1)
        return model

    def get() -> Model:
        together.wait()
        return loaded.get("id", load)

    with ThreadPoolExecutor(4) as pool:
        found = [future.result() for future in [pool.submit(get) for _ in range(4)]]
    assert len(calls) == 1
    assert all(each is model for each in found)


def test_a_model_that_could_not_be_read_is_read_again() -> None:
    loaded = LoadedModels(2)

    def fail() -> Model:
        raise NotFound("not yet")

    with pytest.raises(NotFound):
        loaded.get("id", fail)
    assert len(loaded) == 0
    model = artifacts.artifact().model
    assert loaded.get("id", lambda: model) is model


def test_the_least_used_model_makes_room() -> None:
    loaded, model = LoadedModels(2), artifacts.artifact().model
    read: list[str] = []

    def get(name: str) -> None:
        loaded.get(name, lambda: read.append(name) or model)

    for name in ("a", "b", "a", "c", "a", "b"):
        get(name)
    assert read == ["a", "b", "c", "b"]
    loaded.drop("b")
    loaded.drop("b")
    get("a")
    get("b")
    assert read == ["a", "b", "c", "b", "b"]
