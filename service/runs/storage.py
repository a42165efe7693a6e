"""A run as rows, and back: what the run's machine has changed is written, row by row.

A run in memory is what its rows say: the roster, the state, what members have said in the present
epoch and slot (in the order in which it was accepted), and the running total. Rows of slots and
epochs that are over are deleted, so that a long run keeps one vector, not one for each sum.
"""

from uuid import UUID

from sqlalchemy import Connection, Row, Table, and_, bindparam, delete, insert, or_, select, update
from sqlalchemy.sql.elements import ColumnElement

from kernels import storage
from kernels.rounds.program import Program
from kernels.rounds.registry import restore
from kernels.strict_json import encode_json
from privacy.securesum.coordinator import Coordinator, CoordinatorState, MemberState
from privacy.securesum.masking import body_bytes
from privacy.securesum.messages import (
    Abandonment,
    Advert,
    Boxes,
    Certification,
    Repair,
    Reveal,
    Task,
    Upload,
)
from privacy.securesum.summation import SummationState
from privacy.securesum.terms import Terms
from service.database.tables import (
    broadcasts,
    run_members,
    run_messages,
    run_metrics,
    runs,
    sessions,
    slot_totals,
    slots,
)
from service.errors import RunEnded
from service.prediction import models
from service.runs.machine.attendance import Attendance
from service.runs.machine.changes import (
    Began,
    Change,
    Closed,
    Ended,
    Proposed,
    Refused,
    RepairAsked,
    Restarted,
    Returned,
)
from service.runs.machine.run import OPEN, Plan, Prepared, Run, Said, Status
from service.runs.machine.stages import Broadcast, Position
from service.sessions import ledgers
from service.settings import Settings

PIECE_BYTES = 1 << 20
"""Of a running total, in one row."""
_EPOCH = -1
"""The slot of what is said about the epoch as a whole."""

# With every message that is accepted: built once, they cost a fifth.
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


# -- reading


def load(connection: Connection, run_id: str, settings: Settings) -> tuple[Run, int]:
    """Give a run that is open, as its rows say, and the version that this is."""
    row = connection.execute(
        select(runs, sessions.c.terms).join(sessions).where(runs.c.id == run_id)
    ).one()
    if row.status not in OPEN:
        raise RunEnded("The run has ended; ask for what is next.")
    program = Program.from_json(row.program)
    plan = Plan(
        id=run_id,
        session_id=row.session_id,
        kind=row.kind,
        program=program,
        text=row.program,
        seed=row.seed,
        base_model=row.base_model,
        deadline_at=row.deadline_at,
        repair_after_s=settings.repair_after_s,
        restart_after_s=settings.restart_after_s,
        gather_s=settings.gather_s,
        leave_out_after_s=settings.leave_out_after_s,
        max_vector=settings.max_vector,
    )
    summation, repairing = _load_summation(connection, run_id, row.epoch)
    run = Run(
        plan,
        Coordinator.restored(_load_epoch(connection, row, summation)),
        Position(program, row.stage, restore(row.state)),
        since=row.since,
        sums=row.sums,
        broadcast=_load_broadcast(connection, run_id),
        repairing=repairing,
        attendance=_load_attendance(connection, run_id),
        ledger=ledgers.load(connection, row.session_id),
    )
    return run, row.version


def _load_epoch(
    connection: Connection, row: Row[tuple[object, ...]], summation: SummationState | None
) -> CoordinatorState:
    said = _said(connection, row.id, row.epoch, _EPOCH)
    roster = connection.execute(
        select(run_members).where(run_members.c.run_id == row.id).order_by(run_members.c.key)
    ).all()
    found = (Advert.decode(body) for body in said.get(Advert.kind, ()))
    adverts = tuple(sorted(found, key=lambda advert: advert.identity))  # by rank
    return CoordinatorState(
        terms=Terms.decode(row.terms),
        run=UUID(row.id).bytes,
        number=row.epoch,
        roster=tuple(MemberState(member.name, member.key) for member in roster),
        seen=_seen(connection, row),
        adverts=adverts,
        closed=row.epoch_closed,
        boxes=tuple(box for body in said.get(Boxes.kind, ()) for box in Boxes.decode(body).boxes),
        ready=summation is not None,
        summations=() if summation is None else (summation,),
    )


def _load_summation(
    connection: Connection, run_id: str, epoch: int
) -> tuple[SummationState | None, bool]:
    row = connection.execute(
        select(slots).where(slots.c.run_id == run_id, slots.c.epoch == epoch)
    ).one_or_none()
    if row is None:
        return None, False
    said = _said(connection, run_id, epoch, row.slot)
    task = Task.decode(row.task)
    pieces = connection.execute(
        select(slot_totals.c.body)
        .where(_same_slot(slot_totals, run_id, epoch, row.slot))
        .order_by(slot_totals.c.piece)
    ).scalars()
    state = SummationState(
        task=task,
        uploads=tuple(Upload.decode(body) for body in said.get(Upload.kind, ())),
        total=b"".join(pieces) or bytes(body_bytes(task.length)),
        frozen=row.frozen,
        abandoning=row.abandoning,
        unmasked=False,
        certifications=tuple(Certification.decode(b) for b in said.get(Certification.kind, ())),
        abandonments=tuple(Abandonment.decode(b) for b in said.get(Abandonment.kind, ())),
        reveals=tuple(Reveal.decode(body) for body in said.get(Reveal.kind, ())),
        repairs=tuple(Repair.decode(body) for body in said.get(Repair.kind, ())),
    )
    return state, row.repairing


