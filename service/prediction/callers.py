"""Callers: users who may request predictions of listed models, each with its own token."""

from dataclasses import dataclass

from pydantic import Field
from sqlalchemy import Connection, select, update

from service.database.tables import aliases, models, token_models
from service.database.tables import tokens as token_table
from service.errors import NotFound
from service.http import tokens
from service.http.request_models import Name, RequestModel, Seconds
from service.http.tokens import Issued, Role


class NewCaller(RequestModel):
    """A caller's name and models (ids or aliases); without `expires_in_s` valid until revoked."""

    name: Name
    models: list[str] = Field(min_length=1, max_length=100)
    expires_in_s: Seconds | None = None
    trusted: bool = Field(
        default=False,
        description="Whether the caller gets the variance of each row, and the model itself, even "
        "where they could reveal who is among the training rows: for systems of a hospital that "
        "may know.",
    )


@dataclass(frozen=True)
class CallerRow:
    """A caller without its token."""

    id: str
    name: str
    models: tuple[str, ...]
    trusted: bool
    created_at: float
    expires_at: float | None
    revoked_at: float | None


def create(connection: Connection, new: NewCaller, *, now: float) -> tuple[CallerRow, Issued]:
    """Create a caller for existing models; return it with its token, which is shown once."""
    known = set(connection.execute(select(models.c.id)).scalars())
    known |= set(connection.execute(select(aliases.c.alias)).scalars())
    unknown = sorted(set(new.models) - known)
    if unknown:
        raise NotFound(f"There is no model or alias {', '.join(map(repr, unknown))}.")
    expires_at = None if new.expires_in_s is None else now + new.expires_in_s
    issued = tokens.issue(
        connection,
        Role.CALLER,
        new.name,
        now=now,
        expires_at=expires_at,
        models=new.models,
        trusted=new.trusted,
    )
    named = tuple(sorted(set(new.models)))
    return CallerRow(issued.id, new.name, named, new.trusted, now, expires_at, None), issued


def every(connection: Connection) -> list[CallerRow]:
    """Return all callers, including revoked ones."""
    named: dict[str, list[str]] = {}
    for row in connection.execute(select(token_models).order_by(token_models.c.model)):
        named.setdefault(row.token_id, []).append(row.model)
    query = select(token_table).where(token_table.c.role == Role.CALLER)
    return [
        CallerRow(
            row.id,
            row.name,
            tuple(named.get(row.id, ())),
            row.trusted,
            row.created_at,
            row.expires_at,
            row.revoked_at,
        )
        for row in connection.execute(query.order_by(token_table.c.created_at))
    ]


def revoke(connection: Connection, caller_id: str, *, now: float) -> None:
    """Revoke a caller's token."""
    here = (token_table.c.id == caller_id) & (token_table.c.role == Role.CALLER)
    revoked = update(token_table).where(here, token_table.c.revoked_at.is_(None))
    connection.execute(revoked.values(revoked_at=now))
    if connection.execute(select(token_table.c.id).where(here)).first() is None:
        raise NotFound("There is no caller with this id.")
