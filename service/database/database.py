"""The coordinator's database: SQLite (WAL) in its data directory, or PostgreSQL by URL.

Every change is one transaction, and what it has read stays valid until it commits. On SQLite it
takes the write lock at its start (`BEGIN IMMEDIATE`). On PostgreSQL changes exclude each other with
one advisory lock, across all replicas; frequent changes instead lock only what they read, a run's
row, with `SELECT … FOR UPDATE`. A commit is on disk when it returns.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Lock
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError

from service.database import schema_version
from service.errors import SettingsError

_BUSY_S = 30
_RETRY_S = 0.02
_KEPT = 48
"""Connections to SQLite that stay open: one for each thread that may need one. Connections beyond
the pool's size would be opened, with all their pragmas, for every transaction."""
# PostgreSQL allows 100 connections by default: enough for four replicas.
_CONNECTIONS, _MORE_CONNECTIONS = 5, 15
# Advisory locks are numbers in one space for the whole database: b"veil" and a counter.
_MIGRATING, _CHANGING = 0x7665696C_00000001, 0x7665696C_00000002


class Database:
    """A database engine with two kinds of transactions: reading and changing."""

    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        # SQLite allows one writer at a time; its own way to wait is to sleep and try again.
        self._writing = Lock()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection with a consistent snapshot; anything it writes is rolled back."""
        with self.engine.connect() as connection:
            if self.is_sqlite:
                _tell(connection, "BEGIN")
            else:
                connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
            # The pool rolls returned connections back.
            yield connection

    @contextmanager
    def changing(self, *, lasting: bool = True, alone: bool = True) -> Iterator[Connection]:
        """Yield a connection in a transaction that commits on exit, or rolls back on an error.

        lasting: the commit is on disk before this returns. If False, it survives a crash of this
        process but perhaps not of the machine; for data that soon becomes obsolete anyway.
        alone: no other such change happens meanwhile. If False, the caller locks what it reads.
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
        """Yield a connection as `changing` does; on SQLite, deleted data is also overwritten.

        Otherwise it would stay in the file's free pages and in the write-ahead log. PostgreSQL
        reclaims the space when it vacuums.
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

    def check(self) -> None:
        """Raise an error if the database does not answer."""
        with self.reading() as connection:
            connection.exec_driver_sql("SELECT 1")

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is an SQLite file."""
        return self.engine.dialect.name == "sqlite"

    def migrate(self) -> None:
        """Migrate the database to the schema of `service.database.tables`, or change nothing.

        Replicas that start at the same time wait for each other here.
        """
        with self.engine.connect() as connection:
            if self.is_sqlite:
                # Rebuilding a table drops it temporarily: its dependent rows must not be deleted.
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
    """Execute a statement with SQLite's own driver, ten times faster than with SQLAlchemy."""
    driver: Any = connection.connection.driver_connection
    try:
        driver.execute(sql)
    except sqlite3.Error as error:
        raise OperationalError(sql, None, error) from error


def _take(connection: Connection, lock: int) -> None:
    """Wait for an advisory lock and hold it until the transaction ends."""
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
            # A restarted database is noticed before it makes a request fail.
            pool_pre_ping=True,
        )
    except ModuleNotFoundError as error:
        raise SettingsError(
            "The PostgreSQL driver is not installed: run pip install 'veilgp[server,postgres]'."
        ) from error


def _prepare_sqlite(connection: sqlite3.Connection, _: Any) -> None:
    # Transactions are started explicitly, not by the driver.
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout={_BUSY_S * 1000}")
    _use_write_ahead_log(connection)
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch a new file to WAL; replicas that start together wait for the first one to do it.

    The switch needs the file alone, and SQLite refuses it at once where another connection has it
    open in a transaction, whatever the busy timeout is.
    """
    last = time.monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > last:
                raise
            time.sleep(_RETRY_S)
        else:
            return
