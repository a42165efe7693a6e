"""Both drivers do what a conversation requests, within its limits, and decide nothing."""

import asyncio
import datetime
import http.server
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from client_sdk.errors import AnswerTooLarge, CertificateRefused, NotACoordinator, Unreachable
from client_sdk.network.exchange import Effects, Exchange, Patience, Pause
from client_sdk.network.transport import run, run_async
from privacy.identity import Identity

ORIGIN = "https://veil.example"
PROTOCOL = {"Veilgp-Protocol": "2"}


def exchange(**patience: Any) -> Exchange:
    return Exchange(
        Identity.from_bytes(bytes(range(32))), host="here", patience=Patience(**patience)
    )


def answer(status: int, body: bytes = b"") -> httpx.Response:
    """Respond as a network does: with a stream that is read once."""
    return httpx.Response(status, headers=PROTOCOL, stream=httpx.ByteStream(body))


def both(effects: Any, handler: Any) -> list[Any]:
    """Run a conversation with both drivers."""
    results = [run(effects(), ORIGIN, transport=httpx.MockTransport(handler), sleep=lambda _: None)]

    async def no_wait(_: float) -> None:
        await asyncio.sleep(0)

    awaited = run_async(effects(), ORIGIN, transport=httpx.MockTransport(handler), sleep=no_wait)
    return [*results, asyncio.run(awaited)]


def test_octets_go_out_as_they_are_with_their_exact_length() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answer(204)

    body = memoryview(bytes(range(256)) * 10_000).cast("B")
    both(lambda: exchange().send("/sessions/x/vectors", b"head", body), handler)
    for request in seen:
        assert request.headers["content-length"] == str(4 + len(body))
        assert "transfer-encoding" not in request.headers
        assert request.headers["accept-encoding"] == "identity"
        assert str(request.url) == f"{ORIGIN}/sessions/x/vectors?wait=25"
    assert len(seen) == 2


def test_lost_connections_are_asked_again_and_answers_arrive() -> None:
    fates = iter([httpx.ConnectError("no"), httpx.ReadTimeout("no"), None] * 2)

    def handler(request: httpx.Request) -> httpx.Response:
        fate = next(fates)
        if fate is not None:
            raise fate
        return answer(200, json.dumps({"path": request.url.raw_path.decode()}).encode())

    answers = both(lambda: exchange().get_json("/next?wait=25&run=x"), handler)
    assert answers == [{"path": "/next?wait=25&run=x"}] * 2


class Endless(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A response that never ends."""

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield bytes(1 << 20)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 20)


def test_an_endless_answer_is_cut_at_its_limit() -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers=PROTOCOL, stream=Endless())

    with pytest.raises(AnswerTooLarge, match="GET /x"):
        both(lambda: exchange().get("/x?y", limit=5 << 20), handler)


def test_an_answer_that_trickles_is_given_up() -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers=PROTOCOL, stream=Endless())

    effects = exchange(outage_s=-1.0).get("/x", limit=1 << 40, timeout_s=0.0)
    with pytest.raises(Unreachable, match="no response in time"):
        run(effects, ORIGIN, transport=httpx.MockTransport(handler))


def test_redirects_are_not_followed() -> None:
    seen: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.host)
        away = {"Location": "https://elsewhere.example/"}
        return httpx.Response(307, headers=away, stream=httpx.ByteStream(b""))

    with pytest.raises(NotACoordinator):
        both(lambda: exchange().get("/x"), handler)
    assert seen == ["veil.example"]


@pytest.mark.parametrize("times", [1, 2])
def test_who_cancels_waits_for_the_computation_and_the_conversation_is_closed(times: int) -> None:
    closed = threading.Event()
    computing, go_on = threading.Event(), threading.Event()

    def effects() -> Effects[None]:
        try:
            yield Pause(0.0)
            computing.set()
            go_on.wait(10)
            yield Pause(0.0)
        finally:
            closed.set()

    async def main() -> None:
        task = asyncio.ensure_future(run_async(effects(), ORIGIN))
        await asyncio.to_thread(computing.wait, 10)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.01)
        assert not closed.is_set()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert closed.is_set()


def test_a_loop_that_ends_waits_for_the_computation_too() -> None:
    """`asyncio.run` cancels every task that is left, not only the one that the caller knows."""
    closed = threading.Event()
    computing, computed = threading.Event(), threading.Event()

    def effects() -> Effects[None]:
        try:
            yield Pause(0.0)
            computing.set()
            time.sleep(0.2)
            computed.set()
            yield Pause(0.0)
        finally:
            assert computed.is_set()
            closed.set()

    async def main() -> None:
        task = asyncio.ensure_future(run_async(effects(), ORIGIN))
        await asyncio.to_thread(computing.wait, 10)
        assert not task.done()

    asyncio.run(main())
    assert closed.is_set()


# -- TLS, over a real socket


def certificate(folder: Path) -> Path:
    """Write a self-signed certificate for localhost and its key to one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "server.pem"
    path.write_bytes(made.public_bytes(pem) + private)
    (folder / "ca.pem").write_bytes(made.public_bytes(pem))
    return path


class Answering(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Veilgp-Protocol", "2")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def tls_server(folder: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://localhost:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_a_certificate_of_an_unknown_authority_is_refused_at_once_and_a_named_one_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with tls_server(tmp_path) as origin:
        with pytest.raises(CertificateRefused, match="--ca"):
            run(exchange().get_json("/x"), origin)
        assert run(exchange().get_json("/x"), origin, ca=tmp_path / "ca.pem") == {}
    (tmp_path / "junk.pem").write_text("junk")
    with pytest.raises(CertificateRefused, match=r"junk\.pem"):
        run(exchange().get_json("/x"), origin, ca=tmp_path / "junk.pem")
