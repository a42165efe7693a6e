"""Writes changes of a run as rows, in the transaction that makes the change.

Rows of past slots and epochs are deleted, so that a long run stores one vector, not one for each
sum. `service.runs.loading` reads the rows.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, and_, bindparam, delete, insert, select, update

from kernels.rounds.position import Metrics
from kernels.strict_json import encode_json
from privacy.members.endorsement import Endorsement
from privacy.securesum.messages import Advert, Boxes, Draft, SealedState, Upload
from service import models
from service.database.tables import (
    WHOLE_EPOCH,
    run_members,
    run_messages,
    run_metrics,
    runs,
    sealed_states,
    slot_totals,
    slots,
    totals,
)
from service.runs.machine.changes import (
    Abandoning,
    Asked,
    Began,
    Change,
    Closed,
    Ended,
    Endorsed,
    Finished,
    Proposed,
    Refused,
    RepairRequested,
    Restarted,
    Returned,
    Summed,
)
from service.runs.machine.closed_sum import ClosedSum
from service.runs.machine.plan import Status
from service.runs.machine.run import MemberMessage, Prepared, Run
from service.sessions import ledgers

PIECE_BYTES = 1 << 20
"""Bytes of a running total in one row."""

# Used for every accepted message: building them once makes them five times faster.
_ADD_MESSAGE = insert(run_messages)
_WRITE_VERSION = (
    update(runs)
    .where(runs.c.id == bindparam("of_run"))
    .values(version=bindparam("version"), since=bindparam("since"), status=bindparam("status"))
)
_FIRST_TOTAL = insert(slot_totals).values(
    run_id=bindparam("of_run"),
    epoch=bindparam("of_epoch"),
    slot=bindparam("of_slot"),
    piece=bindparam("of_piece"),
    body=bindparam("body"),
)
_NEXT_TOTAL = (
    update(slot_totals)
    .where(
        slot_totals.c.run_id == bindparam("of_run"),
        slot_totals.c.epoch == bindparam("of_epoch"),
        slot_totals.c.slot == bindparam("of_slot"),
        slot_totals.c.piece == bindparam("of_piece"),
    )
    .values(body=bindparam("body"))
)


def add_message(connection: Connection, run: Run, message: MemberMessage | Upload) -> None:
    """Store a member's message; a draft and an endorsement belong to the slot after the last."""
    if isinstance(message, Advert | Boxes):
        slot = WHOLE_EPOCH
    elif isinstance(message, Draft | Endorsement):
        slot = run.epoch.next_slot
    else:
        slot = run.epoch.slot.task.slot
    connection.execute(
        _ADD_MESSAGE,
        {
            "run_id": run.plan.id,
            "epoch": run.epoch.number,
            "slot": slot,
            "kind": message.kind,
            "body": message.encode(),
        },
    )
    if isinstance(message, Advert):
        connection.execute(
            update(run_members)
            .where(run_members.c.run_id == run.plan.id, run_members.c.key == message.identity)
            .where(run_members.c.first_epoch.is_(None))
            .values(first_epoch=run.epoch.number)
        )


def write_total(
    connection: Connection, run: Run, piece: int, body: memoryview, *, first: bool
) -> None:
    """Store one piece of the running total; `first`: it contained no vector before."""
    where = {
        "of_run": run.plan.id,
        "of_epoch": run.epoch.number,
        "of_slot": run.epoch.slot.task.slot,
        "of_piece": piece,
    }
    connection.execute(_FIRST_TOTAL if first else _NEXT_TOTAL, {**where, "body": body})


def write_version(connection: Connection, run: Run, version: int) -> None:
    """Store a run's new version, with the values that any change may affect."""
    connection.execute(
        _WRITE_VERSION,
        {
            "of_run": run.plan.id,
            "version": version,
            "since": run.since,
            "status": run.status.value,
        },
    )


def write_change(connection: Connection, run: Run, change: Change, now: float) -> None:
    """Store one change of a run."""
    match change:
        case Closed():
            _update_run(connection, run, epoch_closed=True)
        case Proposed():
            _update_slot(connection, run, frozen=True)
        case RepairRequested():
            _update_slot(connection, run, repairing=True)
        case Abandoning():
            _update_slot(connection, run, abandoning=True)
        case Endorsed():
            _update_run(connection, run, verdict=run.verdict)
        case Summed():
            _update_run(connection, run, sums=run.sums)
        case Asked() | Finished():  # who is asked follows from the time
            pass
        case Refused(key):
            _update_member(connection, run, key, refused=True, returned=False)
        case Returned(key):
            _update_member(connection, run, key, returned=True)
        case Restarted():
            _delete_said(connection, run.plan.id)
            _forget_returns(connection, run)
            _update_run(connection, run, epoch=run.epoch.number, epoch_closed=False)
        case Began():
            _begin(connection, run)
        case Ended():
            _end(connection, run, now)


def write_prepared(connection: Connection, run: Run, prepared: Prepared, now: float) -> None:
    """Store the state after a sum, the sum's total and its metrics; at the end, the model."""
    position, artifact = prepared.position, prepared.artifact
    values = {"sums": run.sums, "stage": run.stage}
    if artifact is not None:
        model_id = models.store(
            connection,
            session_id=run.plan.session_id,
            run_id=run.plan.id,
            artifact=artifact,
            certificate=prepared.certificate,
            now=now,
        )
        _update_run(connection, run, model_id=model_id, **values)
    elif position is not None:
        _update_run(connection, run, state=position.encoded, verdict=run.verdict, **values)
    if prepared.last is not None:
        _write_last(connection, run.plan.id, prepared.last)
    add_metrics(connection, run.plan.id, prepared.metrics)