def _said(connection: Connection, run_id: str, epoch: int, slot: int) -> dict[int, list[bytes]]:
    said: dict[int, list[bytes]] = {}
    for kind, body in connection.execute(
        select(run_messages.c.kind, run_messages.c.body)
        .where(_same_slot(run_messages, run_id, epoch, slot))
        .order_by(run_messages.c.id)
    ):
        said.setdefault(kind, []).append(body)
    return said


def _seen(connection: Connection, row: Row[tuple[object, ...]]) -> tuple[bytes, ...]:
    """Who has advertised in the session before this epoch; a session has one run at a time."""
    earlier = or_(run_members.c.run_id != row.id, run_members.c.first_epoch < row.epoch)
    keys = connection.execute(
        select(run_members.c.key)
        .join(runs)
        .where(runs.c.session_id == row.session_id)
        .where(run_members.c.first_epoch.is_not(None), earlier)
        .distinct()
    ).scalars()
    return tuple(sorted(keys))


def _load_attendance(connection: Connection, run_id: str) -> Attendance:
    found = connection.execute(
        select(run_members.c.key, run_members.c.refused, run_members.c.returned)
        .where(run_members.c.run_id == run_id)
        .where(or_(run_members.c.refused, run_members.c.returned))
    ).all()
    return Attendance(
        refused=frozenset(row.key for row in found if row.refused),
        returned=frozenset(row.key for row in found if row.returned),
    )


def _load_broadcast(connection: Connection, run_id: str) -> Broadcast | None:
    body = connection.execute(
        select(broadcasts.c.body).where(broadcasts.c.run_id == run_id)
    ).scalar_one_or_none()
    return None if body is None else Broadcast(body)


# -- writing


def add_message(connection: Connection, run: Run, message: Said | Upload) -> None:
    """Keep what a member has said."""
    of_epoch = isinstance(message, Advert | Boxes)
    connection.execute(
        _ADD_MESSAGE,
        {
            "run_id": run.plan.id,
            "epoch": run.epoch.number,
            "slot": _EPOCH if of_epoch else run.epoch.slot.task.slot,
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
    """Keep one piece of the running total; `first`: no vector was in it."""
    where = {
        "of_run": run.plan.id,
        "of_epoch": run.epoch.number,
        "of_slot": run.epoch.slot.task.slot,
        "of_piece": piece,
    }
    connection.execute(_FIRST_TOTAL if first else _NEXT_TOTAL, {**where, "body": body})


def write_version(connection: Connection, run: Run, version: int) -> None:
    """Say that the run has changed, and what any change may have moved."""
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
    """Keep one step of a run."""
    match change:
        case Closed():
            _update_run(connection, run, epoch_closed=True)
        case Proposed():
            _update_slot(connection, run, frozen=True)
        case RepairAsked():
            _update_slot(connection, run, repairing=True)
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
    """Keep the state after a sum, and what it tells; at the end the model."""
    position, artifact = prepared.position, prepared.artifact
    values = {"sums": run.sums, "stage": position.stage}
    if artifact is None:
        _update_run(connection, run, state=storage.encode(position.state), **values)
    else:
        model_id = models.store(
            connection,
            session_id=run.plan.session_id,
            run_id=run.plan.id,
            artifact=artifact,
            now=now,
        )
        _update_run(connection, run, model_id=model_id, **values)
    for metrics in prepared.metrics:
        connection.execute(
            insert(run_metrics).values(run_id=run.plan.id, body=encode_json(metrics))
        )


def _begin(connection: Connection, run: Run) -> None:
    run_id, task = run.plan.id, run.epoch.slot.task
    if run.ledger is not None:
        ledgers.add(connection, run.ledger.entries[-1])
    connection.execute(delete(slots).where(slots.c.run_id == run_id))
    connection.execute(
        delete(run_messages).where(run_messages.c.run_id == run_id, run_messages.c.slot != _EPOCH)
    )
    _forget_returns(connection, run)
    if task.slot > 0 and not run.is_private:
        # The whole cohort has uploaded, and so has opened its boxes.
        connection.execute(
            delete(run_messages).where(
                run_messages.c.run_id == run_id, run_messages.c.kind == Boxes.kind
            )
        )
    connection.execute(delete(broadcasts).where(broadcasts.c.run_id == run_id))
    connection.execute(
        insert(broadcasts).values(
            run_id=run_id, digest=run.broadcast.address, body=run.broadcast.data
        )
    )
    connection.execute(
        insert(slots).values(
            run_id=run_id,
            epoch=run.epoch.number,
            slot=task.slot,
            task=task.encode(),
            frozen=False,
            abandoning=False,
            repairing=False,
        )
    )


def _end(connection: Connection, run: Run, now: float) -> None:
    outcome = run.outcome
    if outcome is None:
        raise RuntimeError("a run ends with an outcome")
    _delete_said(connection, run.plan.id)
    _update_run(connection, run, code=outcome.code, detail=outcome.detail, ended_at=now, state=None)


def give_up(connection: Connection, run_id: str, *, code: str, detail: str, now: float) -> str:
    """End a run as failed, whatever its rows are; give its session."""
    _delete_said(connection, run_id)
    connection.execute(
        update(runs)
        .where(runs.c.id == run_id)
        .values(
            status=Status.FAILED.value,
            code=code,
            detail=detail,
            ended_at=now,
            state=None,
            version=runs.c.version + 1,
        )
    )
    query = select(runs.c.session_id).where(runs.c.id == run_id)
    session_id: str = connection.execute(query).scalar_one()
    return session_id


def _delete_said(connection: Connection, run_id: str) -> None:
    """Forget the epoch: its messages, its sum and what that was about."""
    for table in (run_messages, slots, broadcasts):
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


def _same_slot(table: Table, run_id: str, epoch: int, slot: int) -> ColumnElement[bool]:
    return and_(table.c.run_id == run_id, table.c.epoch == epoch, table.c.slot == slot)
