"""An invitation may be read any number of times before anybody enrols with it."""

from typing import Any

import pytest

from kernels.rounds.program import Program
from privacy.securesum.terms import Terms
from service.app import INVITATION_READS
from service.database.database import Database
from service.http.times import iso_time
from tests.service.coordinator import Coordinator, Hospital


def read(coordinator: Coordinator, session: str, secret: str) -> Any:
    return coordinator.request("POST", f"/sessions/{session}/offer", json={"invitation": secret})


def test_reading_enrols_nobody_and_shows_what_members_see_of_the_session(
    coordinator: Coordinator,
) -> None:
    session = coordinator.session()
    coordinator.approved(session, "Bonn")
    secret = coordinator.invite(session, "Kiel")
    first, second = (read(coordinator, session, secret) for _ in range(2))
    assert first.status_code == 200, first.text
    assert first.json() == second.json()
    shown = first.json()
    assert {*shown} == {"protocol", "session", "name", "expires_at", "in_words"}
    assert shown["name"] == "Kiel"
    assert "Bonn" not in first.text, "nothing about other members"
    assert shown["in_words"] == coordinator.admin("GET", f"/sessions/{session}").json()["in_words"]
    members = coordinator.admin("GET", f"/sessions/{session}/members").json()
    assert [each["name"] for each in members] == ["Bonn"]
    kiel = Hospital(coordinator)
    assert kiel.enrol(session, secret).status_code == 201
    assert kiel.membership(session).json()["session"] == shown["session"]
    assert Program.from_json(shown["session"]["program"])
    assert Terms.decode(bytes.fromhex(shown["session"]["terms"]))


def test_it_ends_when_the_invitation_is_used_revoked_or_expired(coordinator: Coordinator) -> None:
    session = coordinator.session()
    used, expired = (coordinator.invite(session, name) for name in ("Kiel", "Bonn"))
    assert Hospital(coordinator).enrol(session, used).status_code == 201
    answer = read(coordinator, session, used)
    assert (answer.status_code, answer.json()["code"]) == (409, "invitation.used")
    path = f"/sessions/{session}/invitations"
    made = coordinator.admin("POST", path, {"name": "Ulm"}).json()
    coordinator.admin("DELETE", f"{path}/{made['id']}")
    coordinator.clock.now += 8 * 86400
    refused = [
        read(coordinator, session, expired),
        read(coordinator, session, made["link"].partition("#")[2]),
        read(coordinator, session, "guess"),
        read(coordinator, session, ""),
        read(coordinator, "0" * 36, expired),
    ]
    for each in refused:
        assert (each.status_code, each.json()["code"]) == (403, "invitation.invalid")
        assert each.json()["detail"] == refused[0].json()["detail"], "strangers learn nothing"
    other = coordinator.session(name="Another")
    assert read(coordinator, other, used).status_code == 403


def test_the_admin_sees_when_an_invitation_was_first_read(coordinator: Coordinator) -> None:
    """A link that somebody else has opened is noticed, also if nobody enrols with it."""
    session = coordinator.session()
    secret = coordinator.invite(session, "Kiel")
    path = f"/sessions/{session}/invitations"

    def read_at() -> Any:
        (shown,) = coordinator.admin("GET", path).json()
        assert {*shown} == {"id", "name", "status", "expires_at", "read_at"}
        return shown["read_at"]

    assert read_at() is None
    assert read(coordinator, session, "guess").status_code == 403
    assert read_at() is None
    assert read(coordinator, session, secret).status_code == 200
    first = read_at()
    assert first == iso_time(coordinator.clock.now)
    coordinator.clock.now += 3600
    read(coordinator, session, secret)
    assert Hospital(coordinator).enrol(session, secret).status_code == 201
    assert read_at() == first, "the first time, and nothing else"


def test_reading_takes_a_lock_once_and_is_limited(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = coordinator.session()
    secret, other = (coordinator.invite(session, name) for name in ("Kiel", "Bonn"))

    assert read(coordinator, session, secret).status_code == 200
    assert read(coordinator, session, other).status_code == 200

    def locked(*_: Any, **__: Any) -> Any:
        raise AssertionError("reading again takes the write lock")

    monkeypatch.setattr(Database, "changing", locked)
    for _ in range(INVITATION_READS - 1):
        assert read(coordinator, session, secret).status_code == 200
    answer = read(coordinator, session, secret)
    assert (answer.status_code, answer.json()["code"]) == (429, "rate.exceeded")
    assert "This invitation has reached its limit of 60 reads a minute" in answer.json()["detail"]
    assert read(coordinator, session, other).status_code == 200
