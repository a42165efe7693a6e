"""INSERT that says what happens where the row is there: each dialect has its own."""

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def upsert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Return an INSERT with `on_conflict_do_nothing` and `on_conflict_do_update`."""
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    return insert(table)
