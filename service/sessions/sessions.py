"""Sessions: what is computed, on which columns, under which terms. Fixed at creation.

Everything is validated before the first write, and a refusal lists all problems at once, as far as
one does not hide another.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar
from uuid import UUID, uuid4

from pydantic import Field
from sqlalchemy import Connection, RowMapping, delete, insert, select

from kernels.errors import KernelsError, NoProspect, ProgramError
from kernels.model.model import MOST_CHOICES
from kernels.model.noise_plan import NoisePlan
from kernels.rounds.automatic import (
    LEAST_FEATURES,
    LEAST_SUMS,
    MAX_FEATURES,
    MAX_SUMS,
)
from kernels.rounds.declaration import PublicRows
from kernels.rounds.ensemble.open_ensemble import asked, open_stage
from kernels.rounds.expected.forecast import check_prospect
from kernels.rounds.in_words import in_words as sentences
from kernels.rounds.noise_planning import with_noise
from kernels.rounds.order import whole_program
from kernels.rounds.plan import declared
from kernels.rounds.program import Program
from kernels.rounds.shared.public_set import public_records
from kernels.rounds.sized import check_fits_smallest, sized_program
from kernels.tables.records import Records
from privacy.accounting.promises import planned_noise
from privacy.errors import PrivacyError
from privacy.identity import MAX_MEMBERS
from privacy.securesum.errors import TermsError
from privacy.securesum.terms import LEAST_COHORT, Terms, default_terms
from service.database.tables import runs, sessions
from service.errors import (
    NameTaken,
    NotFound,
    PrivacyIncomplete,
    ServiceError,
    SessionHasRuns,
    SessionRefused,
)
from service.http.request_models import Name, RequestModel, likeness
from service.sessions.stated import (
    Stage,
    StatedKernel,
    StatedSchema,
    kernel_of,
    schema_of,
    stage_of,
)

T = TypeVar("T")


class NewPrivacy(RequestModel):
    """The privacy terms of a session; `differential_privacy` must be stated.

    With differential privacy, `epsilon` and `delta` are the most that the session may spend on any
    one patient (any one row, if the schema names no patient column), planned for `runs` runs.
    `shares` are one number for each stage: how stages over the same part of the tables divide the
    budget. A session whose model is expected to be no better than predicting the mean is refused,
    unless `without_prospect` is true.
    """

    differential_privacy: bool
    max_colluders: int | None = Field(default=None, ge=0, le=MAX_MEMBERS)
    min_cohort: int | None = Field(default=None, ge=LEAST_COHORT, le=MAX_MEMBERS)
    epsilon: float | None = Field(default=None, ge=1e-3, le=100)
    delta: float | None = Field(default=None, ge=1e-12, le=1e-2)
    runs: int | None = Field(default=None, ge=1, le=1000)
    max_rows_per_patient: int | None = Field(default=None, ge=1, le=1_000_000)
    target_clip: float | None = Field(default=None, gt=0, le=1000)
    shares: list[float] | None = Field(default=None, max_length=50)
    without_prospect: bool | None = None


class NewSession(RequestModel):
    """A session to create.

    Without `stages` the coordinator makes kernels and stages from the schema alone. Then neither
    `kernel` nor `choices` may be stated.
    """

    name: Name
    table: StatedSchema = Field(alias="schema")
    """The columns that every hospital's table has, as everyone has agreed."""
    kernel: StatedKernel | None = None
    """The kernel that the stages train; without `stages` the coordinator makes it."""
    choices: list[StatedKernel] | None = Field(default=None, min_length=1, max_length=MOST_CHOICES)
    """The kernels that a stage `search` chooses from, instead of `kernel`."""
    stages: list[Stage] | None = Field(default=None, min_length=1, max_length=50)
    """What is computed, in order; by default the coordinator makes it from the schema."""
    max_rows: int = Program.max_rows
    held_out: float = Program.held_out
    least_rows: int = Program.least_rows
    max_sums: int | None = Field(default=None, ge=LEAST_SUMS, le=10_000)
    """The most sums of a program that the coordinator makes from the schema; with fewer, kernels
    are trained in fewer steps."""
    max_features: int | None = Field(default=None, ge=LEAST_FEATURES, le=10_000)
    """The most features of a kernel of such a program, unless the table has more columns. Each
    hospital's policy asks for a number of rows for each feature."""
    smallest_table: int | None = None
    """How many rows the smallest hospital has, as a power of two: 128 means 128 to 255. The
    hospitals say so beforehand, by telephone, and it is public; if nobody does, 2048 is assumed,
    and hospitals with fewer rows refuse by default. A program that the coordinator
    makes has as many features as this allows, and sums held-out rows only if there are enough of
    them; stages that are stated are checked against it. Not with differential privacy."""
    members: int = Field(ge=LEAST_COHORT, le=MAX_MEMBERS)
    """The planned number of hospitals."""
    privacy: NewPrivacy
    sums: Literal["blind", "open"] | None = None
    """`blind`: the coordinator cannot read totals, and members write the tasks. `open`: it computes
    updates and shows metrics by step. By default blind, and open with differential privacy."""
    model: Literal["served", "members"]
    """`served`: the coordinator gets the finished model, for `/predict`. `members`: only hospitals
    have it."""


