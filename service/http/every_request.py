"""The outermost layer of every request: protocol check, request id, security headers, failures.

SDK and coordinator each send the protocol that they use (`Veilgp-Protocol`), so that a mismatch is
reported first, together with the side to upgrade. A client that sends no such header, such as an
admin's curl, is accepted.
"""

import logging
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import ProtocolMismatch
from service.http.logs import about_request
from service.http.metrics import route_of
from service.http.problems import problem

PROTOCOL = 2
"""The newest protocol that this coordinator supports."""
OLDEST = 2

_log = logging.getLogger(__name__)

_CAUTION = {
    "Veilgp-Protocol": str(PROTOCOL),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""Headers of every answer, unless its route sets them itself."""


class Envelope:
    """The outermost layer of the application, in plain ASGI; it does not read or change bodies."""

    def __init__(self, app: ASGIApp, *, secure: bool) -> None:
        self._app = app
        self._defaults = dict(_CAUTION)
        if secure:
            self._defaults["Strict-Transport-Security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it if its protocol is not supported."""
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
            # The answer has only the id: the error's message may quote what was sent.
            _log.exception("request %s failed", request_id)
            if status is not None:
                raise
            failed = problem(
                500,
                "internal",
                "The coordinator failed to answer this request; its log has the reason under the "
                f"request id {request_id}. Try again: everything acknowledged so far is stored.",
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
        f"The request uses protocol {spoken[:20]!r}; this coordinator supports {OLDEST} to "
        f"{PROTOCOL}. Upgrade {side}.",
        headers={"Upgrade": f"Veilgp/{PROTOCOL}"},
        newest=PROTOCOL,
        oldest=OLDEST,
    )
