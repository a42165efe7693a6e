"""The coordinator's database: SQLite (WAL) in its data directory, or PostgreSQL by URL.

Every change is one transaction, and what it has read stays true until it commits. On SQLite it
takes the write lock when it begins (`BEGIN IMMEDIATE`). On PostgreSQL changes exclude each other by
one advisory lock, over all replicas; those that come often lock what they read instead, a run's row
by `SELECT … FOR UPDATE`, and exclude nobody else. A commit is on disk when it returns.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Lock
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError

from service.database import schema_version
from service.errors import SettingsError

_BUSY_S = 30
_KEPT = 48
"""Connections to SQLite that stay open: one for each thread that may ask for one. Those beyond the
pool's size would be opened, and told all their pragmas, for every transaction."""
# PostgreSQL allows 100 connections unless told otherwise: enough for four replicas.
_CONNECTIONS, _MORE_CONNECTIONS = 5, 15
# Names of advisory locks are numbers, in one space for the whole database: b"veil" and a counter.
_MIGRATING, _CHANGING = 0x7665696C_00000001, 0x7665696C_00000002


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
                _tell(connection, "BEGIN")
            else:
                connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
            # What is given back is rolled back.
            yield connection

    @contextmanager
    def changing(self, *, lasting: bool = True, alone: bool = True) -> Iterator[Connection]:
        """Give a connection in a transaction that commits at the end, or not at all.

        lasting: the commit is on disk before this returns. Without, it survives the death of this
        process but maybe not that of the machine; for what a later moment makes worthless anyway.
        alone: no other such change happens meanwhile. Without, whoever changes locks what it reads.
        """
        queue = self._writing if self.is_sqlite else nullcontext()
        with queue, self.engine.connect() as connection:
            if self.is_sqlite:
                _tell(connection, f"PRAGMA synchronous={'FULL' if lasting else 'NORMAL'}")
                _tell(connection, "BEGIN IMMEDIATE")
            try:
                if not self.is_sqlite and not lasting:
                    connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
                if not self.is_sqlite and alone:
                    _take(connection, _CHANGING)
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    @contextmanager
    def erasing(self) -> Iterator[Connection]:
        """Change as `changing` does; what is deleted is also overwritten, on SQLite.

        There it would else stay in the file's free pages, and in the log beside it. PostgreSQL
        gives the space back when it vacuums.
        """
        with self.changing() as connection:
            if self.is_sqlite:
                _tell(connection, "PRAGMA secure_delete=ON")
            try:
                yield connection
            finally:
                if self.is_sqlite:
                    _tell(connection, "PRAGMA secure_delete=OFF")
        if self.is_sqlite:
            with self._writing, self.engine.connect() as connection:
                _tell(connection, "PRAGMA wal_checkpoint(TRUNCATE)")

    @property
    def is_sqlite(self) -> bool:
        """Whether all of it is one file."""
        return self.engine.dialect.name == "sqlite"

    def migrate(self) -> None:
        """Bring the database to the form of `service.database.tables`, or change nothing.

        Replicas that start together wait for each other here.
        """
        with self.engine.connect() as connection:
            if self.is_sqlite:
                # A table that is rebuilt is dropped on the way: nothing may follow it.
                connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                _take(connection, _MIGRATING)
            try:
                schema_version.upgrade(connection)
                connection.commit()
            finally:
                connection.rollback()
                if self.is_sqlite:
                    connection.exec_driver_sql("PRAGMA foreign_keys=ON")

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def _tell(connection: Connection, sql: str) -> None:
    """Say something to SQLite's own driver: by SQLAlchemy it takes ten times as long."""
    driver: Any = connection.connection.driver_connection
    try:
        driver.execute(sql)
    except sqlite3.Error as error:
        raise OperationalError(sql, None, error) from error


def _take(connection: Connection, lock: int) -> None:
    """Wait for an advisory lock, and have it until the transaction ends."""
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({lock})")


def _engine(url: str) -> Engine:
    if url.startswith("sqlite"):
        engine = create_engine(url, pool_size=_KEPT)
        event.listen(engine, "connect", _prepare_sqlite)
        return engine
    try:
        return create_engine(
            url,
            pool_size=_CONNECTIONS,
            max_overflow=_MORE_CONNECTIONS,
            # A database that was restarted is noticed before a request fails by it.
            pool_pre_ping=True,
        )
    except ModuleNotFoundError as error:
        raise SettingsError(
            "PostgreSQL needs its driver: pip install 'veilgp[server,postgres]'."
        ) from error


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