@dataclass(frozen=True)
class Session:
    """A stored session."""

    id: str
    name: str
    program: str
    """The canonical JSON of its `Program`."""
    terms: Terms
    planned_members: int
    created_at: float
    epsilon: float | None = None
    """The most ε that the session may spend; None without differential privacy."""
    delta: float | None = None
    planned_runs: int | None = None


def create(
    connection: Connection, new: NewSession, *, now: float, identifier: UUID | None = None
) -> Session:
    """Create a session, or refuse it with all its problems; its id is random unless given."""
    identifier = identifier or uuid4()
    problems: list[Exception] = []

    def attempt(make: Callable[[], T]) -> T | None:
        try:
            return make()
        except SessionRefused as error:
            problems.extend(error.problems)
        except (KernelsError, PrivacyError, ServiceError) as error:
            problems.append(error)
        return None

    attempt(lambda: _check_name(connection, new.name))
    attempt(lambda: _check_band(new))
    attempt(lambda: _check_stated(new.privacy, patients=new.table.get("patient") is not None))
    terms = attempt(lambda: _terms(identifier, new))
    program = attempt(
        lambda: (
            _automatic(new, terms, attempt)
            if new.stages is None
            else _program(connection, new, new.stages, attempt)
        )
    )
    if terms is not None and program is not None:
        least = terms.min_cohort
        attempt(lambda: whole_program.check_min_sites(program, min_cohort=least))
    if len(problems) == 1:
        raise problems[0]
    if terms is None or program is None or problems:
        raise SessionRefused(problems)
    session = Session(
        str(identifier),
        new.name,
        program.to_json(),
        terms,
        new.members,
        now,
        epsilon=new.privacy.epsilon,
        delta=new.privacy.delta,
        planned_runs=_runs(new.privacy),
    )
    connection.execute(insert(sessions).values({**vars(session), "terms": terms.encode()}))
    return session


def find(connection: Connection, session_id: str) -> Session:
    """Return a session, or raise `NotFound`."""
    row = connection.execute(select(sessions).where(sessions.c.id == session_id)).mappings()
    found = row.one_or_none()
    if found is None:
        raise NotFound("The session does not exist.")
    return _session(found)


def every(connection: Connection) -> list[Session]:
    """Return all sessions, oldest first."""
    rows = connection.execute(select(sessions).order_by(sessions.c.created_at)).mappings()
    return [_session(row) for row in rows]


def planned_for(session: Session) -> tuple[float, float, int] | None:
    """Return ε, δ and the number of runs that they are planned for; None without a budget."""
    if session.epsilon is None or session.delta is None:
        return None
    return session.epsilon, session.delta, session.planned_runs or 1


def in_words(session: Session) -> tuple[str, ...]:
    """Return what a session's program will do and cost, and who reads what, in sentences."""
    return sentences(
        Program.from_json(session.program),
        blind=session.terms.blind,
        members_only=session.terms.members_only,
        budget=planned_for(session),
    )


