"""Signing in to the page: the admin enters the admin token, the browser keeps another one.

The cookie holds a separate token: 256 random bits, stored as a hash like every other token. It is
valid on the page only, and ends by expiry, by signing out and by `veilgp token reset`. Because it
is a row in the database, replicas need no shared signing key, and reading the database is not
enough to forge one.

The cookie is HttpOnly and SameSite=Strict. That is not enough against a forged form: a browser
counts another port or another name of the same domain as the same site, and sends them the cookie.
So every form also has a key that follows from the cookie and that only this page can know
(`form_key`).
"""

import hashlib
import hmac
from collections.abc import Mapping

from sqlalchemy import Connection, delete, update
from starlette.responses import Response

from service.database.tables import tokens as token_table
from service.http import tokens
from service.http.tokens import Issued, Role, Token

COOKIE = "veilgp_page"
LASTS_S = 8 * 3600
_LABEL = b"veilgp/page/form"


def is_admin(connection: Connection, secret: str, *, now: float) -> bool:
    """Whether a secret is an admin's; reads only."""
    token = tokens.find(connection, secret, now=now)
    return token is not None and token.role is Role.ADMIN


def sign_in(connection: Connection, secret: str, *, now: float) -> Issued | None:
    """Return a page token in exchange for an admin's secret; None for any other secret."""
    token = tokens.find(connection, secret, now=now)
    if token is None or token.role is not Role.ADMIN:
        return None
    over = (token_table.c.role == Role.PAGE) & (token_table.c.expires_at <= now)
    connection.execute(delete(token_table).where(over))
    return tokens.issue(connection, Role.PAGE, token.name, now=now, expires_at=now + LASTS_S)


def sign_out(connection: Connection, token: Token, *, now: float) -> None:
    """Revoke a page token."""
    here = token_table.c.id == token.id
    connection.execute(update(token_table).where(here).values(revoked_at=now))


def find(connection: Connection, cookies: Mapping[str, str], *, now: float) -> Token | None:
    """Return the valid page token in a browser's cookies, if there is one."""
    secret = cookies.get(COOKIE)
    token = None if secret is None else tokens.find(connection, secret, now=now)
    return token if token is not None and token.role is Role.PAGE else None


def form_key(cookies: Mapping[str, str]) -> str:
    """Return what every form of a signed-in browser sends along; the cookie does not follow."""
    secret = cookies.get(COOKIE, "").encode(errors="surrogatepass")
    return hmac.new(secret, _LABEL, hashlib.sha256).hexdigest()


def set_cookie(response: Response, issued: Issued, *, secure: bool) -> None:
    """Set the cookie; with `secure` the browser sends it only over TLS."""
    response.set_cookie(
        COOKIE,
        issued.secret,
        max_age=LASTS_S,
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )
