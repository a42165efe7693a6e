"""`join` and `join_async` over httpx, with hospitals in threads and in one event loop."""

import asyncio
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

import client_sdk
from client_sdk.errors import HomeInUse, RefusedByCoordinator, RosterFileError, SessionChanged
from client_sdk.events import Event, OwnGain
from client_sdk.home.home import Home
from client_sdk.home.roster_file import read_roster
from client_sdk.joining import enrol, offered
from client_sdk.network.exchange import Call, Lost, Reply
from client_sdk.simulation import simulate
from client_sdk.terminal.command import application
from kernels.errors import ProgramError
from kernels.model.artifact import Artifact
from kernels.rounds.program import Program
from privacy.identity import fingerprint
from tests.client_sdk.conftest import Make
from tests.client_sdk.coordinator import ORIGIN, SmallCoordinator
from tests.client_sdk.hospitals import Hospital, drafted
from tests.client_sdk.model.test_model import CREATED, PRIVACY
from tests.dealing import DEALING
from tests.kernels.rounds.tables import tables


def over_http(coordinator: SmallCoordinator) -> Callable[[httpx.Request], httpx.Response]:
    """Return a handler that lets the small coordinator answer httpx requests, one at a time."""
    lock = threading.Lock()

    def reply(request: httpx.Request, body: bytes) -> httpx.Response:
        call = Call(
            request.method,
            request.url.raw_path.decode(),
            {
                name.title(): request.headers[name]
                for name in ("authorization", "veilgp-protocol")
                if name in request.headers
            },
            (body,),
            1,
            1.0,
        )
        with lock:
            answer: Reply | Lost = coordinator.answer(call)
        assert isinstance(answer, Reply)
        stream = httpx.ByteStream(answer.body)
        return httpx.Response(answer.status, headers=dict(answer.headers), stream=stream)

    def handler(request: httpx.Request) -> httpx.Response:
        return reply(request, request.read())

    return handler


class Served(httpx.AsyncBaseTransport):
    """The same for asyncio."""

    def __init__(self, handler: Callable[[httpx.Request], httpx.Response]) -> None:
        self._handler = handler

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        await asyncio.sleep(0.001)
        return self._handler(request)


@pytest.fixture
def served(make: Make, program: Program) -> tuple[SmallCoordinator, list[Hospital]]:
    coordinator, hospitals = make()
    outcome = simulate(program, tables(3), DEALING, secure=False)
    made = Artifact.of(
        outcome.model,
        program=program,
        members=3,
        sums=outcome.sums,
        privacy=PRIVACY,
        created=CREATED,
    )
    coordinator.artifact, coordinator.card = made.to_bytes(), made.card.to_plain()
    coordinator.model_id = made.id
    return coordinator, hospitals


def asked(hospital: Hospital, **more: Any) -> dict[str, Any]:
    return {
        "session": hospital.link,
        "data": hospital.data,
        "policy": hospital.policy,
        "home": hospital.path,
        "roster": hospital.roster,
        "progress": "silent",
        **more,
    }


@pytest.mark.full
def test_join_gives_every_hospital_the_same_model_and_shows_its_own_gain(
    served: tuple[SmallCoordinator, list[Hospital]],
) -> None:
    coordinator, hospitals = served
    transport = httpx.MockTransport(over_http(coordinator))
    events: list[list[Event]] = [[] for _ in hospitals]
    with ThreadPoolExecutor(3) as pool:
        joining = [
            pool.submit(client_sdk.join, **asked(each, transport=transport, progress=seen.append))
            for each, seen in zip(hospitals, events, strict=True)
        ]
        models = [future.result(timeout=120) for future in joining]
    for model, hospital, seen in zip(models, hospitals, events, strict=True):
        (shown,) = (each for each in seen if isinstance(each, OwnGain))
        assert "What the federation gives this hospital, on " in str(shown)
        assert str(model.gain(hospital.data)) == str(shown), "the home says which rows are judged"
    assert {model.id for model in models} == {coordinator.model_id}
    assert len(models[0].predict(tables(1)[0]).mean) == 40


@pytest.mark.full
def test_join_async_is_the_same_conversation(
    served: tuple[SmallCoordinator, list[Hospital]],
) -> None:
    coordinator, hospitals = served

    async def everyone() -> list[client_sdk.GlobalModel]:
        transport = Served(over_http(coordinator))
        return await asyncio.gather(
            *(client_sdk.join_async(**asked(h, transport=transport)) for h in hospitals)
        )

    models = asyncio.run(everyone())
    assert {model.id for model in models} == {coordinator.model_id}


@pytest.mark.full
def test_another_model_than_the_runs_is_refused(
    served: tuple[SmallCoordinator, list[Hospital]],
) -> None:
    coordinator, hospitals = served
    coordinator.model_id = "0" * 64
    transport = httpx.MockTransport(over_http(coordinator))
    with ThreadPoolExecutor(3) as pool:
        joining = [
            pool.submit(client_sdk.join, **asked(hospital, transport=transport))
            for hospital in hospitals
        ]
        errors = [future.exception(timeout=120) for future in joining]
    assert all(error is not None and hasattr(error, "code") for error in errors)


def test_a_session_is_offered_before_anything_is_joined(
    served: tuple[SmallCoordinator, list[Hospital]], program: Program, tmp_path: Path
) -> None:
    coordinator, hospitals = served
    coordinator.members.clear()
    transport = httpx.MockTransport(over_http(coordinator))
    for _ in range(3):  # any number of times
        offer = offered(hospitals[0].link, home=tmp_path / "officer", transport=transport)
    assert offer.program == program
    assert offer.membership.status == "invited"
    drafted(offer.program, offer.terms)
    assert coordinator.members == {}
    assert not (tmp_path / "officer").exists(), "who reads needs no identity"


