"""The open runs in the memory of this process, and the transactions that change them.

The rows are authoritative. A run in memory is valid as long as its version equals the row's; after
another replica's change or a restart it is loaded again. If a transaction fails, the object in
memory is discarded together with its unsaved changes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from sqlalchemy import Connection, bindparam, select

from service.database import notices
from service.database.database import Database
from service.database.tables import runs
from service.errors import NotFound, RunEnded
from service.runs import loading, saving
from service.runs.machine.changes import Change
from service.runs.machine.plan import OPEN
from service.runs.machine.run import Run
from service.settings import Settings

# Every request of a member runs one of these: building them once makes them five times faster.
_VERSION = select(runs.c.session_id, runs.c.status, runs.c.version).where(
    runs.c.id == bindparam("run_id")
)
_LOCKED_VERSION = _VERSION.with_for_update()


@dataclass(eq=False)
class _LiveRun:
    """A run in memory; its lock is held while it is read or changed."""

    lock: Lock = field(default_factory=Lock)
    run: Run | None = None
    version: int = -1


@dataclass(eq=False)
class Transaction:
    """An open run whose row is locked, and the connection that writes its changes."""

    connection: Connection
    run: Run
    version: int
    has_new_phase: bool = False
    """Whether members' next items may have changed; known after the transaction."""
    intact: bool = False
    """Whether an error now would leave the object unchanged."""

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Mark a block in which an error is a refusal of the run, which changes nothing."""
        self.intact = True
        yield
        self.intact = False

    def advance(self, now: float) -> None:
        """Let the run do its next steps, and store the changes."""
        self.keep(self.run.advance(now), now)

    def keep(self, changes: Sequence[Change], now: float) -> None:
        """Store changes under a new version."""
        for change in changes:
            saving.write_change(self.connection, self.run, change, now)
        self.version += 1
        saving.write_version(self.connection, self.run, self.version)


class LiveRuns:
    """The runs in memory of one process; `replica` is its id among the replicas."""

    def __init__(self, database: Database, settings: Settings, *, replica: str) -> None:
        self._database = database
        self._settings = settings
        self._replica = replica
        self._lock = Lock()
        self._runs: dict[str, _LiveRun] = {}

    @contextmanager
    def changing(
        self, run_id: str, session_id: str | None = None, *, lasting: bool = True
    ) -> Iterator[Transaction]:
        """Yield an open run in a transaction that locks its row; other replicas are notified."""
        change: Transaction | None = None
        with self._holding(run_id) as live:
            try:
                with self._database.changing(lasting=lasting, alone=False) as connection:
                    version = _version(connection, run_id, session_id, lock=True)
                    if live.run is None or live.version != version:
                        live.run, live.version = loading.load(connection, run_id, self._settings)
                    change = Transaction(connection, live.run, live.version)
                    phase = live.run.phase
                    yield change
                    change.has_new_phase = change.run.phase != phase
                    if change.has_new_phase:
                        self._tell(connection, change.run.plan.session_id)
                live.version = change.version
            except BaseException:
                if change is not None and not change.intact:
                    live.run = None
                raise
            if change.run.ending is not None:
                live.run = None

    @contextmanager
    def discarding(self, run_id: str) -> Iterator[Connection]:
        """Yield a transaction that locks an open run's row, even if the run cannot be loaded."""
        with self._holding(run_id) as live:
            live.run = None
            with self._database.changing(alone=False) as connection:
                _version(connection, run_id, None, lock=True)
                yield connection

    def forget(self, run_id: str) -> None:
        """Discard a run from memory, so that it is loaded again before its next use."""
        with self._holding(run_id) as live:
            live.run = None

    @contextmanager
    def looking(self, run_id: str, session_id: str | None = None) -> Iterator[tuple[Run, int]]:
        """Yield an open run and its version; it does not change meanwhile."""
        with self._database.reading() as connection:
            version = _version(connection, run_id, session_id)
        with self.looking_at(run_id, version) as found:
            yield found

    @contextmanager
    def looking_at(self, run_id: str, version: int) -> Iterator[tuple[Run, int]]:
        """Yield a run that is open at this version of its row, in this or a later version."""
        with self._holding(run_id) as live:
            # Versions only increase: an object newer than the row that was read is valid, too.
            if live.run is None or live.version < version:
                with self._database.reading() as connection:
                    live.run, live.version = loading.load(connection, run_id, self._settings)
            yield live.run, live.version

    def _tell(self, connection: Connection, session_id: str) -> None:
        notices.notify(connection, session_id, sender=self._replica)

    @contextmanager
    def _holding(self, run_id: str) -> Iterator[_LiveRun]:
        with self._lock:
            live = self._runs.setdefault(run_id, _LiveRun())
        with live.lock:
            try:
                yield live
            finally:
                if live.run is None:
                    with self._lock:
                        self._runs.pop(run_id, None)


def _version(
    connection: Connection, run_id: str, session_id: str | None, *, lock: bool = False
) -> int:
    """Return the version of an open run's row; the run must belong to `session_id` if given."""
    query = _LOCKED_VERSION if lock else _VERSION
    row = connection.execute(query, {"run_id": run_id}).one_or_none()
    if row is None or session_id not in (None, row.session_id):
        raise NotFound("The session has no run with this id.")
    if row.status not in OPEN:
        raise RunEnded("The run has ended; request the next item.")
    version: int = row.version
    return version
