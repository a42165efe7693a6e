"""Forms of the page: read within a limit, and only if this page has sent them.

    Browser     the browser of an admin who has signed in
    OwnForm     a form that this browser's own page has sent: its fields, as text

A browser sends a form with a file as multipart, and every other one as a query string. Files are
text (a schema), and a field with a file has the file's text; an empty file is an empty field.

Who has sent a form is checked before any field is used: by the key that every form of the page has
(`service.http.sign_in`), and, where the browser says it, by `Sec-Fetch-Site`.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from service.context import Context, Here
from service.errors import FormForged, FormUnreadable, NotAuthenticated
from service.http import sign_in
from service.http.bodies import read_unsigned
from service.http.connections import authenticated
from service.http.tokens import Token

KEY = "form_key"
"""The hidden field of every form."""
_MOST_FIELDS = 200
_OWN = (None, "same-origin")


@dataclass(frozen=True)
class SignedIn:
    """A signed-in browser: its token, and the key of its forms."""

    token: Token
    key: str


Fields = Mapping[str, str]


async def _browser(request: Request, here: Here) -> SignedIn:
    token = await run_in_threadpool(_find, request, here)
    if token is None:
        raise NotAuthenticated("Sign in with the admin token first.")
    authenticated(request)
    return SignedIn(token, sign_in.form_key(request.cookies))


Browser = Annotated[SignedIn, Depends(_browser)]


async def _own_form(request: Request, browser: Browser, here: Here) -> Fields:
    check_same_origin(request)
    kind = request.headers.get("Content-Type", "")
    fields = read_fields(kind, await read_unsigned(request, here.settings.max_body))
    if not hmac.compare_digest(fields.pop(KEY, "").encode(), browser.key.encode()):
        raise FormForged(
            "This form was not sent by this page, or you have signed in again since it was loaded. "
            "Nothing was changed. Go back, reload the page and send the form again."
        )
    return fields


OwnForm = Annotated[Fields, Depends(_own_form)]


def check_same_origin(request: Request) -> None:
    """Refuse a form that another page has sent, as far as the browser tells."""
    if request.headers.get("Sec-Fetch-Site") not in _OWN:
        raise FormForged("This form was sent by a page of another site. Nothing was changed.")


def read_fields(kind: str, body: bytes) -> dict[str, str]:
    """Return the fields of a form; a field that appears twice is refused.

    >>> read_fields("application/x-www-form-urlencoded", b"name=N%C3%B6rd&kind=train")
    {'name': 'Nörd', 'kind': 'train'}
    """
    try:
        pairs = _parts(kind, body) if kind.startswith("multipart/") else _pairs(body)
    except (ValueError, LookupError):  # not UTF-8, too many fields, an unknown encoding
        raise _unreadable() from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _unreadable()
    # Browsers end the lines of a text field with both.
    return {name: text.replace("\r\n", "\n") for name, text in fields.items()}


def _pairs(body: bytes) -> list[tuple[str, str]]:
    return parse_qsl(
        body.decode("ascii"),
        keep_blank_values=True,
        errors="strict",
        max_num_fields=_MOST_FIELDS,
    )


def _parts(kind: str, body: bytes) -> list[tuple[str, str]]:
    whole = message_from_bytes(b"Content-Type: %b\r\n\r\n%b" % (kind.encode("ascii"), body))
    parts = whole.get_payload()
    if not isinstance(parts, list) or len(parts) > _MOST_FIELDS or whole.defects:
        raise _unreadable()
    return [_field(part) for part in parts if isinstance(part, Message)]


def _field(part: Message) -> tuple[str, str]:
    name = part.get_param("name", header="Content-Disposition")
    content = part.get_payload(decode=True)
    if not isinstance(name, str) or not isinstance(content, bytes):
        raise _unreadable()
    # Some editors begin a file with a byte order mark, which JSON does not have.
    return name, content.decode("utf-8-sig")


def _find(request: Request, here: Context) -> Token | None:
    with here.database.reading() as connection:
        return sign_in.find(connection, request.cookies, now=here.clock())


def _unreadable() -> FormUnreadable:
    return FormUnreadable(
        "The form cannot be read: its fields and files must be text in UTF-8, each field once."
    )
