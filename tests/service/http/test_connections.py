"""A connection that sends nothing, or never completes its headers, is closed; others are not."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from service.http.connections import guarded
from service.settings import Settings


async def application(_scope: Any, receive: Any, send: Any) -> None:
    """Answer after the whole body has arrived and a delay."""
    while (await receive()).get("more_body"):
        pass
    await asyncio.sleep(0.6)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


async def talk(protocol: Any, *pieces: bytes) -> bytes:
    """Send pieces and return everything received until the server closes the connection."""
    config = uvicorn.Config(application, log_config=None, timeout_keep_alive=1)
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(
        lambda: protocol(config, ServerState(), {}), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
    said = bytearray()
    # On a loaded machine the server may close while the last pieces are still being sent.
    with suppress(ConnectionResetError, BrokenPipeError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        while more := await reader.read(1 << 16):
            said += more
    writer.close()
    listening.close()
    return bytes(said)


REQUEST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n"


@pytest.mark.parametrize(
    ("pieces", "answers"),
    [
        ((), 0),
        ((b"GET / HT", b"TP/1.1\r\n", b"X: y"), 0),
        ((REQUEST, b"a", b"b"), 1),
        ((REQUEST + b"ab" + REQUEST, b"ab"), 2),
        ((REQUEST + b"ab" + b"GET /", b" HTTP/1"), 1),
    ],
)
def test_a_header_that_does_not_end_is_not_waited_for(
    pieces: tuple[bytes, ...], answers: int
) -> None:
    # Shorter than the answer takes: the deadline is for headers, not for answers.
    protocol = guarded(Settings(header_deadline_s=0.3))
    assert asyncio.run(talk(protocol, *pieces)).count(b"204 No Content") == answers
