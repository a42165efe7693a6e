"""The coordinator's database: SQLite (WAL) in its data directory, or PostgreSQL by URL.

Every change is one transaction. On SQLite it takes the write lock when it begins (`BEGIN
IMMEDIATE`), so that what it has read stays true until it commits; on PostgreSQL the rows that
matter are locked by `SELECT … FOR UPDATE`. A commit is on disk when it returns.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Lock
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event, make_url

_MIGRATIONS = Path(__file__).parent / "migrations"
_BUSY_S = 30
_KEPT = 48
"""Connections to SQLite that stay open: one for each thread that may ask for one. Those beyond the
pool's size would be opened, and told all their pragmas, for every transaction."""


class Database:
    """An engine, and the two ways to use it: to read, and to change in one transaction."""

    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        # SQLite lets one write at a time; its own queue is to sleep and try again.
        self._writing = Lock()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a connection whose view is that of one moment; what it writes is lost."""
        with self.engine.connect() as connection:
            if self.is_sqlite:
                connection.exec_driver_sql("BEGIN")
            else:
                connection.execution_options(isolation_level="REPEATABLE READ")
            try:
                yield connection
            finally:
                connection.rollback()

    @contextmanager
    def changing(self, *, lasting: bool = True) -> Iterator[Connection]:
        """Give a connection in a transaction that commits at the end, or not at all.

        lasting: the commit is on disk before this returns. Without, it survives the death of this
        process but maybe not that of the machine; for what a later moment makes worthless anyway.
        """
        queue = self._writing if self.is_sqlite else nullcontext()
        with queue, self.engine.connect() as connection:
            if self.is_sqlite:
                connection.exec_driver_sql(f"PRAGMA synchronous={'FULL' if lasting else 'NORMAL'}")
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            elif not lasting:
                connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    @property
    def is_sqlite(self) -> bool:
        """Whether all of it is one file."""
        return self.engine.dialect.name == "sqlite"

    def migrate(self) -> None:
        """Bring the database to the form of `service.tables`, from whichever it has."""
        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS))
        with self.engine.connect() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def _engine(url: str) -> Engine:
    if make_url(url).get_backend_name() != "sqlite":
        return create_engine(url)
    engine = create_engine(url, pool_size=_KEPT)
    event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _: Any) -> None:
    # Transactions begin where `changing` says so, not where the driver guesses.
    connection.isolation_level = None
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        f"busy_timeout={_BUSY_S * 1000}",
    ):
        connection.execute(f"PRAGMA {pragma}")
