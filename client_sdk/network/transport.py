"""The two network drivers: httpx, blocking or asynchronous. No decisions are made here.

Proxies come from the environment, TLS is verified (with the hospital's own authority if `ca` is
given), redirects are not followed, and no response is read beyond its size or time limit.
"""

import asyncio
import contextvars
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import httpx

from client_sdk.errors import AnswerTooLarge, CertificateRefused
from client_sdk.network.exchange import Call, Effects, Lost, Pause, Reply

T = TypeVar("T")
Transport = httpx.BaseTransport
"""What carries requests: httpx's own, unless a test passes another."""
AsyncTransport = httpx.AsyncBaseTransport
"""The same in an event loop."""
_PIECE = 1 << 20
_CONNECT_S = 20.0


def run(
    effects: Effects[T],
    origin: str,
    *,
    ca: str | os.PathLike[str] | None = None,
    transport: Transport | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Perform a generator's requests and waits one by one, and return its result."""
    with httpx.Client(base_url=origin, verify=_trusted(ca), transport=transport) as http:
        answer: Reply | Lost | None = None
        try:
            while True:
                effect = effects.send(answer)
                if isinstance(effect, Pause):
                    sleep(effect.seconds)
                    answer = None
                else:
                    answer = _call(http, effect)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            effects.close()


async def run_async(
    effects: Effects[T],
    origin: str,
    *,
    ca: str | os.PathLike[str] | None = None,
    transport: AsyncTransport | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> T:
    """Do the same in an event loop; computation between requests runs in a thread."""
    async with httpx.AsyncClient(base_url=origin, verify=_trusted(ca), transport=transport) as http:
        answer: Reply | Lost | None = None
        try:
            while True:
                effect = await _in_thread(effects, answer)
                if isinstance(effect, StopIteration):
                    result: T = effect.value
                    return result
                if isinstance(effect, Pause):
                    await sleep(effect.seconds)
                    answer = None
                else:
                    answer = await _call_async(http, effect)
        finally:
            effects.close()


async def _in_thread(
    effects: Effects[T], answer: Reply | Lost | None
) -> Call | Pause | StopIteration:
    """Compute up to the next effect; a cancellation, however often, waits for the thread.

    A future of the executor, not a task: a loop that ends cancels its tasks, and would take the
    step for done while its thread still runs.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    step = loop.run_in_executor(None, context.run, _advance, effects, answer)
    try:
        return await asyncio.shield(step)
    except asyncio.CancelledError:
        while not step.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([step])
        raise


def _advance(effects: Effects[T], answer: Reply | Lost | None) -> Call | Pause | StopIteration:
    try:
        return effects.send(answer)
    except StopIteration as done:  # a future cannot carry it
        return done


def _call(http: httpx.Client, call: Call) -> Reply | Lost:
    body = _Body(call)
    try:
        with http.stream(
            call.method,
            call.target,
            headers=_headers(call),
            timeout=_timeout(call),
            content=body.pieces(),
        ) as response:
            for piece in response.iter_raw():
                body.take(piece)
            return body.reply(response)
    except (httpx.TransportError, _TooSlow) as error:
        return _lost(error)


async def _call_async(http: httpx.AsyncClient, call: Call) -> Reply | Lost:
    body = _Body(call)
    try:
        async with http.stream(
            call.method,
            call.target,
            headers=_headers(call),
            timeout=_timeout(call),
            content=body.pieces_async(),
        ) as response:
            async for piece in response.aiter_raw():
                body.take(piece)
            return body.reply(response)
    except (httpx.TransportError, _TooSlow) as error:
        return _lost(error)


class _TooSlow(Exception):
    """A response takes longer than its time limit."""


class _Body:
    """The bytes of one exchange: those to send, in pieces, and those received, within limits."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._began = time.monotonic()
        self._taken = bytearray()

    def pieces(self) -> Iterator[bytes]:
        for part in self._call.parts:
            octets = memoryview(part).cast("B")
            for start in range(0, len(octets), _PIECE):
                yield bytes(octets[start : start + _PIECE])

    async def pieces_async(self) -> AsyncIterator[bytes]:
        for piece in self.pieces():
            yield piece

    def take(self, piece: bytes) -> None:
        if len(self._taken) + len(piece) > self._call.limit:
            raise AnswerTooLarge(
                f"the response to {self._call.method} {self._call.target.split('?')[0]} is larger "
                f"than its limit of {self._call.limit} bytes"
            )
        if time.monotonic() - self._began > self._call.timeout_s:
            raise _TooSlow
        self._taken += piece

    def reply(self, response: httpx.Response) -> Reply:
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Reply(response.status_code, headers, bytes(self._taken))


def _headers(call: Call) -> dict[str, str]:
    return {**call.headers, "Content-Length": str(call.length)}


def _timeout(call: Call) -> httpx.Timeout:
    return httpx.Timeout(call.timeout_s, connect=_CONNECT_S)


def _lost(error: Exception) -> Lost:
    """Return why there is no response; an untrusted certificate raises: a retry cannot help."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise CertificateRefused(
                f"the coordinator's certificate is not trusted ({cause.verify_message}). If your "
                "organisation has its own certificate authority, pass its file: ca=, --ca"
            ) from error
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.TimeoutException | _TooSlow):
        return Lost("no response in time")
    return Lost(f"no connection: {type(error).__name__}")


def _trusted(ca: str | os.PathLike[str] | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except (OSError, ssl.SSLError) as error:
        raise CertificateRefused(
            f"the certificate authority file {str(ca)!r} is not a PEM certificate: {error}"
        ) from error
