"""Requests are authenticated, current and for this coordinator; others learn nothing."""

import hashlib
import json
from dataclasses import replace

import pytest
from sqlalchemy import insert, select

from privacy.requests import WINDOW_MS, SignedRequest, sign_request
from service.database.tables import nonces
from service.http.access import ApprovedMember
from service.http.nonces import remember
from service.http.tokens import Role, issue
from tests.service.coordinator import Coordinator, Hospital

ADMIN_ROUTES = [
    ("POST", "/sessions"),
    ("GET", "/sessions"),
    ("GET", "/sessions/{}"),
    ("DELETE", "/sessions/{}"),
    ("POST", "/sessions/{}/invitations"),
    ("GET", "/sessions/{}/invitations"),
    ("DELETE", "/sessions/{}/invitations/x"),
    ("GET", "/sessions/{}/members"),
    ("PATCH", "/sessions/{}/members/Kiel"),
    ("GET", "/sessions/{}/roster"),
    ("PUT", "/public-sets/x"),
    ("GET", "/public-sets"),
    ("DELETE", "/public-sets/x"),
    ("POST", "/callers"),
    ("GET", "/callers"),
    ("DELETE", "/callers/x"),
]


def caller_token(coordinator: Coordinator, **more: float) -> str:
    with coordinator.context.database.changing() as connection:
        return issue(
            connection, Role.CALLER, "ward", now=coordinator.clock(), models=["m"], **more
        ).secret


@pytest.mark.parametrize(("method", "path"), ADMIN_ROUTES)
def test_only_an_admins_token_does_what_admins_do(
    coordinator: Coordinator, method: str, path: str
) -> None:
    session = coordinator.session()
    hospital = coordinator.approved(session, "Kiel")
    path = path.format(session)
    stranger = coordinator.request(method, path, content=b"not even JSON")
    assert (stranger.status_code, stranger.json()["code"]) == (401, "access.unauthenticated")
    assert stranger.headers["WWW-Authenticate"].startswith("Bearer")
    assert coordinator.bearer("vgp_admin_x", method, path).status_code == 401
    assert hospital.send(method, path).status_code in (401, 403, 404, 405)
    caller = coordinator.bearer(caller_token(coordinator), method, path)
    assert (caller.status_code, caller.json()["code"]) == (403, "access.denied")


def test_every_route_is_for_someone(coordinator: Coordinator) -> None:
    """A new route without an authentication dependency fails this test."""
    open_to_all = {"/protocol", "/healthz", "/readyz", "/v2", "/v2/health/live", "/v2/health/ready"}
    for path, operations in coordinator.app.openapi()["paths"].items():
        if path == "/sessions/{session_id}/offer":
            # For who has an invitation's secret, in its body:
            # tests/service/sessions/test_invitation_reads.py
            continue
        for method in operations:
            answer = coordinator.request(method.upper(), path.replace("{", "").replace("}", ""))
            expected = 200 if path in open_to_all else 401
            assert answer.status_code == expected, (method, path)


def test_a_token_ends_with_its_expiry_and_with_its_reset(coordinator: Coordinator) -> None:
    with coordinator.context.database.changing() as connection:
        until = coordinator.clock() + 60
        short = issue(connection, Role.ADMIN, "x", now=coordinator.clock(), expires_at=until)
    assert coordinator.bearer(short.secret, "GET", "/sessions").status_code == 200
    coordinator.clock.now += 60
    assert coordinator.bearer(short.secret, "GET", "/sessions").status_code == 401
    old = coordinator.token
    coordinator.reset_token()
    assert coordinator.bearer(old, "GET", "/sessions").status_code == 401
    assert coordinator.admin("GET", "/sessions").status_code == 200


def test_a_secret_is_never_stored_nor_shown(coordinator: Coordinator) -> None:
    session = coordinator.session()
    secret = coordinator.invite(session, "Kiel")
    assert Hospital(coordinator).enrol(session, secret).status_code == 201
    directory = coordinator.context.settings.data_dir
    stored = b"".join(f.read_bytes() for f in directory.iterdir() if f.is_file())
    assert b"Kiel" in stored
    assert secret.encode() not in stored
    assert coordinator.token.encode() not in stored
    shown = coordinator.admin("GET", f"/sessions/{session}/invitations").text
    assert secret not in shown


