"""Loads a run from its rows: the roster, the state, members' messages and the running total.

The messages are those of the current epoch and slot, in the order in which they were accepted.
`service.runs.saving` writes the rows.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

from sqlalchemy import Connection, Row, Table, and_, or_, select
from sqlalchemy.sql.elements import ColumnElement

from kernels.rounds.position import Position
from kernels.rounds.program import Program
from kernels.rounds.registry import restore
from privacy.members.endorsement import Endorsement
from privacy.securesum.coordinator import Coordinator, CoordinatorState, MemberState
from privacy.securesum.masking import body_bytes
from privacy.securesum.messages import (
    Abandonment,
    Advert,
    Boxes,
    Certification,
    Draft,
    Objection,
    Repair,
    Reveal,
    SealedState,
    Task,
    Upload,
)
from privacy.securesum.summation import SummationState
from privacy.securesum.terms import Terms
from service.database.tables import (
    WHOLE_EPOCH,
    run_members,
    run_messages,
    runs,
    sealed_states,
    sessions,
    slot_totals,
    slots,
)
from service.errors import RunEnded
from service.runs import rows
from service.runs.machine.attendance import Attendance
from service.runs.machine.authors import Authoring
from service.runs.machine.endorsements import Endorsements
from service.runs.machine.plan import OPEN, Plan
from service.runs.machine.run import Run
from service.sessions import ledgers
from service.settings import Settings


def load(connection: Connection, run_id: str, settings: Settings) -> tuple[Run, int]:
    """Return an open run and its version."""
    row = connection.execute(
        select(runs, sessions.c.terms).join(sessions).where(runs.c.id == run_id)
    ).one()
    if row.status not in OPEN:
        raise RunEnded("The run has ended; request the next item.")
    program = Program.from_json(row.program)
    plan = Plan(
        id=run_id,
        session_id=row.session_id,
        kind=row.kind,
        program=program,
        text=row.program,
        base_model=row.base_model,
        deadline_at=row.deadline_at,
        repair_after_s=settings.repair_after_s,
        restart_after_s=settings.restart_after_s,
        author_after_s=settings.author_after_s,
        gather_s=settings.gather_s,
        leave_out_after_s=settings.leave_out_after_s,
        max_vector=settings.max_vector,
    )
    summation, repairing = _load_summation(connection, run_id, row.epoch)
    position = None
    if row.state is not None:
        position = Position(program, row.stage, row.sums, restore(row.state))
    current = -1 if summation is None else summation.task.slot
    after = _said(connection, run_id, row.epoch, current + 1)
    endorsed = (Endorsement.decode(body) for body in after.get(Endorsement.kind, ()))
    run = Run(
        plan,
        Coordinator.restored(_load_epoch(connection, row, summation)),
        position,
        stage=row.stage,
        sums=row.sums,
        since=row.since,
        authoring=_load_authoring(connection, row, current, after),
        endorsements=Endorsements({each.rank: each for each in endorsed}),
        verdict=row.verdict,
        last=rows.last_sum(connection, run_id),
        repairing=repairing,
        attendance=_load_attendance(connection, run_id),
        ledger=ledgers.load(connection, row.session_id),
    )
    return run, row.version


def _load_epoch(
    connection: Connection, row: Row[tuple[object, ...]], summation: SummationState | None
) -> CoordinatorState:
    said = _said(connection, row.id, row.epoch, WHOLE_EPOCH)
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
        commitments=row.commitments,
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


def _load_authoring(
    connection: Connection,
    row: Row[tuple[object, ...]],
    slot: int,
    after: Mapping[int, Sequence[bytes]],
) -> Authoring:
    """Return what members have said about the task of a slot, and about the one after it.

    A member that objects twice has seen the author's state in between.
    """
    drafts = (Draft.decode(body) for body in after.get(Draft.kind, ()))
    found = connection.execute(
        select(sealed_states.c.header, sealed_states.c.box).where(sealed_states.c.run_id == row.id)
    ).one_or_none()
    said = _said(connection, row.id, row.epoch, slot)
    ranks = [Objection.decode(body).rank for body in said.get(Objection.kind, ())]
    return Authoring(
        drafts={draft.rank: draft for draft in drafts},
        wanted=dict.fromkeys(ranks, row.since),
        rejected={rank for rank in ranks if ranks.count(rank) > 1},
        sealed=None if found is None else (SealedState.decode(found.header), found.box),
    )


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
    """Return the keys that advertised in the session before this epoch, in any of its runs."""
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


def _same_slot(table: Table, run_id: str, epoch: int, slot: int) -> ColumnElement[bool]:
    return and_(table.c.run_id == run_id, table.c.epoch == epoch, table.c.slot == slot)
