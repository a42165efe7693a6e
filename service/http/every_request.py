"""Around every request: the protocol's number, an id, headers of caution, and no bare crash.

SDK and coordinator each say which protocol they speak (`Veilgp-Protocol`), so that a mismatch is
named with the side to upgrade, before anything else can fail in a stranger way. A client that says
nothing, such as an admin's curl, is answered.
"""

import logging
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import ProtocolMismatch
from service.http.logs import about_request
from service.http.metrics import route_of
from service.http.problems import problem

PROTOCOL = 1
"""The newest protocol that this coordinator speaks."""
OLDEST = 1

_log = logging.getLogger(__name__)

_CAUTION = {
    "Veilgp-Protocol": str(PROTOCOL),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""What an answer has unless its route says otherwise."""


class Envelope:
    """The outermost layer of the application, in plain ASGI: it touches no body."""

    def __init__(self, app: ASGIApp, *, secure: bool) -> None:
        self._app = app
        self._defaults = dict(_CAUTION)
        if secure:
            self._defaults["Strict-Transport-Security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse its protocol."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = uuid4().hex
        with about_request(request_id):
            await self._answer(scope, receive, send, request_id)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        status = None

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                for name, value in self._defaults.items():
                    headers.setdefault(name, value)
            await send(message)

        spoken = Headers(scope=scope).get("Veilgp-Protocol")
        app = self._app if spoken is None or _is_spoken(spoken) else _mismatch(spoken)
        try:
            await app(scope, receive, send_with_headers)
        except Exception:
            # Only the id goes out: what went wrong may quote what was sent.
            _log.exception("request %s failed", request_id)
            if status is not None:
                raise
            failed = problem(
                500,
                "internal",
                f"The coordinator failed, and its log says why under {request_id}. Try again; "
                "everything that was acknowledged is kept.",
            )
            await failed(scope, receive, send_with_headers)
        about = scope.get("path_params", {})
        ids = {"session": about.get("session_id"), "run": about.get("run_id")}
        _log.debug("%s %s: %s", scope["method"], route_of(scope), status, extra=ids)


def _is_spoken(spoken: str) -> bool:
    return spoken.isascii() and spoken.isdigit() and OLDEST <= int(spoken[:9]) <= PROTOCOL


def _mismatch(spoken: str) -> ASGIApp:
    number = int(spoken[:9]) if spoken.isascii() and spoken.isdigit() else 0
    side = "the coordinator" if number > PROTOCOL else "veilgp at the hospital"
    return problem(
        ProtocolMismatch.status,
        ProtocolMismatch.code,
        f"The request speaks protocol {spoken[:20]!r}, this coordinator {OLDEST} to {PROTOCOL}: "
        f"upgrade {side}.",
        headers={"Upgrade": f"Veilgp/{PROTOCOL}"},
        newest=PROTOCOL,
        oldest=OLDEST,
    )
