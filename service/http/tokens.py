"""Bearer tokens of admins and callers: 256 random bits, shown once, stored as their SHA-256.

    vgp_admin_…     everything
    vgp_caller_…    `/predict` with the models that it lists
    vgp_page_…      the page, in a browser's cookie, for some hours (`service.http.sign_in`)

The prefix lets secret scanners recognise a token that was committed to a repository by mistake. A
token with this much entropy cannot be guessed, so it needs no slow hash.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from uuid import uuid4

from sqlalchemy import Connection, insert, select, update

from service.database.tables import token_models, tokens

_BYTES = 32


class Role(StrEnum):
    """The kind of user that a token belongs to."""

    ADMIN = "admin"
    """The coordinator's operator."""
    CALLER = "caller"
    """A user who may request predictions of listed models."""
    PAGE = "page"
    """A browser in which an admin has signed in; not valid as a bearer token."""


@dataclass(frozen=True)
class Token:
    """A valid token, without its secret."""

    id: str
    role: Role
    name: str
    models: frozenset[str]
    """Ids and aliases, as given by the admin."""
    trusted: bool = False
    """Whether a caller gets the variances of rows, and the model, whatever they reveal."""


@dataclass(frozen=True)
class Issued:
    """A new token with its secret, which is shown once."""

    id: str
    secret: str

    def __repr__(self) -> str:
        return f"Issued({self.id})"


def hash_secret(secret: str) -> bytes:
    """Return the hash under which the secret of a token or an invitation is stored."""
    # Text from the network may contain lone surrogates; they are hashed like anything else.
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()


def make_secret() -> str:
    """Return 256 new random bits as URL-safe text."""
    return secrets.token_urlsafe(_BYTES)


def issue(
    connection: Connection,
    role: Role,
    name: str,
    *,
    now: float,
    expires_at: float | None = None,
    models: Iterable[str] = (),
    trusted: bool = False,
) -> Issued:
    """Create a token and store its hash."""
    issued = Issued(str(uuid4()), f"vgp_{role}_{make_secret()}")
    connection.execute(
        insert(tokens).values(
            id=issued.id,
            role=role,
            name=name,
            hash=hash_secret(issued.secret),
            created_at=now,
            expires_at=expires_at,
            trusted=trusted,
        )
    )
    rows = [{"token_id": issued.id, "model": model} for model in sorted(set(models))]
    if rows:
        connection.execute(insert(token_models), rows)
    return issued


def find(connection: Connection, secret: str, *, now: float) -> Token | None:
    """Return the token of this secret, or None if it is unknown, expired or revoked.

    The work is the same whether the token exists or not: one hash and one look-up. An attacker who
    could time the look-up would learn about the hashes of guesses, not of secrets.
    """
    hashed = hash_secret(secret)
    row = connection.execute(select(tokens).where(tokens.c.hash == hashed)).one_or_none()
    known = row.hash if row is not None else bytes(32)
    if not hmac.compare_digest(known, hashed) or row is None or row.revoked_at is not None:
        return None
    if row.expires_at is not None and row.expires_at <= now:
        return None
    models = connection.execute(
        select(token_models.c.model).where(token_models.c.token_id == row.id)
    ).scalars()
    return Token(row.id, Role(row.role), row.name, frozenset(models), row.trusted)


def first_admin(connection: Connection, *, now: float) -> Issued | None:
    """Create the admin token if there has never been one."""
    there = select(tokens.c.id).where(tokens.c.role == Role.ADMIN).limit(1)
    if connection.execute(there).first() is not None:
        return None
    return issue(connection, Role.ADMIN, "admin", now=now)


def reset_admin(connection: Connection, *, now: float) -> Issued:
    """Revoke all admin tokens and page sign-ins, and create a new admin token."""
    valid = tokens.c.role.in_((Role.ADMIN, Role.PAGE)) & tokens.c.revoked_at.is_(None)
    connection.execute(update(tokens).where(valid).values(revoked_at=now))
    return issue(connection, Role.ADMIN, "admin", now=now)