def remove(connection: Connection, session_id: str) -> None:
    """Delete a session without runs, with its members and invitations."""
    session = find(connection, session_id)
    if connection.execute(select(runs.c.id).where(runs.c.session_id == session_id)).first():
        raise SessionHasRuns(
            f"The session {session.name!r} has runs, which record its members' contributions, so "
            "it cannot be deleted. To end it, suspend its members."
        )
    connection.execute(delete(sessions).where(sessions.c.id == session_id))


def _session(row: RowMapping) -> Session:
    return Session(**{**row, "terms": Terms.decode(row["terms"])})


def _check_name(connection: Connection, name: str) -> None:
    for other in connection.execute(select(sessions.c.name)).scalars():
        if likeness(other) == likeness(name):
            raise NameTaken(f"A session named {other!r} already exists; choose another name.")


def _check_band(new: NewSession) -> None:
    if new.smallest_table is not None and new.privacy.differential_privacy:
        raise ProgramError(
            "smallest_table is stated, but with differential privacy hospitals ask for no least "
            "number of rows: leave it out"
        )


def _is_blind(new: NewSession) -> bool:
    return not new.privacy.differential_privacy if new.sums is None else new.sums == "blind"


def _check_open(new: NewSession) -> None:
    """Refuse blind sums with an open ensemble, for which the coordinator needs members' samples."""
    if _is_blind(new):
        raise ProgramError(
            "a session with an open ensemble shows the coordinator samples of hospitals' own "
            'models, so it needs open sums: set "sums" to "open", or leave the ensemble out'
        )


def _terms(identifier: UUID, new: NewSession) -> Terms:
    wanted = new.privacy
    terms = default_terms(
        identifier.bytes,
        new.members,
        differential_privacy=wanted.differential_privacy,
        blind=_is_blind(new),
        members_only=new.model == "members",
    )
    if wanted.max_colluders is not None:
        least = max(terms.min_cohort, wanted.max_colluders + 2)
        terms = replace(terms, max_colluders=wanted.max_colluders, min_cohort=least)
    if wanted.min_cohort is not None:
        terms = replace(terms, min_cohort=wanted.min_cohort)
    terms.check()
    if terms.min_cohort > new.members:
        raise TermsError(
            f"members must be at least min_cohort = {terms.min_cohort}, not {new.members}: plan "
            "more members, or lower privacy.max_colluders or privacy.min_cohort."
        )
    return terms


def _automatic(
    new: NewSession, terms: Terms | None, attempt: Callable[[Callable[[], Any]], Any]
) -> Program | None:
    """Return the program of a session that states no stages, made from its schema alone."""
    schema = attempt(lambda: schema_of(new.table))
    for stated in ("kernel", "choices"):
        if getattr(new, stated) is not None:
            raise ProgramError(
                f"{stated} is stated, but no stages: state both, or leave both out, and the "
                "coordinator makes them from the schema"
            )
    if schema is None or terms is None:
        return None
    limits: dict[str, Any] = {
        # A census that fewer sites than a cohort have would be refused.
        "min_sites": terms.min_cohort,
        "max_rows": new.max_rows,
        "max_sums": MAX_SUMS if new.max_sums is None else new.max_sums,
        "max_features": MAX_FEATURES if new.max_features is None else new.max_features,
    }
    program = sized_program(
        schema,
        smallest_table=new.smallest_table,
        private=new.privacy.differential_privacy,
        members=terms.min_cohort,
        held_out=new.held_out,
        least_rows=new.least_rows,
        **limits,
    )
    return _checked(program, new, attempt)


def _program(
    connection: Connection,
    new: NewSession,
    stated: Sequence[Stage],
    attempt: Callable[[Callable[[], Any]], Any],
) -> Program | None:
    for limit in ("max_sums", "max_features"):
        if getattr(new, limit) is not None:
            raise ProgramError(
                f"{limit} is for programs that the coordinator makes: with stages, state their "
                "steps and the kernel's features"
            )
    schema = attempt(lambda: schema_of(new.table))
    inputs = len(schema.feature_names) if schema is not None else 1
    given = new.choices if new.kernel is None and new.choices else [new.kernel or {}]
    kernel = attempt(lambda: kernel_of(given[0], inputs=inputs))
    choices = [attempt(partial(kernel_of, own, inputs=inputs)) for own in new.choices or []]
    stages = [
        attempt(partial(stage_of, connection, stage, f"stages[{i}]"))
        for i, stage in enumerate(stated)
    ]
    if schema is None or kernel is None or None in choices or None in stages:
        names = [stage.algorithm for stage in stated]
        attempt(lambda: _refuse([*whole_program.problems_of_names(names)]))
        return None
    return _checked(
        Program(
            schema,
            kernel,
            tuple(stages),
            new.max_rows,
            new.held_out,
            least_rows=new.least_rows,
            choices=tuple(choices),
        ),
        new,
        attempt,
    )


