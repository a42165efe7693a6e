"""INSERT with ON CONFLICT, which has a separate construct for each SQL dialect."""

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def upsert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Return an INSERT with `on_conflict_do_nothing` and `on_conflict_do_update`."""
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    return insert(table)
