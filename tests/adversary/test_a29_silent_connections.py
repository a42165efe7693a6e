"""A29: strangers may connect as often as they like; members and admins are served all the same.

The attack: 1,005 silent connections, and everyone else got 503. It is carried out here against a
real server on real sockets, with smaller limits and deadlines that are too long to help.
"""

import asyncio
import datetime
import hashlib
import os
import socket
import sqlite3
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import event, insert
from uvicorn.server import ServerState

from privacy.identity import Identity
from privacy.requests import sign_request
from service.command import server
from service.database import tables
from service.database.database import Database
from service.http import connections, tokens
from service.http.admission import Admission
from service.http.connections import guarded
from service.sample import STATED
from service.sessions import sessions
from service.sessions.sessions import NewSession
from service.settings import Settings

LIMITS = {"max_connections": 40, "max_unauthenticated": 20, "header_deadline_s": 60.0}
MANY = 60


@dataclass
class Running:
    """A server, and what its admin and a hospital need."""

    app: Any
    port: int
    token: str
    session: str
    hospital: Identity

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=5)

    def admin(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def signed(self, target: str, method: str = "GET", body: bytes = b"") -> dict[str, str]:
        header = sign_request(
            self.hospital,
            method=method,
            host=f"127.0.0.1:{self.port}",
            target=target,
            digest=hashlib.sha256(body).digest(),
            now_ms=int(time.time() * 1000),
            nonce=os.urandom(16),
        )
        return {"Authorization": header}


@contextmanager
def running(directory: Path, **settings: Any) -> Iterator[Running]:
    directory.mkdir(exist_ok=True)
    chosen = Settings(data_dir=directory, port=0, **settings)
    database = Database(chosen.url)
    database.migrate()
    hospital = Identity.generate()
    with database.changing() as connection:
        token = tokens.reset_admin(connection, now=time.time()).secret
        new = NewSession.model_validate({"name": "Study", **STATED})
        session = sessions.create(connection, new, now=time.time()).id
        member = {"session_id": session, "key": hospital.key, "name": "Kiel", "status": "pending"}
        connection.execute(insert(tables.members).values(**member, enrolled_at=0.0))
    database.close()
    listening = server(chosen)
    listening.config.log_config = None
    thread = Thread(target=listening.run, daemon=True)
    thread.start()
    while not listening.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = listening.servers[0].sockets[0].getsockname()[1]
    try:
        yield Running(listening.config.app, port, token, session, hospital)
    finally:
        listening.should_exit = True
        thread.join(timeout=30)


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has closed a connection, which it does not answer."""
    connection.settimeout(0.2)
    with suppress(TimeoutError, ConnectionError):
        return connection.recv(1) == b""
    try:
        connection.send(b"G")
    except OSError:
        return True
    return False


SILENT = b""
HALF = b"GET /healthz HTTP/1.1\r\nHost: a"
NO_BODY = b"POST /sign-in HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"


@pytest.mark.parametrize("sent", [SILENT, HALF, NO_BODY], ids=["silent", "half", "no body"])
def test_members_and_admins_are_served_while_strangers_hold_all_connections(
    tmp_path: Path, sent: bytes
) -> None:
    with running(tmp_path, **LIMITS) as there, ExitStack() as stack:
        base = f"http://127.0.0.1:{there.port}"
        poll = f"/sessions/{there.session}/membership?wait=1"
        answers: list[int] = []
        asked = Thread(
            target=lambda: answers.append(
                httpx.get(base + poll, headers=there.signed(poll)).status_code
            )
        )
        asked.start()
        while not there.app.state.runs.wakeups.count:  # it is authenticated, and waits
            time.sleep(0.01)
        for _ in range(MANY):
            stranger = stack.enter_context(there.connect())
            stranger.sendall(sent)
        for _ in range(3):  # each time on a new connection
            answer = httpx.get(base + "/sessions", headers=there.admin())
            assert answer.status_code == 200
        asked.join()
        assert answers == [200]


def test_silent_connections_are_counted_before_their_handshake(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    with running(tmp_path / "data", **LIMITS, **files) as there, ExitStack() as stack:
        strangers = [stack.enter_context(there.connect()) for _ in range(MANY)]
        trusted = ssl.create_default_context(cafile=str(files["tls_certificate"]))
        url = f"https://127.0.0.1:{there.port}/sessions"
        assert httpx.get(url, headers=there.admin(), verify=trusted).status_code == 200
        assert is_closed(strangers[0])
        assert not is_closed(strangers[-1])


@pytest.mark.parametrize("tls", [False, True])
def test_slow_headers_are_cut(tmp_path: Path, *, tls: bool) -> None:
    files = certificate(tmp_path) if tls else {}
    settings = {"header_deadline_s": 0.3, **files}
    with running(tmp_path / "data", **settings) as there, there.connect() as stranger:
        began = time.monotonic()
        while time.monotonic() - began < 3 and not is_closed(stranger):
            pass  # `is_closed` sends a byte each time
        assert time.monotonic() - began < 3


def certificate(directory: Path) -> dict[str, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ip_address("127.0.0.1"))
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = {"tls_certificate": directory / "cert.pem", "tls_key": directory / "key.pem"}
    files["tls_certificate"].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    files["tls_key"].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def test_an_answer_that_nobody_reads_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.3)

    async def application(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(64 << 20)})

    async def attack() -> int:
        state, protocol = ServerState(), guarded(Settings())
        config = uvicorn.Config(application, log_config=None)
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(lambda: protocol(config, state, {}), "127.0.0.1", 0)
        with socket.socket() as stranger:
            stranger.setblocking(False)
            await loop.sock_connect(stranger, listening.sockets[0].getsockname())
            await loop.sock_sendall(stranger, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await asyncio.sleep(0.2)
            before = len(state.connections)
            await asyncio.sleep(0.6)
            listening.close()
            return before - len(state.connections)

    assert asyncio.run(attack()) == 1


class Peer:
    """A connection that only remembers whether it was closed."""

    is_cut = False

    def cut_off(self) -> None:
        self.is_cut = True


def entered(admission: Admission, count: int, address: str = "192.0.2.1") -> list[Peer]:
    peers = [Peer() for _ in range(count)]
    for peer in peers:
        admission.enter(peer, address)
    return peers


def test_one_address_has_a_limit_of_its_own() -> None:
    admission = Admission(most=100, most_strangers=50, most_per_address=10)
    first = entered(admission, 12)
    assert [peer.is_cut for peer in first] == [True] * 2 + [False] * 10
    # One subscriber has a whole network of IPv6.
    networked = [peer for n in range(12) for peer in entered(admission, 1, f"2001:db8::{n:x}")]
    assert sum(peer.is_cut for peer in networked) == 2
    assert sum(peer.is_cut for peer in first) == 2


def test_who_has_most_connections_makes_way_for_who_has_one() -> None:
    admission = Admission(most=100, most_strangers=10, most_per_address=10)
    (lonely,) = entered(admission, 1, "198.51.100.1")
    crowd = entered(admission, 30)
    assert not lonely.is_cut
    assert sum(peer.is_cut for peer in crowd) == 21


def test_the_known_are_never_closed_for_strangers_and_strangers_never_fill_their_room() -> None:
    admission = Admission(most=30, most_strangers=10, most_per_address=30)
    known = entered(admission, 25, "198.51.100.1")
    for peer in known[15:]:  # those who are still there
        admission.know(peer)
    alive = [peer for peer in known if not peer.is_cut]
    assert alive == known[15:]
    strangers = entered(admission, 100)
    assert not any(peer.is_cut for peer in alive)
    assert sum(not peer.is_cut for peer in strangers) == 10
    # All connections are known: a stranger finds no room.
    full = Admission(most=3, most_strangers=2, most_per_address=2)
    for _ in range(3):
        full.know(entered(full, 1)[0])
    assert entered(full, 1)[0].is_cut


def test_who_begins_another_request_must_authenticate_again() -> None:
    admission = Admission(most=30, most_strangers=2, most_per_address=30)
    (peer,) = entered(admission, 1)
    admission.know(peer)
    admission.doubt(peer)
    entered(admission, 2)
    assert peer.is_cut


def test_a_request_makes_a_connection_a_stranger(tmp_path: Path) -> None:
    limits = {**LIMITS, "max_unauthenticated": 2}
    with running(tmp_path, **limits) as there, ExitStack() as stack:
        known = stack.enter_context(there.connect())
        bearer = f"Authorization: Bearer {there.token}"
        known.sendall(f"GET /sessions HTTP/1.1\r\nHost: a\r\n{bearer}\r\n\r\n".encode())
        assert known.recv(12) == b"HTTP/1.1 200"
        known.sendall(NO_BODY)
        time.sleep(0.1)
        for _ in range(3):
            stack.enter_context(there.connect())
        began = time.monotonic()
        known.settimeout(2)
        with suppress(ConnectionError):
            while known.recv(1 << 16):
                pass
        assert time.monotonic() - began < 2


def test_who_may_not_write_does_not_wait_for_those_who_write(tmp_path: Path) -> None:
    with running(tmp_path) as there, sqlite3.connect(tmp_path / "veilgp.sqlite") as writer:
        writer.execute("BEGIN IMMEDIATE")
        base = f"http://127.0.0.1:{there.port}"
        assert httpx.post(f"{base}/sign-in", data={"token": "guess"}).status_code == 403
        target, body = f"/sessions/{there.session}/members", b'{"invitation": "guess"}'
        headers = there.signed(target, "POST", body)
        refused = httpx.post(base + target, content=body, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "invitation.invalid")
        writer.rollback()


@pytest.mark.parametrize("path", ["/readyz", "/healthz", "/v2/health/ready"])
def test_health_checks_put_no_load_on_the_database(tmp_path: Path, path: str) -> None:
    with running(tmp_path) as there, httpx.Client() as stranger:
        asked: list[str] = []
        engine = there.app.state.context.database.engine
        event.listen(engine, "before_cursor_execute", lambda *what: asked.append(what[2]))
        began = time.monotonic()
        for _ in range(20):
            assert stranger.get(f"http://127.0.0.1:{there.port}{path}").status_code == 200
        seconds = 1 + int(time.monotonic() - began)
        assert asked.count("SELECT 1") <= seconds + 1
