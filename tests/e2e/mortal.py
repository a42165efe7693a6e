"""A hospital that dies at each of its requests, in one process with the real coordinator."""

import re
from collections import Counter
from typing import Any

import httpx

from tests.e2e.hospital import KINDS

_ID = "[0-9a-f-]{32,}"


class Killed(BaseException):
    """The hospital's process ends here."""


class Mortal(httpx.ASGITransport):
    """Ends its hospital twice at each kind of request: before it, then before its answer is used.

    The first request of a kind dies before it is sent; its repetition dies before its answer.
    """

    def __init__(self, app: Any, seen: Counter[str]) -> None:
        super().__init__(app)
        self._seen = seen

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        kind = _kind_of(request.method, request.url.path, await request.aread())
        self._seen[kind] += 1
        if self._seen[kind] in (1, 4):
            raise Killed
        response = await super().handle_async_request(request)
        if self._seen[kind] in (2, 5):
            raise Killed
        return response


def _kind_of(method: str, path: str, body: bytes) -> str:
    """Return a request's method and path without ids, or the kind of its message."""
    if path.endswith("/messages"):
        return KINDS[body[1]]
    return f"{method} {re.sub(_ID, '…', path)}"