def _checked(
    program: Program, new: NewSession, attempt: Callable[[Callable[[], Any]], Any]
) -> Program:
    """Return a program with its noise; refuse one that would stop in the middle."""
    attempt(lambda: _refuse([*whole_program.problems(program)]))
    smallest = new.smallest_table
    noisy = new.privacy.differential_privacy
    if smallest is not None and new.stages is not None and not noisy:
        attempt(lambda: check_fits_smallest(program, smallest))
    if open_stage(program) is not None:
        attempt(lambda: _check_open(new))
    if new.privacy.differential_privacy and new.privacy.epsilon and new.privacy.delta:
        program = private(program, new.privacy)
        if not new.privacy.without_prospect:
            attempt(partial(_check_prospect, program, members=new.members))
    for spec, stage in zip(program.stages, declared(program), strict=True):
        match stage.public_rows:
            case PublicRows.LABELLED:
                public_records(spec.public, program.schema)
            case PublicRows.INPUTS:
                Records.for_prediction(program.schema, dict(spec.public))
            case PublicRows.NONE:
                pass
    if open_stage(program) is not None:
        asked(program)
    return program


_OF_PRIVACY = (
    "epsilon",
    "delta",
    "runs",
    "max_rows_per_patient",
    "target_clip",
    "shares",
    "without_prospect",
)


def _refuse(problems: Sequence[Exception]) -> None:
    if problems:
        raise SessionRefused(problems)


def _check_stated(wanted: NewPrivacy, *, patients: bool) -> None:
    """Refuse differential privacy without its parameters, and parameters without it."""
    stated = [name for name in _OF_PRIVACY if getattr(wanted, name) is not None]
    if not wanted.differential_privacy:
        if stated:
            raise PrivacyIncomplete(
                "privacy.differential_privacy is false, but these fields of privacy are set: "
                f"{', '.join(stated)}. Set differential_privacy to true, or leave them out."
            )
        return
    needed = ["epsilon", "delta", *(["max_rows_per_patient"] if patients else [])]
    missing = [name for name in needed if name not in stated]
    if missing:
        raise PrivacyIncomplete(
            "privacy.differential_privacy is true, but these fields of privacy are missing: "
            f"{', '.join(missing)}. epsilon and delta are the most that is spent on any one "
            "patient; max_rows_per_patient is how many rows of one patient are used."
        )


def _runs(wanted: NewPrivacy) -> int | None:
    return (wanted.runs or 1) if wanted.differential_privacy else None


def private(program: Program, wanted: NewPrivacy) -> Program:
    """Return a program with the noise that its budget needs; refuse stages without a private form.

    Whether a stage has a private form does not depend on the noise.
    """
    if wanted.epsilon is None or wanted.delta is None:
        raise PrivacyIncomplete(
            "privacy.epsilon and privacy.delta must be set: they determine the noise."
        )
    return with_noise(
        program,
        partial(planned_noise, epsilon=wanted.epsilon, delta=wanted.delta, runs=wanted.runs or 1),
        max_rows_per_patient=wanted.max_rows_per_patient or 1,
        target_clip=wanted.target_clip or NoisePlan.target_clip,
        shares=wanted.shares,
    )


def _check_prospect(program: Program, *, members: int) -> None:
    """Refuse a session that would spend its budget on nothing, by its stated rows or the most."""
    most = members * math.floor(program.max_rows * (1 - program.held_out))
    stated = program.least_rows != Program.least_rows
    try:
        check_prospect(program, rows=program.least_rows if stated else max(1, most))
    except NoProspect as error:
        raise NoProspect(
            f"{error}. To create the session nevertheless, set privacy.without_prospect to true"
        ) from None
