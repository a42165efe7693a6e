"""Signing in to the page: an admin shows the token once, the browser keeps something lesser.

The cookie holds a token of its own: 256 random bits, kept here as their hash like every other,
worth nothing but reading the page, ended by time, by signing out, and by `veilgp token reset`.
Being a row, it needs no signing key that replicas would have to share, and no reader of the
database can make one. It is HttpOnly and SameSite=Strict; nothing that it opens changes anything,
so a request that another site forges gains nothing.
"""

from collections.abc import Mapping

from sqlalchemy import Connection, delete, update
from starlette.responses import Response

from service.database.tables import tokens as token_table
from service.http import tokens
from service.http.tokens import Issued, Role, Token

COOKIE = "veilgp_page"
LASTS_S = 8 * 3600


def sign_in(connection: Connection, secret: str, *, now: float) -> Issued | None:
    """Give what the browser of whoever has this admin's token shall keep; None for others."""
    token = tokens.find(connection, secret, now=now)
    if token is None or token.role is not Role.ADMIN:
        return None
    over = (token_table.c.role == Role.PAGE) & (token_table.c.expires_at <= now)
    connection.execute(delete(token_table).where(over))
    return tokens.issue(connection, Role.PAGE, token.name, now=now, expires_at=now + LASTS_S)


def sign_out(connection: Connection, token: Token, *, now: float) -> None:
    """Make it worthless."""
    here = token_table.c.id == token.id
    connection.execute(update(token_table).where(here).values(revoked_at=now))


def find(connection: Connection, cookies: Mapping[str, str], *, now: float) -> Token | None:
    """Give what a browser has signed in with, if it still counts."""
    secret = cookies.get(COOKIE)
    token = None if secret is None else tokens.find(connection, secret, now=now)
    return token if token is not None and token.role is Role.PAGE else None


def set_cookie(response: Response, issued: Issued, *, secure: bool) -> None:
    """Let the browser keep it; over TLS it is never sent without."""
    response.set_cookie(
        COOKIE,
        issued.secret,
        max_age=LASTS_S,
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )
