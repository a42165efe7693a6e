"""Notices between replicas: members waiting at one replica learn at once of changes at another.

PostgreSQL delivers a notice when the transaction that sent it commits (LISTEN and NOTIFY). A lost
notice, for instance while the connection is down, only causes a short delay: waiting requests also
check regularly by themselves. With SQLite there is only one process, and no notices.
"""

import logging
from collections.abc import Callable
from threading import Event, Thread

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import SQLAlchemyError

from service.database.database import Database

log = logging.getLogger(__name__)

_CHANNEL = "veilgp"
_STOP_WITHIN_S = 0.2
_AGAIN_AFTER_S = 2.0


def notify(connection: Connection, session_id: str, *, sender: str = "") -> None:
    """Notify all replicas except `sender` of a changed session when this transaction commits."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_notify(_CHANNEL, f"{session_id} {sender}")))


class NoticeListener:
    """A thread that receives other replicas' notices, from `start` to `stop`."""

    def __init__(self, database: Database, heard: Callable[[str], None], *, own: str) -> None:
        """Call `heard` with a session's id for each notice, except those of the sender `own`."""
        self._database = database
        self._heard = heard
        self._own = own
        self._stopping = Event()
        self._thread = Thread(target=self._listen, name="veilgp-listener", daemon=True)

    def start(self) -> None:
        """Start listening, if the database can have other replicas."""
        if not self._database.is_sqlite:
            self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _listen(self) -> None:
        from psycopg import Error  # the driver is installed only with PostgreSQL

        while not self._stopping.is_set():
            try:
                self._hear()
            except (SQLAlchemyError, Error):
                log.exception("the database does not answer; notices of other replicas are delayed")
                self._stopping.wait(_AGAIN_AFTER_S)

    def _hear(self) -> None:
        with self._database.engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql(f"LISTEN {_CHANNEL}")
            try:
                driver = connection.connection.driver_connection
                while driver is not None and not self._stopping.is_set():
                    for notice in driver.notifies(timeout=_STOP_WITHIN_S):
                        session_id, _, sender = notice.payload.partition(" ")
                        if sender != self._own:
                            self._heard(session_id)
            finally:
                connection.invalidate()  # otherwise it would keep listening in its next use
