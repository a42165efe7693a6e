"""Connections as uvicorn's protocol, with the limits and deadlines that uvicorn does not have.

`Admission` decides who must leave when there are too many. In addition a connection is closed

    if its TLS handshake and the headers of a request have not arrived within `header_deadline_s`
    if its peer does not read the answer: no progress for `STALL_S`

Bodies and long polls have deadlines of their own; uvicorn closes connections that are idle between
two requests. TLS is started here and not by uvicorn, which sees a connection only after its
handshake: silent ones would not be counted and would use up the process's open files.
"""

import asyncio
import ssl
from typing import Any, ClassVar

from fastapi import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.http.admission import Admission
from service.settings import Settings

STALL_S = 60.0
"""Seconds within which the peer must read something of an answer that does not fit its buffers."""
KEEP_ALIVE_S = 5
"""Seconds that a connection may be idle between two requests."""
BACKLOG = 256
"""Connections that are accepted at once; until they are counted, each uses an open file."""

_STATE = "veilgp.authenticated"


class GuardedConnection(H11Protocol):
    """One connection; `guarded` makes the class for a server."""

    admission: ClassVar[Admission]
    tls: ClassVar[ssl.SSLContext | None] = None
    header_deadline_s: ClassVar[float] = 10.0

    def __init__(
        self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None
    ) -> None:
        super().__init__(config, server_state, {**app_state, _STATE: self._authenticated}, _loop)
        self._raw: asyncio.Transport | None = None
        self._due: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._is_open = False
        self._early = b""

    def connection_made(self, transport: Any) -> None:
        """Count the connection, start the deadline for the first request, and TLS if it is on."""
        self._raw = self.transport = transport
        self._watch()
        if self.tls is None:
            self._open(transport)
        else:
            transport.pause_reading()  # until TLS reads
            self._handshake = self.loop.create_task(self._start_tls(transport, self.tls))
        peer = transport.get_extra_info("peername")
        self.admission.enter(self, str(peer[0]) if isinstance(peer, tuple) else "")

    def data_received(self, data: bytes) -> None:
        """Keep the deadline while headers are incomplete; cancel it once they have arrived."""
        if not self._is_open:  # TLS delivers before `_start_tls` continues
            self._early += data
            return
        super().data_received(data)
        self._watch()

    def handle_events(self) -> None:
        """Read what has arrived; a connection that begins a request must authenticate again."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self.admission.doubt(self)

    def pause_writing(self) -> None:
        """Start the deadline for a peer that does not read."""
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(STALL_S, self.cut_off)

    def resume_writing(self) -> None:
        """Cancel the deadline: the peer reads."""
        super().resume_writing()
        _cancel(self._stalled)
        self._stalled = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._gone()
        super().connection_lost(exc)

    def cut_off(self) -> None:
        """Close the connection at once; what has not been sent is lost."""
        if self._raw is not None:
            self._raw.abort()

    def _authenticated(self) -> None:
        """Make the connection known; may be called from any thread."""
        self.loop.call_soon_threadsafe(self.admission.know, self)

    async def _start_tls(self, raw: asyncio.Transport, tls: ssl.SSLContext) -> None:
        try:
            transport = await self.loop.start_tls(
                raw, self, tls, server_side=True, ssl_handshake_timeout=self.header_deadline_s
            )
        except OSError:  # includes those of TLS and of time
            transport = None
        if transport is None or self._raw is None:
            self._gone()
            return
        self._open(transport)
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def _open(self, transport: asyncio.Transport) -> None:
        self._is_open = True
        super().connection_made(transport)

    def _watch(self) -> None:
        if self._answering:
            _cancel(self._due)
            self._due = None
        elif self._due is None:
            self._due = self.loop.call_later(self.header_deadline_s, self._give_up)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _give_up(self) -> None:
        if not self._answering:
            self.cut_off()

    def _gone(self) -> None:
        self.admission.leave(self)
        self._raw = None
        _cancel(self._due)
        _cancel(self._stalled)


def guarded(settings: Settings) -> type[GuardedConnection]:
    """Return the protocol of one server, whose connections are counted together."""

    class Guarded(GuardedConnection):
        admission = Admission(
            most=settings.max_connections,
            most_strangers=settings.max_unauthenticated,
            # Behind a proxy every connection has the proxy's address.
            most_per_address=settings.max_unauthenticated
            if settings.behind_tls_proxy
            else settings.max_unauthenticated_per_address,
        )
        header_deadline_s = settings.header_deadline_s

    if settings.tls_certificate is not None:
        Guarded.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        Guarded.tls.load_cert_chain(settings.tls_certificate, settings.tls_key)
    return Guarded


def authenticated(request: Request) -> None:
    """Tell the connection of a request that the requester is an admin, a caller or a member."""
    told = request.scope.get("state", {}).get(_STATE)
    if told is not None:
        told()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
