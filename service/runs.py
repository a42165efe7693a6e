"""The coordinator's runs: every message that is accepted, and every step, is one transaction.

The truth is in the rows. Beside them each process keeps the runs that it works on as objects
(`service.run`), each valid for as long as its version is the row's: another replica's change, or a
restart, makes it be read again. What a transaction could not keep is forgotten with the object that
had it. So `kill -9` at any moment loses nothing that was acknowledged.

Adverts, boxes and vectors are on disk before they are acknowledged: a hospital may erase its own
copy when the next step shows that they arrived. Signatures and keys survive this process, and a
hospital gives them again if the machine under it loses them.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from sqlalchemy import Connection, select

from kernels.errors import KernelsError
from privacy.errors import PrivacyError
from privacy.securesum.messages import (
    Abandonment,
    Advert,
    Boxes,
    Certification,
    Repair,
    Reveal,
    Upload,
)
from privacy.securesum.wire import WrongKind
from service import run_storage
from service.bell import Bell
from service.database import Database
from service.errors import NotFound, RunEnded, ServiceError
from service.items import Item, item_for
from service.run import OPEN, Change, Ended, Prepared, Run, Said
from service.settings import Settings
from service.tables import runs

log = logging.getLogger(__name__)

_SAID: dict[int, type[Said]] = {
    kind.kind: kind for kind in (Advert, Boxes, Certification, Reveal, Repair, Abandonment)
}
_FLEETING = (Certification, Reveal, Repair)
"""What a member says again if it is asked again."""
_OURS = (KernelsError, PrivacyError, ServiceError)
"""Refusals: whatever raised them has changed nothing."""


@dataclass(eq=False)
class _Live:
    """A run in memory. The lock is held by whoever looks at it or changes it."""

    lock: Lock = field(default_factory=Lock)
    run: Run | None = None
    version: int = -1


class Runs:
    """All runs, for one process."""

    def __init__(
        self, database: Database, settings: Settings, bell: Bell, clock: Callable[[], float]
    ) -> None:
        self._database = database
        self._settings = settings
        self._bell = bell
        self._clock = clock
        self._lock = Lock()
        self._live: dict[str, _Live] = {}
        self.on_change: Callable[[str], None] = lambda _: None
        """Called with a run's id when there may be something to do for the engine."""

    # -- members

    def say(self, session_id: str, run_id: str, key: bytes, data: bytes) -> None:
        """Accept one message of a member; a repeat changes nothing."""
        kind = _SAID.get(data[1]) if len(data) > 1 else None
        if kind is None:
            raise WrongKind("These bytes are no message that a member says in a run.")
        message = kind.decode(data)
        lasting = not isinstance(message, _FLEETING)
        with self._changing(run_id, session_id, lasting=lasting) as (connection, run):
            now = self._clock()
            if run.take(key, message, now):
                run_storage.add_message(connection, run, message)
                self._advance(connection, run, now)

    def expects(self, session_id: str, run_id: str, key: bytes, header: Upload) -> int | None:
        """Give the number of elements of a vector that is expected, None if it is here already."""
        with self._looking(run_id, session_id) as run:
            slot = run.expects(key, header)
            return None if slot is None else slot.task.length

    def add_vector(
        self,
        session_id: str,
        run_id: str,
        key: bytes,
        header: Upload,
        *,
        size: int,
        read: Callable[[int], bytes],
    ) -> None:
        """Accept a vector of `size` octets: its header and its addition to the running total."""
        with self._changing(run_id, session_id) as (connection, run):
            slot = run.expects(key, header)
            if slot is None:
                return
            first = not slot.uploaded
            piece_bytes = run_storage.PIECE_BYTES
            pieces = slot.add_in_pieces(header, size, read, piece=piece_bytes)
            for piece, body in enumerate(pieces):
                run_storage.write_total(connection, run, piece, body, first=first)
            run_storage.add_message(connection, run, header)
            self._advance(connection, run, self._clock())

    def next_item(self, session_id: str, key: bytes) -> tuple[Run, Item] | None:
        """Give what the session's open run asks of a member, if anything."""
        with self._database.reading() as connection:
            row = connection.execute(
                select(runs.c.id, runs.c.version).where(
                    runs.c.session_id == session_id, runs.c.status.in_(OPEN)
                )
            ).one_or_none()
        if row is None:
            return None
        with self._holding(row.id) as live:
            run = self._current(live, row.id, row.version)
            item = None if run is None else item_for(run, key)
            return None if run is None or item is None else (run, item)

    def broadcast(self, session_id: str, run_id: str, address: str) -> bytes:
        """Give the bytes that the sum under way is about."""
        with self._looking(run_id, session_id) as run:
            if run.broadcast.address != address:
                raise NotFound("The run has gone on; this broadcast is no longer needed.")
            return run.broadcast.data

    # -- admins

    def cancel(self, run_id: str) -> None:
        """End an open run because the admin says so."""
        self._end(run_id, lambda run: run.cancel())

    def refused(self, run_id: str, session_id: str, name: str, code: str, detail: str) -> None:
        """End an open run because a member has refused it; one that has ended stays as it is."""
        try:
            self._end(
                run_id,
                lambda run: run.fail("run.member_refused", f"{name} refuses ({code}): {detail}"),
                session_id,
            )
        except RunEnded:
            log.info("run %s: %s refused it after its end", run_id, name)

    def look(self, run_id: str) -> Run | None:
        """Give an open run to be read, None if it has ended."""
        try:
            with self._looking(run_id) as run:
                return run
        except RunEnded:
            return None

    # -- the engine

    def open_ids(self) -> list[str]:
        """Give the runs that are open."""
        with self._database.reading() as connection:
            return list(
                connection.execute(select(runs.c.id).where(runs.c.status.in_(OPEN))).scalars()
            )

    def advance(self, run_id: str) -> float | None:
        """Do all that is due; give when time alone makes something due, None once it has ended.

        The slow part runs without any lock: members are answered meanwhile. Its result counts only
        if nothing has changed the run since.
        """
        while True:
            try:
                with self._looking(run_id) as run:
                    now, version = self._clock(), self._live[run_id].version
                    due_at, work_due = run.due_at, run.work_due
            except (RunEnded, NotFound):
                return None
            if now >= due_at:
                with self._changing(run_id) as (connection, run):
                    self._advance(connection, run, now)
            elif work_due:
                self._compute(run_id, run, version)
            else:
                return due_at

    def fail(self, run_id: str, code: str, detail: str) -> None:
        """End an open run with a reason."""
        self._end(run_id, lambda run: run.fail(code, detail))

    def _compute(self, run_id: str, run: Run, version: int) -> None:
        try:
            prepared = run.prepare(self._clock())
        except (KernelsError, PrivacyError) as error:
            failed = error
            self._end(run_id, lambda run: run.fail_by(failed), version=version)
            return
        with self._changing(run_id) as (connection, run):
            if self._live[run_id].version == version:
                self._settle(connection, run, prepared)

    def _settle(self, connection: Connection, run: Run, prepared: Prepared) -> None:
        now = self._clock()
        change = run.settle(prepared, now)
        run_storage.write_prepared(connection, run, prepared, now)
        self._keep(connection, run, [change], now)

    # -- transactions

    def _advance(self, connection: Connection, run: Run, now: float) -> None:
        self._keep(connection, run, run.advance(now), now)

    def _keep(
        self, connection: Connection, run: Run, changes: Sequence[Change], now: float
    ) -> None:
        for change in changes:
            run_storage.write_change(connection, run, change, now)
        live = self._live[run.plan.id]
        live.version += 1
        run_storage.write_version(connection, run, live.version)

    def _end(
        self,
        run_id: str,
        end: Callable[[Run], Ended],
        session_id: str | None = None,
        *,
        version: int | None = None,
    ) -> None:
        with self._changing(run_id, session_id) as (connection, run):
            if version in (None, self._live[run_id].version):
                self._keep(connection, run, [end(run)], self._clock())

    @contextmanager
    def _changing(
        self, run_id: str, session_id: str | None = None, *, lasting: bool = True
    ) -> Iterator[tuple[Connection, Run]]:
        """Give an open run in a transaction that has its row; wake whom it concerns afterwards."""
        with self._holding(run_id) as live:
            phase: object = None
            try:
                with self._database.changing(lasting=lasting) as connection:
                    version = self._version(connection, run_id, session_id, lock=True)
                    run = self._current(live, run_id, version, connection)
                    phase, before = run.phase, live.version
                    yield connection, run
            except _OURS:
                raise
            except BaseException:
                live.run = None
                raise
            changed, ended = run.phase != phase, run.outcome is not None
            if ended:
                self._forget(run_id)
        if changed:
            self._bell.ring(run.plan.session_id)
        if changed or before != live.version:
            self.on_change(run_id)

    @contextmanager
    def _looking(self, run_id: str, session_id: str | None = None) -> Iterator[Run]:
        """Give an open run to be read; nobody changes it meanwhile."""
        with self._database.reading() as connection:
            version = self._version(connection, run_id, session_id)
        with self._holding(run_id) as live:
            run = self._current(live, run_id, version)
            yield run

    def _version(
        self, connection: Connection, run_id: str, session_id: str | None, *, lock: bool = False
    ) -> int:
        """Give the version of an open run's row, of this session if one is named."""
        query = select(runs.c.session_id, runs.c.status, runs.c.version).where(runs.c.id == run_id)
        row = connection.execute(query.with_for_update() if lock else query).one_or_none()
        if row is None or session_id not in (None, row.session_id):
            raise NotFound("There is no such run in this session.")
        if row.status not in OPEN:
            raise RunEnded("The run has ended; ask for what is next.")
        version: int = row.version
        return version

    def _current(
        self, live: _Live, run_id: str, version: int, connection: Connection | None = None
    ) -> Run:
        """Give the object of a run, read again unless it is at least as new as its row was."""
        if live.run is None or live.version < version:
            if connection is None:
                with self._database.reading() as connection:
                    live.run, live.version = run_storage.load(connection, run_id, self._settings)
            else:
                live.run, live.version = run_storage.load(connection, run_id, self._settings)
        return live.run

    @contextmanager
    def _holding(self, run_id: str) -> Iterator[_Live]:
        with self._lock:
            live = self._live.setdefault(run_id, _Live())
        with live.lock:
            yield live

    def _forget(self, run_id: str) -> None:
        with self._lock:
            self._live.pop(run_id, None)
