"""Both sides send their protocol; a crash is answered with nothing but a request id."""

import pytest

from tests.service.coordinator import Coordinator


def test_anyone_may_ask_for_protocol_and_health(coordinator: Coordinator) -> None:
    answer = coordinator.request("GET", "/protocol")
    assert answer.json()["protocol"] == answer.json()["oldest"] == 2
    assert coordinator.request("GET", "/healthz").json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("spoken", "side"),
    [("3", "the coordinator"), ("1", "the hospital"), ("²", "the hospital"), ("x", "the hospital")],
)
def test_another_protocol_is_told_which_side_to_upgrade(
    coordinator: Coordinator, spoken: str, side: str
) -> None:
    headers = {"Veilgp-Protocol": spoken.encode("latin-1")}
    answer = coordinator.request("GET", "/healthz", headers=headers)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (426, "protocol.mismatch")
    assert (problem["newest"], problem["oldest"]) == (2, 2)
    assert f"Upgrade {'veilgp at ' * (side == 'the hospital')}{side}" in problem["detail"]


def test_every_answer_has_the_protocol_an_id_and_caution(coordinator: Coordinator) -> None:
    ids = set()
    for path in ("/protocol", "/sessions", "/nowhere"):
        headers = coordinator.request("GET", path, headers={"Veilgp-Protocol": "2"}).headers
        assert headers["Veilgp-Protocol"] == "2"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        ids.add(headers["X-Request-Id"])
    assert len(ids) == 3


def test_a_crash_tells_only_where_to_look(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    @coordinator.app.get("/crash")
    def crash() -> None:
        raise RuntimeError("a secret")

    answer = coordinator.request("GET", "/crash")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert answer.headers["Veilgp-Protocol"] == "2"
    assert "a secret" not in answer.text
    assert answer.headers["X-Request-Id"] in answer.text
    assert answer.headers["X-Request-Id"] in caplog.text