def _write_last(connection: Connection, run_id: str, last: ClosedSum) -> None:
    """Replace a run's newest closed sum."""
    connection.execute(delete(totals).where(totals.c.run_id == run_id))
    connection.execute(insert(totals).values(run_id=run_id, **vars(last)))


def add_metrics(connection: Connection, run_id: str, metrics: Sequence[Metrics]) -> None:
    """Store metrics of a run's steps."""
    rows = [{"run_id": run_id, "body": encode_json(each)} for each in metrics]
    if rows:
        connection.execute(insert(run_metrics), rows)


def write_sealed(connection: Connection, run: Run, header: SealedState, box: bytes) -> None:
    """Store the state that the author of the current task has sealed for the others."""
    where = {"run_id": run.plan.id, "header": header.encode(), "box": box}
    connection.execute(insert(sealed_states).values(**where))


def write_archive(
    connection: Connection, run: Run, model_id: str, archive: bytes, now: float
) -> None:
    """Store a run's model that is for members only, sealed to them."""
    models.store_sealed(
        connection,
        session_id=run.plan.session_id,
        run_id=run.plan.id,
        model_id=model_id,
        certificate=run.verdict or b"",
        archive=archive,
        now=now,
    )
    _update_run(connection, run, model_id=model_id)


def _begin(connection: Connection, run: Run) -> None:
    run_id, task = run.plan.id, run.epoch.slot.task
    if run.is_blind:
        _update_run(connection, run, stage=run.stage, sums=run.sums)
    if run.ledger is not None:
        ledgers.add(connection, run.ledger.entries[-1])
    for table in (slots, sealed_states):
        connection.execute(delete(table).where(table.c.run_id == run_id))
    connection.execute(
        delete(run_messages).where(
            run_messages.c.run_id == run_id, run_messages.c.slot != WHOLE_EPOCH
        )
    )
    _forget_returns(connection, run)
    opened = not any(map(run.epoch.holds_boxes_for, task.active))
    if opened and not run.is_private:
        # The whole cohort has uploaded, so all members have opened their boxes.
        connection.execute(
            delete(run_messages).where(
                run_messages.c.run_id == run_id, run_messages.c.kind == Boxes.kind
            )
        )
    connection.execute(
        insert(slots).values(
            run_id=run_id,
            epoch=run.epoch.number,
            slot=task.slot,
            task=task.encode(),
            commitments=run.epoch.slot.commitments,
            frozen=False,
            abandoning=False,
            repairing=False,
        )
    )


def _end(connection: Connection, run: Run, now: float) -> None:
    ending = run.ending
    if ending is None:
        raise RuntimeError("an ended run must have an ending")
    _delete_said(connection, run.plan.id)
    _delete_totals(connection, run.plan.id, kept=ending.status is Status.DONE)
    _update_run(
        connection,
        run,
        code=ending.code,
        detail=ending.detail,
        ended_at=now,
        state=None,
        verdict=None,
    )


def give_up(connection: Connection, run_id: str, *, code: str, detail: str, now: float) -> str:
    """End a run as failed, whatever its rows contain; return its session's id."""
    _delete_said(connection, run_id)
    _delete_totals(connection, run_id, kept=False)
    connection.execute(
        update(runs)
        .where(runs.c.id == run_id)
        .values(
            status=Status.FAILED.value,
            code=code,
            detail=detail,
            ended_at=now,
            state=None,
            verdict=None,
            version=runs.c.version + 1,
        )
    )
    query = select(runs.c.session_id).where(runs.c.id == run_id)
    session_id: str = connection.execute(query).scalar_one()
    return session_id


def _delete_totals(connection: Connection, run_id: str, *, kept: bool) -> None:
    """Delete the totals of a session's runs, but keep that of a run whose members still need it.

    They do until the next run has ended.
    """
    session = select(runs.c.session_id).where(runs.c.id == run_id).scalar_subquery()
    others = select(runs.c.id).where(runs.c.session_id == session)
    if kept:
        others = others.where(runs.c.id != run_id)
    connection.execute(delete(totals).where(totals.c.run_id.in_(others)))


def _delete_said(connection: Connection, run_id: str) -> None:
    """Delete the rows of the epoch: its messages and its sum."""
    for table in (run_messages, slots, sealed_states):
        connection.execute(delete(table).where(table.c.run_id == run_id))


def _update_run(connection: Connection, run: Run, **values: object) -> None:
    connection.execute(update(runs).where(runs.c.id == run.plan.id).values(**values))


def _update_member(connection: Connection, run: Run, key: bytes, **values: object) -> None:
    own = and_(run_members.c.run_id == run.plan.id, run_members.c.key == key)
    connection.execute(update(run_members).where(own).values(**values))


def _forget_returns(connection: Connection, run: Run) -> None:
    if run.is_private:
        own = and_(run_members.c.run_id == run.plan.id, run_members.c.returned)
        connection.execute(update(run_members).where(own).values(returned=False))


def _update_slot(connection: Connection, run: Run, **values: object) -> None:
    connection.execute(update(slots).where(slots.c.run_id == run.plan.id).values(**values))
