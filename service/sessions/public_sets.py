"""Public tables without confidential rows: with labels for distillation, without for ensembles.

A session copies the columns when it is created, so a set may be replaced or deleted later.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from kernels.rounds.shared.public_set import columns_of
from service.database.tables import public_sets
from service.errors import NotFound
from service.http.request_models import RequestModel


class NewPublicSet(RequestModel):
    """Columns by name, all of the same length."""

    columns: dict[str, list[str | int | float | bool | None]]


@dataclass(frozen=True)
class PublicSet:
    """A public set without its cells."""

    name: str
    columns: tuple[str, ...]
    rows: int
    created_at: float


def put(
    connection: Connection, name: str, columns: Mapping[str, Sequence[object]], *, now: float
) -> bool:
    """Store a set, replacing one of the same name; return whether the name is new."""
    # Checked before the first write.
    checked = columns_of(columns)
    replaced = connection.execute(delete(public_sets).where(public_sets.c.name == name)).rowcount
    text = json.dumps(dict(checked), allow_nan=False)
    connection.execute(insert(public_sets).values(name=name, columns=text, created_at=now))
    return replaced == 0


def find(connection: Connection, name: str) -> Mapping[str, Sequence[object]]:
    """Return a set's columns."""
    row = connection.execute(select(public_sets).where(public_sets.c.name == name)).one_or_none()
    if row is None:
        raise NotFound(
            f"There is no public set {name!r}; upload it first with PUT /public-sets/{{name}}."
        )
    columns: Mapping[str, Sequence[object]] = json.loads(row.columns)
    return columns


def every(connection: Connection) -> list[PublicSet]:
    """Return all sets, by name."""
    rows = connection.execute(select(public_sets).order_by(public_sets.c.name))
    shown = []
    for row in rows:
        columns = json.loads(row.columns)
        length = len(next(iter(columns.values())))
        shown.append(PublicSet(row.name, tuple(columns), length, row.created_at))
    return shown


def remove(connection: Connection, name: str) -> None:
    """Delete a set."""
    if not connection.execute(delete(public_sets).where(public_sets.c.name == name)).rowcount:
        raise NotFound(f"There is no public set {name!r}; GET /public-sets lists them.")
