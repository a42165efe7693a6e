"""How a run begins: which program it has, over whom, from which model.

Its program follows from its kind and its session's program (`kernels.rounds.run_kinds`).

A model's students are of the rows of its training: `linear` and `update`, after which rows may be
others, give a model without them, and `evaluate` scores them anew.

With differential privacy a run whose sums would not fit into what the session has left does not
begin. Its stages have the noise that they have in the session's program; one that is not in it has
as much as if all were spent on it in the planned number of runs.

Everything is checked before the first row is written, the first stage's start included.
"""

from dataclasses import replace
from uuid import uuid4

from sqlalchemy import Connection, insert, select

from kernels import storage
from kernels.errors import ProgramError
from kernels.model.model import Model
from kernels.rounds.plan import planned, release_plan
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind, RunProgram, program_of
from privacy.accounting.promises import planned_noise, promised
from privacy.identity import Member, Roster
from privacy.ledger import Ledger
from privacy.securesum.terms import Terms
from service import models
from service.database import notices
from service.database.tables import leases, members, run_members, runs, sessions
from service.errors import NotFound, RunNotEnded, RunOpen, RunRefused, TooFewMembers
from service.http.access import APPROVED, ModelAccess
from service.runs.machine import stages
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
    """Begin a run of a session, and return its id, random unless given.

    model: an id or an alias.
    """
    query = select(sessions).where(sessions.c.id == session_id).with_for_update()
    session = connection.execute(query).one_or_none()
    if session is None:
        raise NotFound("There is no such session.")
    _check_none_open(connection, session_id)
    terms = Terms.decode(session.terms)
    roster = _roster(connection, session_id, terms)
    run = _program_of(kind, Program.from_json(session.program))
    program = run.program
    ledger = ledgers.load(connection, session_id)
    if ledger is not None:
        program = _with_noise(run, ledger, runs=session.planned_runs)
        ledger.affords(promised(release_plan(program, session.seed), honest=terms.honest))
    base_model, base = _base(connection, session_id, kind, model)
    position = stages.start(program, base)
    run_id = run_id or str(uuid4())
    connection.execute(
        insert(runs).values(
            id=run_id,
            session_id=session_id,
            kind=kind.value,
            program=program.to_json(),
            seed=session.seed,
            base_model=base_model,
            status=Status.WAITING.value,
            created_at=now,
            deadline_at=now + deadline_s,
            since=now,
            version=0,
            epoch=0,
            epoch_closed=False,
            stage=position.stage,
            sums=0,
            state=storage.encode(position.state),
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
    """Begin a run like one that has ended, with as much time; over the members of today."""
    row = connection.execute(select(runs).where(runs.c.id == run_id)).one_or_none()
    if row is None:
        raise NotFound("There is no such run.")
    if row.status in OPEN:
        raise RunNotEnded("The run is open; wait for its end, or cancel it first.")
    return start(
        connection,
        session_id=row.session_id,
        kind=Kind(row.kind),
        model=row.base_model,
        deadline_s=row.deadline_at - row.created_at,
        now=now,
    )


def _program_of(kind: Kind, session: Program) -> RunProgram:
    try:
        return program_of(kind, session)
    except ProgramError as problem:
        raise RunRefused(f"No run of the kind {kind!r} can start: {problem}.") from problem


def _with_noise(run: RunProgram, ledger: Ledger, *, runs: int) -> Program:
    """Give a run's stages their noise: the session's own, or for others what its budget means."""
    program, privacy = run.program, run.program.privacy
    if privacy is None:
        raise RunRefused("The session promises differential privacy, and its program has no noise.")
    noise = list(privacy.multipliers)
    for index, (origin, stage) in enumerate(zip(run.origins, planned(program), strict=True)):
        if origin is None:
            (noise[index],) = planned_noise(
                [stage],
                epsilon=ledger.budget.epsilon,
                delta=ledger.budget.delta,
                runs=runs,
            )
    return replace(program, privacy=replace(privacy, multipliers=tuple(noise)))


def _check_none_open(connection: Connection, session_id: str) -> None:
    open_run = connection.execute(
        select(runs.c.id).where(runs.c.session_id == session_id, runs.c.status.in_(OPEN))
    ).first()
    if open_run is not None:
        raise RunOpen(
            f"Run {open_run.id} of this session is open, and a session has one at a time: wait "
            "for its end, or cancel it."
        )


def _roster(connection: Connection, session_id: str, terms: Terms) -> Roster:
    rows = connection.execute(
        select(members.c.name, members.c.key).where(
            members.c.session_id == session_id, members.c.status == APPROVED
        )
    ).all()
    if len(rows) < terms.min_cohort:
        raise TooFewMembers(
            f"{len(rows)} members are approved, and a sum of this session needs "
            f"{terms.min_cohort}: invite and approve more."
        )
    return Roster(tuple(Member(name, key) for name, key in rows))


def _base(
    connection: Connection, session_id: str, kind: Kind, name: str | None
) -> tuple[str | None, Model | None]:
    """Give the model that a run starts from: one that this session has made.

    Another session's is as good as none, whatever its kernel is: its hospitals gave their sums for
    their own model, and know nothing of these.
    """
    if kind is Kind.TRAIN:
        if name is not None:
            raise RunRefused("A training starts from nothing; leave the model out.")
        return None, None
    if name is None:
        raise RunRefused(f'A run of the kind "{kind}" starts from a model: name its id or alias.')
    own = ModelAccess(sessions=frozenset({session_id}))
    model_id = models.resolve(connection, name, own)
    return model_id, models.load(connection, model_id).model
