"""Bodies of requests: read within a limit and a deadline, and checked against the signed digest.

FastAPI resolves parameters in order, so a route names its JSON body after the requester: if the
requester is refused, the body is not read.

    def create(admin: Admin, new: Annotated[NewSession, json_body(NewSession)]) -> …
"""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO, Any, TypeVar

from fastapi import Depends, Request
from pydantic import ValidationError

from privacy.errors import WrongBody
from privacy.requests import SCHEME, SignedRequest
from service.context import Context, Here
from service.errors import BodyTooLarge, BodyTooSlow, LengthRequired
from service.http.access import MemberAccess
from service.http.declarations import declares
from service.http.request_models import RequestModel, refused

T = TypeVar("T", bound=RequestModel)

_MOST_DIGITS = 30
_DRAINED = 64 << 20
"""Most bytes that are read of a body that is refused."""


async def read_body(request: Request, member: MemberAccess | SignedRequest, limit: int) -> bytes:
    """Read a body of at most `limit` bytes and check it against its sender's signed digest."""
    body = await read_unsigned(request, limit)
    _check_signed(hashlib.sha256(body).digest(), member)
    return body


def json_body(kind: type[T], *, limit: int | None = None) -> Any:
    """Return a dependency that reads JSON; `limit` in bytes, by default the setting `max_body`."""

    @declares(BodyTooLarge, BodyTooSlow, body=kind)
    async def read_json(request: Request, here: Here) -> T:
        most = here.settings.max_body if limit is None else limit
        header = request.headers.get("Authorization", "")
        if header.startswith(SCHEME):
            body = await read_body(request, SignedRequest.parse(header), most)
        else:
            body = await read_unsigned(request, most)
        try:
            return kind.model_validate_json(body)
        except ValidationError as error:
            raise refused(error) from None

    return Depends(read_json)


def announced_size(request: Request, *, least: int = 0, most: int) -> int:
    """Return the Content-Length of a streamed body, which must be from `least` to `most` bytes."""
    size = _content_length(request)
    if size is None:
        raise LengthRequired("The request must have a Content-Length header.")
    _refuse_longer(size, most)
    if size < least:
        raise LengthRequired(f"The body must have at least {least} bytes, not {size}.")
    return size


async def read_unsigned(request: Request, limit: int) -> bytes:
    """Read a body of at most `limit` bytes that is not signed."""
    _refuse_longer(_content_length(request) or 0, limit)
    here: Context = request.app.state.context
    body = bytearray()
    async with in_time(here.settings.body_deadline_s):
        async for piece in request.stream():
            body += piece
            _refuse_longer(len(body), limit)
    return bytes(body)


@asynccontextmanager
async def in_time(seconds: float) -> AsyncIterator[None]:
    """Refuse a body that does not arrive in time: a slow connection holds memory or disk."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise BodyTooSlow(
            f"The body did not arrive within {seconds:g} s; send it again over a faster connection."
        ) from None


class BodyStream:
    """A request's body, read from its start and hashed as it is read."""

    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        self._stream = stream
        self._front = b""
        self._digest = hashlib.sha256()

    async def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        pieces, have = [self._front], len(self._front)
        while have < count:
            piece = await anext(self._stream, b"")
            if not piece:
                raise _cut_short()
            pieces.append(piece)
            have += len(piece)
        joined = b"".join(pieces)
        self._front = joined[count:]
        self._digest.update(joined[:count])
        return joined[:count]

    async def save(self, count: int, file: IO[bytes], member: MemberAccess) -> None:
        """Write the remaining `count` bytes to `file` and check the whole body's digest."""
        async for piece in self._rest(count):
            self._digest.update(piece)
            file.write(piece)
        _check_signed(self._digest.digest(), member)

    async def _rest(self, count: int) -> AsyncIterator[bytes]:
        if self._front:
            count -= len(self._front)
            yield self._front
        async for piece in self._stream:
            count -= len(piece)
            if count < 0:
                break
            yield piece
        if count != 0:
            raise _cut_short()

    async def drain(self) -> None:
        """Read and discard a refused body, up to a limit, so that its sender gets the answer."""
        most = _DRAINED
        async for piece in self._stream:
            most -= len(piece)
            if most < 0:
                return


def _check_signed(digest: bytes, member: MemberAccess | SignedRequest) -> None:
    if not hmac.compare_digest(digest, member.digest):
        raise WrongBody(
            "The body does not match its signature: it was changed in transit. Send it again."
        )


def _content_length(request: Request) -> int | None:
    said = request.headers.get("Content-Length", "")
    if not said.isascii() or not said.isdigit():
        return None
    # Python refuses to parse thousands of digits; no real length has that many.
    return int(said[:_MOST_DIGITS])


def _cut_short() -> LengthRequired:
    return LengthRequired("The length of the body differs from its Content-Length; send it again.")


def _refuse_longer(length: int, limit: int) -> None:
    if length > limit:
        raise BodyTooLarge(f"The body must have at most {limit} bytes on this route; it has more.")
