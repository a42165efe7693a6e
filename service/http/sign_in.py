"""Signing in to the page: the admin enters the admin token, the browser keeps a weaker one.

The cookie holds a separate token: 256 random bits, stored as a hash like every other token. It can
only read the page, and ends by expiry, by signing out and by `veilgp token reset`. Because it is a
row in the database, replicas need no shared signing key, and reading the database is not enough to
forge one. The cookie is HttpOnly and SameSite=Strict. It gives access to nothing that changes
state, so a cross-site request forgery gains nothing.
"""

from collections.abc import Mapping

from sqlalchemy import Connection, delete, update
from starlette.responses import Response

from service.database.tables import tokens as token_table
from service.http import tokens
from service.http.tokens import Issued, Role, Token

COOKIE = "veilgp_page"
LASTS_S = 8 * 3600


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
