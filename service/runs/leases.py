"""Leases: of several replicas on one database, only one computes the next step of a run.

A lease is a row with an owner and an end, renewed while its owner computes. When a replica dies or
stops responding, its lease ends and another replica takes over. Leases only avoid duplicate work:
if two replicas compute one step, for instance because their clocks differ by more than a lease,
they get the same numbers, and the run's version lets only one of the results count.

SQLite has one process, which needs no lease and must not wait for one it held before a crash.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from sqlalchemy import or_, select, update
from sqlalchemy.exc import SQLAlchemyError

from service.database.database import Database
from service.database.tables import leases

log = logging.getLogger(__name__)


class Leases:
    """The leases of one replica."""

    def __init__(
        self, database: Database, clock: Callable[[], float], *, owner: str, seconds: float
    ) -> None:
        self._database = database
        self._clock = clock
        self._owner = owner
        self._seconds = seconds

    @contextmanager
    def held(self, run_id: str) -> Iterator[bool]:
        """Take a run's lease and renew it until exit; yield False if another replica has it."""
        if self._database.is_sqlite:
            yield True
            return
        if not self._take(run_id):
            yield False
            return
        done = Event()
        renewing = Thread(target=self._renew, args=(run_id, done), name="veilgp-lease")
        renewing.start()
        try:
            yield True
        finally:
            done.set()
            renewing.join()
            self._end_at(run_id, 0.0)

    def _renew(self, run_id: str, done: Event) -> None:
        while not done.wait(self._seconds / 3):
            try:
                self._end_at(run_id, self._clock() + self._seconds)
            except SQLAlchemyError:
                log.exception("the lease of run %s could not be renewed", run_id)

    def _take(self, run_id: str) -> bool:
        now = self._clock()
        free = or_(leases.c.until <= now, leases.c.owner == self._owner)
        query = select(leases.c.run_id).where(leases.c.run_id == run_id, free)
        with self._database.changing(lasting=False, alone=False) as connection:
            # A locked row is being taken by another replica right now: do not wait for it.
            if connection.execute(query.with_for_update(skip_locked=True)).first() is None:
                return False
            connection.execute(
                update(leases)
                .where(leases.c.run_id == run_id)
                .values(owner=self._owner, until=now + self._seconds)
            )
        return True

    def _end_at(self, run_id: str, until: float) -> None:
        own = (leases.c.run_id == run_id) & (leases.c.owner == self._owner)
        with self._database.changing(lasting=False, alone=False) as connection:
            connection.execute(update(leases).where(own).values(until=until))
