"""How a run starts: its program, its members, and the model that it starts from.

Its program follows from its kind and its session's program (`kernels.rounds.run_kinds`).

A model's student networks describe the rows of its training: runs of kind `linear` and `update`,
after which the rows may differ, produce a model without them, and `evaluate` scores them again.

With differential privacy, a run whose sums would exceed the session's remaining budget does not
start.

Everything is checked before the first row is written, including the start of the first stage.
"""

from uuid import uuid4

from sqlalchemy import Connection, insert, select

from kernels.errors import ProgramError
from kernels.model.model import Model
from kernels.rounds import position as positions
from kernels.rounds.plan import release_plan
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind, program_of
from privacy.accounting.promises import promised
from privacy.identity import Member, Roster
from privacy.securesum.terms import Terms
from service import models
from service.database import notices
from service.database.tables import leases, members, run_members, runs, sessions
from service.errors import NotFound, RunNotEnded, RunOpen, RunRefused, TooFewMembers
from service.http.access import APPROVED, ModelAccess
from service.runs.machine.plan import OPEN, Status
from service.sessions import ledgers


def start(
    connection: Connection,
    *,
    session_id: str,
    kind: Kind,
    model: str | None,
    deadline_s: float,
    now: float,
    run_id: str | None = None,
) -> str:
    """Start a run of a session and return its id, which is random unless given.

    model: an id or an alias.
    """
    query = select(sessions).where(sessions.c.id == session_id).with_for_update()
    session = connection.execute(query).one_or_none()
    if session is None:
        raise NotFound("The session does not exist.")
    _check_none_open(connection, session_id)
    terms = Terms.decode(session.terms)
    roster = _roster(connection, session_id, terms)
    program = _program_of(kind, Program.from_json(session.program))
    ledger = ledgers.load(connection, session_id)
    if ledger is not None:
        ledger.affords(promised(release_plan(program), honest=terms.honest))
    base_model, base = _base(connection, session_id, kind, model)
    position = None
    if base_model is None or base is not None:
        position = positions.start(program, base)
    run_id = run_id or str(uuid4())
    connection.execute(
        insert(runs).values(
            id=run_id,
            session_id=session_id,
            kind=kind.value,
            program=program.to_json(),
            base_model=base_model,
            status=Status.WAITING.value,
            created_at=now,
            deadline_at=now + deadline_s,
            since=now,
            version=0,
            epoch=0,
            epoch_closed=False,
            stage=0 if position is None else position.stage,
            sums=0,
            state=None if position is None or terms.blind else position.encoded,
        )
    )
    connection.execute(insert(leases).values(run_id=run_id, owner="", until=0.0))
    connection.execute(
        insert(run_members),
        [{"run_id": run_id, "key": member.key, "name": member.name} for member in roster.members],
    )
    notices.notify(connection, session_id)
    return run_id


def start_again(connection: Connection, run_id: str, *, now: float) -> str:
    """Start a run like one that has ended, with as much time and the currently approved members."""
    row = connection.execute(select(runs).where(runs.c.id == run_id)).one_or_none()
    if row is None:
        raise NotFound("There is no run with this id.")
    if row.status in OPEN:
        raise RunNotEnded("The run is still open; wait for its end, or cancel it first.")
    return start(
        connection,
        session_id=row.session_id,
        kind=Kind(row.kind),
        model=row.base_model,
        deadline_s=row.deadline_at - row.created_at,
        now=now,
    )


def _program_of(kind: Kind, session: Program) -> Program:
    try:
        return program_of(kind, session)
    except ProgramError as problem:
        raise RunRefused(f'A run of kind "{kind}" cannot start: {problem}.') from problem


def _check_none_open(connection: Connection, session_id: str) -> None:
    open_run = connection.execute(
        select(runs.c.id).where(runs.c.session_id == session_id, runs.c.status.in_(OPEN))
    ).first()
    if open_run is not None:
        raise RunOpen(
            f"Run {open_run.id} of this session is still open, and a session can have only one "
            "open run: wait for its end, or cancel it."
        )


def _roster(connection: Connection, session_id: str, terms: Terms) -> Roster:
    rows = connection.execute(
        select(members.c.name, members.c.key).where(
            members.c.session_id == session_id, members.c.status == APPROVED
        )
    ).all()
    if len(rows) < terms.min_cohort:
        raise TooFewMembers(
            f"The session has {len(rows)} approved members, but a sum needs at least "
            f"{terms.min_cohort} (min_cohort): invite and approve more."
        )
    return Roster(tuple(Member(name, key) for name, key in rows))


def _base(
    connection: Connection, session_id: str, kind: Kind, name: str | None
) -> tuple[str | None, Model | None]:
    """Return id and model that a run starts from: a certified model of this session.

    The model is None if it is for members only: they check it.

    Models of other sessions are refused, whatever their kernel: their hospitals contributed to
    their own session's models only, and do not know about this session.
    """
    if kind is Kind.TRAIN:
        if name is not None:
            raise RunRefused('A run of kind "train" does not start from a model; leave it out.')
        return None, None
    if name is None:
        raise RunRefused(
            f'A run of kind "{kind}" starts from a model: set model to its id or alias.'
        )
    own = ModelAccess(sessions=frozenset({session_id}))
    model_id = models.resolve(connection, name, own)
    models.check_certified(connection, model_id)
    if models.is_members_only(connection, model_id):
        return model_id, None
    return model_id, models.load(connection, model_id).model
