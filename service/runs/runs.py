"""The coordinator's runs: every accepted message and every step is one transaction.

The rows are authoritative, and `kill -9` at any moment loses nothing that was acknowledged; the
runs in memory (`service.runs.live_runs`) only avoid reading the rows again.

Adverts, boxes and vectors are on disk before they are acknowledged: a hospital may erase its own
copy when the next step shows that they have arrived. Signatures and keys survive a crash of this
process; if a crash of the machine loses them, the hospital sends them again.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import get_args
from uuid import uuid4

from sqlalchemy import bindparam, select

from kernels.errors import KernelsError
from privacy.errors import PrivacyError
from privacy.members.archive import read_archive
from privacy.members.endorsement import ModelCertificate
from privacy.securesum.errors import (
    ForgedMessage,
    NotTheEndorsedModel,
    UnreadableState,
    WrongKind,
)
from privacy.securesum.messages import Certification, Repair, Reveal, SealedState, Upload
from service.database import notices
from service.database.database import Database
from service.database.tables import runs
from service.errors import NotFound, RunEnded
from service.http.wakeups import Wakeups
from service.runs import rows, saving
from service.runs.leases import Leases
from service.runs.live_runs import LiveRuns, Transaction
from service.runs.machine.items import Item, item_for
from service.runs.machine.plan import OPEN
from service.runs.machine.run import MemberMessage, Run
from service.runs.progress import Progress
from service.settings import Settings

log = logging.getLogger(__name__)

_KINDS: dict[int, type[MemberMessage]] = {kind.kind: kind for kind in get_args(MemberMessage)}
_FLEETING = (Certification, Reveal, Repair)
"""Messages that a member sends again on request."""


# Every waiting member runs this query: building it once makes it five times faster.
_OPEN_RUN = select(runs.c.id, runs.c.version).where(
    runs.c.session_id == bindparam("session_id"), runs.c.status.in_(OPEN)
)


@dataclass(frozen=True)
class NextItem:
    """The item that a run has for a member."""

    run_id: str
    item: Item
    progress: Progress


class Runs:
    """All runs, as used by one process."""

    def __init__(
        self, database: Database, settings: Settings, wakeups: Wakeups, clock: Callable[[], float]
    ) -> None:
        self._database = database
        self.wakeups = wakeups
        self._clock = clock
        self.replica = str(uuid4())
        """The id of this process among the replicas on the same database."""
        self._leases = Leases(database, clock, owner=self.replica, seconds=settings.lease_s)
        self.live = LiveRuns(database, settings, replica=self.replica)
        self.on_change: Callable[[str], None] = lambda _: None
        """Called with a run's id when the engine may have work to do."""

    # -- members

    def take_message(self, session_id: str, run_id: str, key: bytes, data: bytes) -> None:
        """Accept one message of a member; a repeat changes nothing."""
        kind = _KINDS.get(data[1]) if len(data) > 1 else None
        if kind is None:
            raise WrongKind(
                "The body must be an Advert, Boxes, Draft, Objection, Certification, Reveal, "
                "Repair, Abandonment or Endorsement."
            )
        message = kind.decode(data)
        lasting = not isinstance(message, _FLEETING)
        with self._changing(run_id, session_id, lasting=lasting) as change:
            now = self._clock()
            with change.asking():
                taken = change.run.take(key, message, now)
            if taken:
                saving.add_message(change.connection, change.run, message)
                change.advance(now)

    def expects(self, session_id: str, run_id: str, key: bytes, header: Upload) -> int | None:
        """Return the length of the expected vector; None if it has already been added."""
        with self.live.looking(run_id, session_id) as (run, _):
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
        """Accept a vector of `size` bytes: store its header and add it to the running total."""
        with self._changing(run_id, session_id) as change:
            with change.asking():
                slot = change.run.expects(key, header)
            if slot is None:
                return
            first = not slot.uploaded
            pieces = slot.add_in_pieces(header, size, read, piece=saving.PIECE_BYTES)
            for piece, body in enumerate(pieces):
                saving.write_total(change.connection, change.run, piece, body, first=first)
            saving.add_message(change.connection, change.run, header)
            change.advance(self._clock())

    def add_state(
        self, session_id: str, run_id: str, key: bytes, header: SealedState, box: bytes
    ) -> None:
        """Accept the state that the author of a blind task has sealed for the others."""
        if hashlib.sha256(box).digest() != header.box_hash:
            raise UnreadableState("The box does not match the hash in its signed header.")
        with self._changing(run_id, session_id) as change:
            with change.asking():
                new = change.run.check_sealed(key, header)
            if new:
                change.run.authoring.sealed = header, box
                saving.write_sealed(change.connection, change.run, header, box)
                change.advance(self._clock())

    def hand_over(self, session_id: str, run_id: str, key: bytes, section: bytes) -> None:
        """Accept the model of blind sums, which must be the one that members have endorsed."""
        now = self._clock()
        with self.live.looking(run_id, session_id) as (run, version):
            run.check_hands_over(key, sealed=False)
        prepared = run.handed_over(section, now)
        with self._changing(run_id, session_id) as change:
            if change.version == version:
                saving.write_prepared(change.connection, change.run, prepared, now)
                change.keep([change.run.done()], now)

    def hand_over_sealed(
        self, session_id: str, run_id: str, key: bytes, archive: bytes, *, model_id: str
    ) -> None:
        """Accept a model for members only, sealed to each of them; it ends the run."""
        with self._changing(run_id, session_id) as change:
            with change.asking():
                certificate = change.run.check_hands_over(key, sealed=True)
                check_archive(archive, certificate, change.run, key)
            now = self._clock()
            saving.write_archive(change.connection, change.run, model_id, archive, now)
            change.keep([change.run.done()], now)

    def next_item(
        self, session_id: str, key: bytes, *, witnesses: bool = False, objected: bool = False
    ) -> NextItem | None:
        """Return the item that the session's open run has for a member, if any (`item_for`)."""
        with self._database.reading() as connection:
            row = connection.execute(_OPEN_RUN, {"session_id": session_id}).one_or_none()
        if row is None:
            return None
        try:
            with self.live.looking_at(row.id, row.version) as (run, _):
                item = item_for(run, key, witnesses=witnesses, objected=objected)
                returns = run.returns(key)
                found = None if item is None else NextItem(row.id, item, Progress.of(run))
            if returns:
                self._note_return(row.id, key)
        except RunEnded:  # just now
            return None
        return found

    def _note_return(self, run_id: str, key: bytes) -> None:
        with self._changing(run_id) as change:
            if change.run.returns(key):
                change.keep([change.run.note_return(key)], self._clock())

    def state(self, session_id: str, run_id: str, digest: str) -> bytes:
        """Return the state of the current sum, by its digest."""
        with self.live.looking(run_id, session_id) as (run, _):
            moved_on = run.slot is None or run.slot.task.state.hex() != digest
            if run.position is None or moved_on:
                raise NotFound("The run has moved on; this state is no longer needed.")
            return run.position.encoded

    def model_section(self, session_id: str, run_id: str) -> bytes:
        """Return the bytes of the finished model that members of open sums are to endorse."""
        with self.live.looking(run_id, session_id) as (run, _):
            if not run.is_finished:
                raise NotFound("The run has no finished model to endorse.")
            return run.section

    def total(self, session_id: str, run_id: str, key: bytes, *, epoch: int, slot: int) -> bytes:
        """Return the integers of the newest closed sum's total, of an open or a done run."""
        with self._database.reading() as connection:
            rows.ended_for(connection, session_id, run_id, key)
            last = rows.last_sum(connection, run_id)
        if last is None or (last.epoch, last.slot) != (epoch, slot):
            raise NotFound("The run has moved on; this total is no longer kept.")
        return last.body

    def refused(self, session_id: str, run_id: str, key: bytes, code: str, detail: str) -> None:
        """Continue without a member that refuses, or end the run; an ended run is unchanged."""
        try:
            with self._changing(run_id, session_id) as change:
                with change.asking():
                    refused = change.run.refused_by(key, code, detail)
                now = self._clock()
                change.keep([refused, *change.run.advance(now)], now)
        except RunEnded:
            log.info("a member refused a run after its end (%s)", code, extra={"run": run_id})

    # -- admins

    def started(self, session_id: str, run_id: str) -> None:
        """Notify members and the engine of a new run."""
        log.info("a run has started", extra={"run": run_id, "session": session_id})
        self.wakeups.wake(session_id)
        self.on_change(run_id)

    def cancel(self, run_id: str) -> None:
        """Cancel an open run."""
        with self._changing(run_id) as change:
            change.keep([change.run.cancel()], self._clock())

    def progress(self, run_id: str) -> Progress | None:
        """Return the progress of a run; None once it has ended."""
        try:
            with self.live.looking(run_id) as (run, _):
                return Progress.of(run)
        except RunEnded:
            return None

    # -- the engine

    def open_ids(self) -> list[str]:
        """Return the ids of all open runs."""
        with self._database.reading() as connection:
            found = connection.execute(select(runs.c.id).where(runs.c.status.in_(OPEN)))
            return list(found.scalars())

    def advance(self, run_id: str) -> float | None:
        """Do all due work; return when the next timeout is due, or None once the run has ended.

        The slow part runs without any lock, so that members are answered meanwhile. Its result
        counts only if nothing has changed the run since. If another replica is computing, the work
        is left to that replica.
        """
        try:
            while True:
                with self.live.looking(run_id) as (run, _):
                    due_at, work_due = run.due_at, run.work_due
                if self._clock() >= due_at:
                    with self._changing(run_id) as change:
                        change.advance(self._clock())
                    continue
                if not work_due:
                    return due_at
                with self._leases.held(run_id) as ours:
                    if not ours:
                        return due_at
                    self._compute(run_id)
        except (RunEnded, NotFound):
            return None

    def give_up(self, run_id: str, code: str, detail: str) -> None:
        """End an open run using only its rows, even if it can no longer be loaded."""
        with self.live.discarding(run_id) as connection:
            session_id = saving.give_up(
                connection, run_id, code=code, detail=detail, now=self._clock()
            )
            notices.notify(connection, session_id, sender=self.replica)
        self.wakeups.wake(session_id)

    def _compute(self, run_id: str) -> None:
        with self.live.looking(run_id) as (run, version):
            if not run.work_due:  # another replica has just done it
                return
        failure: KernelsError | PrivacyError | None = None
        try:
            prepared = run.prepare(self._clock())
        except (KernelsError, PrivacyError) as error:
            failure = error
        except BaseException:
            self.live.forget(run_id)  # some masks may have been removed already
            raise
        with self._changing(run_id) as change:
            if change.version != version:
                return
            now = self._clock()
            if failure is not None:
                change.keep([change.run.fail_by(failure)], now)
            else:
                began = change.run.settle(prepared, now)
                saving.write_prepared(change.connection, change.run, prepared, now)
                change.keep([began], now)

    # -- transactions

    @contextmanager
    def _changing(
        self, run_id: str, session_id: str | None = None, *, lasting: bool = True
    ) -> Iterator[Transaction]:
        """Yield an open run in a transaction; afterwards wake its members and the engine."""
        with self.live.changing(run_id, session_id, lasting=lasting) as change:
            yield change
        if change.has_new_phase:
            _log_phase(change.run)
            self.wakeups.wake(change.run.plan.session_id)
        if change.has_new_phase or change.run.work_due:
            self.on_change(run_id)


def _log_phase(run: Run) -> None:
    """Log the progress of a run; the detail of a failure may name a member, so only its code."""
    about = {"run": run.plan.id, "session": run.plan.session_id}
    if run.ending is not None:
        log.info("the run is %s (%s)", run.status, run.ending.code or "no code", extra=about)
    else:
        log.debug("stage %d, %d sums", run.stage, run.sums, extra=about)


def check_archive(archive: bytes, certificate: ModelCertificate, run: Run, speaker: bytes) -> None:
    """Refuse an archive of another model, for others than the run's members, or by another."""
    header, sealed = read_archive(archive)
    epoch = run.epoch.epoch
    members = () if epoch is None else epoch.members
    about = header.session, header.run, header.model, header.receivers, header.identity
    said = certificate.statement
    same = hashlib.sha256(sealed).digest() == header.content_hash
    if not same or about != (said.session, said.run, said.model, members, speaker):
        raise NotTheEndorsedModel(
            "The archive must contain the endorsed model, sealed to every member of the run."
        )
    header.check_signed_by(speaker, ForgedMessage, "Archive")
