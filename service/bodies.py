"""Bodies of requests: read within a limit and a deadline, believed once their digest is checked.

A route names the JSON that it takes after the one who asks, and FastAPI resolves parameters in
order: nothing is read for whom the first one refuses.

    def create(admin: Admin, new: Annotated[NewSession, sent(NewSession)]) -> …
"""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import Depends, Request
from pydantic import ValidationError

from privacy.errors import WrongBody
from privacy.requests import SCHEME, SignedRequest
from service.access import MemberAccess
from service.context import Context, Here
from service.errors import BodyTooLarge, BodyTooSlow
from service.sent import Sent, refused
from service.stated import states

T = TypeVar("T", bound=Sent)


async def read_body(request: Request, member: MemberAccess | SignedRequest, limit: int) -> bytes:
    """Read a body of at most `limit` octets that is the one its sender has signed."""
    body = await read_unsigned(request, limit)
    if not hmac.compare_digest(hashlib.sha256(body).digest(), member.digest):
        raise WrongBody("The body is not the one that was signed; something on the way changed it.")
    return body


def sent(kind: type[T], *, limit: int | None = None) -> Any:
    """Take the body as this kind of JSON; `limit` in octets, that of the settings if absent."""

    @states(BodyTooLarge, BodyTooSlow, body=kind)
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


async def read_unsigned(request: Request, limit: int) -> bytes:
    """Read a body of at most `limit` octets, of a sender who shows a token."""
    announced = request.headers.get("Content-Length", "0")
    _refuse_longer(int(announced) if announced.isdecimal() else 0, limit)
    here: Context = request.app.state.context
    body = bytearray()
    async with in_time(here.settings.body_deadline_s):
        async for piece in request.stream():
            body += piece
            _refuse_longer(len(body), limit)
    return bytes(body)


@asynccontextmanager
async def in_time(seconds: float) -> AsyncIterator[None]:
    """Refuse a body that is not here by then: a connection that dribbles holds memory, or disk."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise BodyTooSlow(
            f"The body did not arrive within {seconds:g} s; send it again, over a faster line."
        ) from None


def _refuse_longer(length: int, limit: int) -> None:
    if length > limit:
        raise BodyTooLarge(f"The body may have {limit} octets here; this one has more.")