class TestSignedRequests:
    @pytest.fixture
    def session(self, coordinator: Coordinator) -> str:
        return coordinator.session()

    @pytest.fixture
    def hospital(self, coordinator: Coordinator, session: str) -> Hospital:
        return coordinator.approved(session, "Kiel")

    def test_a_request_is_answered_once(self, hospital: Hospital, session: str) -> None:
        target = f"/sessions/{session}/membership"
        header = hospital.header("GET", target)
        assert hospital.forward("GET", target, header).status_code == 200
        again = hospital.forward("GET", target, header)
        assert (again.status_code, again.json()["code"]) == (401, "request.replayed")
        assert again.headers["WWW-Authenticate"] == "Veilgp"

    def test_an_enrolment_is_answered_once(self, coordinator: Coordinator, session: str) -> None:
        body = json.dumps({"invitation": coordinator.invite(session, "Bonn")}).encode()
        target, other = f"/sessions/{session}/members", Hospital(coordinator)
        header = other.header("POST", target, body)
        assert other.forward("POST", target, header, body).status_code == 201
        assert other.forward("POST", target, header, body).json()["code"] == "request.replayed"

    def test_another_method_path_query_or_body_is_another_request(
        self, hospital: Hospital, session: str
    ) -> None:
        target = f"/sessions/{session}/membership"
        for signed in (
            hospital.header("POST", target),
            hospital.header("GET", f"/sessions/{session}/members"),
            hospital.header("GET", target + "?a=1"),
            hospital.header("GET", target.replace("/m", "/%6d")),
        ):
            answer = hospital.forward("GET", target, signed)
            assert (answer.status_code, answer.json()["code"]) == (401, "identity.signature")
        refusals = f"/sessions/{session}/refusals"
        header = hospital.header("POST", refusals, b'{"code":"a","detail":"b"}')
        answer = hospital.forward("POST", refusals, header, b'{"code":"a","detail":"c"}')
        assert (answer.status_code, answer.json()["code"]) == (401, "request.body")

    def test_the_path_is_checked_as_it_was_sent(self, hospital: Hospital, session: str) -> None:
        target = f"/sessions/{session}/%6dembership?q=%20&r=+"
        assert hospital.send("GET", target).status_code == 200

    def test_an_old_or_early_request_is_refused_with_the_servers_time(
        self, coordinator: Coordinator, hospital: Hospital, session: str
    ) -> None:
        target = f"/sessions/{session}/membership"
        header = hospital.header("GET", target)
        coordinator.clock.now += WINDOW_MS / 1000 + 1
        late = hospital.forward("GET", target, header)
        assert (late.status_code, late.json()["code"]) == (401, "request.clock")
        assert late.json()["time"] == "2027-01-15T08:05:01.000Z"
        header = hospital.header("GET", target)
        coordinator.clock.now -= 2 * WINDOW_MS / 1000
        assert hospital.forward("GET", target, header).json()["code"] == "request.clock"

    def test_a_token_without_the_key_gets_nothing(
        self, coordinator: Coordinator, session: str
    ) -> None:
        for method, path in (("GET", "membership"), ("POST", "refusals"), ("POST", "members")):
            answer = coordinator.bearer(
                coordinator.token, method, f"/sessions/{session}/{path}", {"invitation": "x"}
            )
            assert (answer.status_code, answer.json()["code"]) == (401, "request.header")

    def test_another_session_looks_like_none(
        self, coordinator: Coordinator, hospital: Hospital
    ) -> None:
        other = coordinator.session(name="Another")
        coordinator.approved(other, "Kiel")
        there = hospital.membership(other)
        nowhere = hospital.membership("00000000-0000-0000-0000-000000000000")
        assert there.status_code == nowhere.status_code == 404
        assert there.json() == nowhere.json()

    def test_a_stranger_leaves_nothing_behind(self, coordinator: Coordinator, session: str) -> None:
        stranger = Hospital(coordinator)
        assert stranger.membership(session).status_code == 404
        assert stranger.enrol(session, "guess").status_code == 403
        with coordinator.context.database.reading() as connection:
            keys = connection.execute(select(nonces.c.key)).scalars().all()
        assert stranger.identity.key not in keys

    def test_a_suspended_member_is_refused_at_once(
        self, coordinator: Coordinator, hospital: Hospital, session: str
    ) -> None:
        path = f"/sessions/{session}/members/Kiel"
        assert coordinator.admin("PATCH", path, {"status": "suspended"}).status_code == 200
        answer = hospital.membership(session)
        assert (answer.status_code, answer.json()["code"]) == (403, "member.suspended")
        assert coordinator.admin("PATCH", path, {"status": "approved"}).status_code == 200
        assert hospital.membership(session).status_code == 200

    def test_a_pending_member_sees_its_membership_only(
        self, coordinator: Coordinator, session: str
    ) -> None:
        @coordinator.app.get("/sessions/{session_id}/probe")
        def probe(member: ApprovedMember) -> str:
            return member.name

        hospital = Hospital(coordinator)
        assert hospital.enrol(session, coordinator.invite(session, "Bonn")).status_code == 201
        assert hospital.membership(session).status_code == 200
        answer = hospital.send("GET", f"/sessions/{session}/probe")
        assert (answer.status_code, answer.json()["code"]) == (403, "member.pending")
        path = f"/sessions/{session}/members/Bonn"
        assert coordinator.admin("PATCH", path, {"status": "approved"}).status_code == 200
        assert hospital.send("GET", f"/sessions/{session}/probe").json() == "Bonn"

    @pytest.mark.parametrize(
        ("public_url", "signed", "asked", "status"),
        [
            (None, "gp.example", "gp.example", 200),
            (None, "gp.example", "other.example", 401),
            ("https://GP.example:443", "gp.example", "gp.example", 200),
            ("https://gp.example", "gp.example", "127.0.0.1:8000", 200),  # a proxy's own header
            ("https://gp.example", "127.0.0.1:8000", "127.0.0.1:8000", 200),
            ("https://gp.example", "[::1]:8000", "[::1]:8000", 200),
            ("https://gp.example", "other.example", "other.example", 401),
            ("https://gp.example", "other.example", "gp.example", 401),
            ("https://gp.example", "other.example", "127.0.0.1:8000", 401),
            ("https://gp.example", "127.0.0.1@other.example", "127.0.0.1@other.example", 401),
        ],
    )
    def test_a_request_to_another_coordinator_cannot_be_passed_on(
        self,
        coordinator: Coordinator,
        hospital: Hospital,
        session: str,
        public_url: str | None,
        signed: str,
        asked: str,
        status: int,
    ) -> None:
        here = coordinator.context
        settings = here.settings.model_copy(update={"public_url": public_url})
        coordinator.app.state.context = replace(here, settings=settings)
        hospital.host = signed
        target = f"/sessions/{session}/membership"
        headers = {"Authorization": hospital.header("GET", target), "Host": asked}
        assert coordinator.request("GET", target, headers=headers).status_code == status

    def test_old_nonces_are_forgotten_and_young_ones_are_not(
        self, coordinator: Coordinator, hospital: Hospital
    ) -> None:
        now = int(coordinator.clock() * 1000)
        rows = [
            {"key": bytes(32), "nonce": age.to_bytes(16, "big"), "time_ms": now - age}
            for age in (WINDOW_MS, 2 * WINDOW_MS + 1)
        ]
        header = sign_request(
            hospital.identity,
            method="GET",
            host=hospital.host,
            target="/",
            digest=hashlib.sha256(b"").digest(),
            now_ms=now,
            nonce=bytes(16),
        )
        with coordinator.context.database.changing() as connection:
            connection.execute(insert(nonces), rows)
            remember(connection, SignedRequest.parse(header), now_ms=now)
            times = set(connection.execute(select(nonces.c.time_ms)).scalars())
        assert now - WINDOW_MS in times
        assert now - 2 * WINDOW_MS - 1 not in times


def test_a_body_beyond_its_limit_is_not_read(coordinator: Coordinator) -> None:
    asked = 0

    async def pieces():
        nonlocal asked
        for _ in range(1000):
            asked += 1
            yield b" " * (1 << 16)

    headers = {"Authorization": f"Bearer {coordinator.token}"}
    announced = coordinator.request(
        "POST",
        "/sessions",
        headers={**headers, "Content-Length": str(1 << 26)},
        content=pieces(),
    )
    assert (announced.status_code, announced.json()["code"]) == (413, "request.too_large")
    assert asked == 0
    unannounced = coordinator.request("POST", "/sessions", headers=headers, content=pieces())
    assert unannounced.status_code == 413
    assert asked == 17


def test_what_was_signed_must_be_what_came(coordinator: Coordinator) -> None:
    session = coordinator.session()
    hospital = Hospital(coordinator)
    body = json.dumps({"invitation": coordinator.invite(session, "Kiel")}).encode()
    target = f"/sessions/{session}/members"
    header = hospital.header("POST", target, hashlib.sha256(body).digest())
    assert hospital.forward("POST", target, header, body).json()["code"] == "request.body"
    assert coordinator.admin("GET", f"/sessions/{session}/members").json() == []