def test_what_was_read_is_what_is_joined(
    served: tuple[SmallCoordinator, list[Hospital]],
) -> None:
    coordinator, hospitals = served
    transport = httpx.MockTransport(over_http(coordinator))
    own: dict[str, Any] = {"home": hospitals[0].path, "transport": transport}
    coordinator.members.clear()
    offered(hospitals[0].link, **own)
    assert coordinator.terms is not None
    shown, changed = coordinator.terms, replace(coordinator.terms, max_colluders=1)
    coordinator.terms = changed
    for ask in (offered, enrol):
        with pytest.raises(SessionChanged, match="max_colluders"):
            ask(hospitals[0].link, **own)
    coordinator.terms = shown
    assert enrol(hospitals[0].link, **own).membership.status == "approved"
    # The link has been used, and this home knows: it reads as the member that it is.
    assert offered(hospitals[0].link, **own).membership.status == "approved"
    with pytest.raises(RefusedByCoordinator, match=r"invitation\.used"):
        offered(hospitals[0].link, home=hospitals[1].path, transport=transport)


def test_a_session_that_cannot_succeed_is_refused_by_the_hospital_too(
    served: tuple[SmallCoordinator, list[Hospital]], tmp_path: Path
) -> None:
    coordinator, hospitals = served
    coordinator.program = replace(coordinator.program, stages=coordinator.program.stages[:1])
    coordinator.members.clear()
    transport = httpx.MockTransport(over_http(coordinator))
    for home in (hospitals[0].path, tmp_path / "officer"):
        with pytest.raises(ProgramError, match="without which a run produces no model"):
            offered(hospitals[0].link, home=home, transport=transport)
    with pytest.raises(ProgramError, match="without which a run produces no model"):
        enrol(hospitals[0].link, home=hospitals[0].path, transport=transport)


def test_a_home_in_use_is_refused_before_anything_is_asked(
    served: tuple[SmallCoordinator, list[Hospital]],
) -> None:
    coordinator, hospitals = served
    transport = httpx.MockTransport(over_http(coordinator))
    with Home(hospitals[0].path).open(), pytest.raises(HomeInUse, match=str(os.getpid())):
        client_sdk.join(**asked(hospitals[0], transport=transport))
    assert coordinator.log == []


# -- files and the shell


def invoke(*words: str) -> Any:
    return CliRunner().invoke(application(), list(words))


def test_the_shell_prints_an_identity_without_its_key(tmp_path: Path) -> None:
    outcome = invoke("identity", "--home", str(tmp_path))
    identity = Home(tmp_path).identity()
    assert outcome.exit_code == 0
    assert identity.key.hex() in outcome.output
    assert identity.fingerprint in outcome.output
    assert identity.to_bytes().hex() not in outcome.output


def test_the_shell_confirms_a_key_that_was_met_and_only_by_its_digits(tmp_path: Path) -> None:
    other = Home(tmp_path / "other").identity().key
    home = Home(tmp_path / "own")
    home.identity()
    store = home.read()
    store.keep_pins("session", store.pins("session").__class__(met={"St. Mary": other}))
    store.close()
    words = ["confirm", "St. Mary", "--home", str(home.path)]
    wrong = invoke(*words, "00000 " * 8)
    assert (wrong.exit_code, "identity.fingerprint" in wrong.output) == (1, True)
    right = invoke(*words, fingerprint(other))
    assert right.exit_code == 0
    store = home.read()
    assert store.pins("session").confirmed == {"St. Mary": other}
    store.close()
    assert invoke(*words, fingerprint(other)).exit_code == 1


def test_the_shell_says_errors_with_their_code_and_without_a_traceback(tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text("least_cohrt = 5\n")
    link = f"{ORIGIN}/join/01234567-89ab-4def-8123-456789abcdef#hidden-secret"
    outcome = invoke("join", link, "t.csv", "--policy", str(site), "--home", str(tmp_path / "h"))
    assert outcome.exit_code == 3
    assert "policy.file" in outcome.output
    assert "Traceback" not in outcome.output
    outcome = invoke("join", "http://x.example/#hidden-secret", "t.csv", "--policy", str(site))
    assert (outcome.exit_code, "link.invalid" in outcome.output) == (1, True)
    assert "hidden-secret" not in outcome.output
    assert invoke("log", "--home", str(tmp_path / "nowhere")).exit_code == 1


def test_a_roster_file_is_read_strictly(tmp_path: Path) -> None:
    key = Home(tmp_path / "h").identity().key
    path = tmp_path / "roster.json"
    path.write_text(json.dumps({"session": "x", "members": [{"name": "A", "key": key.hex()}]}))
    assert read_roster(path) == {"A": key}
    for wrong in (
        "{}",
        "[]",
        "junk",
        '{"members": [{"name": "A"}]}',
        '{"members": [{"name": "A", "key": "00"}]}',
        json.dumps({"members": [{"name": n, "key": key.hex()} for n in "AB"]}),
        json.dumps({"members": [{"name": 1, "key": key.hex()}]}),
    ):
        path.write_text(wrong)
        with pytest.raises(RosterFileError):
            read_roster(path)
    with pytest.raises(RosterFileError):
        read_roster(tmp_path / "absent.json")
