"""For admins: sessions."""

import json
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, status

from kernels.errors import ProgramError, SchemaError, SpecError, TableError
from kernels.rounds.expected.forecast import Expected, Forecast
from kernels.rounds.expected.forecast_in_words import forecasts
from kernels.rounds.program import Program
from privacy.errors import AccountingError
from privacy.securesum.errors import TermsError
from service.context import Here
from service.errors import NameTaken, NotFound, PrivacyIncomplete, SessionHasRuns, SessionRefused
from service.http.access import Admin
from service.http.bodies import json_body
from service.http.declarations import declares, described_as
from service.http.times import iso_time
from service.sessions import members, privacy_report, sessions
from service.sessions.privacy_report import Budget, PrivacyReport
from service.sessions.sessions import NewSession, Session

router = APIRouter(tags=["admins: sessions"])


@dataclass(frozen=True)
class SessionPrivacy:
    """The privacy terms of a session."""

    differential_privacy: bool
    max_colluders: int
    min_cohort: int


@dataclass(frozen=True)
class ShownSession:
    """A session in a list."""

    id: str
    name: str
    members: int
    """The planned number of members."""
    enrolled: dict[str, int]
    """The number of enrolled members by status."""
    privacy: SessionPrivacy
    sums: str
    """"blind" or "open"."""
    model: str
    """"served" or "members"."""
    created_at: str


@dataclass(frozen=True)
class ExpectedOfTarget:
    """What is expected of one target, if its columns can explain half of its variation.

    `low` and `high`: if they can explain a fifth, or nine tenths.
    """

    target: str
    measure: str
    low: float
    expected: float
    high: float
    no_better_than_the_mean: bool


@dataclass(frozen=True)
class ShownForecast:
    """What a private session can be expected to achieve with so many training rows in all."""

    rows: int
    targets: list[ExpectedOfTarget]


@dataclass(frozen=True)
class WholeSession(ShownSession):
    """A session with everything its members see."""

    program: Annotated[dict[str, Any], described_as("Program")]
    """What is computed: as stated, or as made from the schema if no stages were stated."""
    in_words: list[str]
    """What the program will do and cost, one sentence for each stage, and who reads what."""
    forecast: list[ShownForecast]
    """For `least_rows` training rows over all members; for several numbers of rows if it is not
    stated; empty without differential privacy."""
    terms: str
    budget: Budget | None
    """The privacy budget and the cost of a run; None without differential privacy."""


@router.post(
    "/sessions",
    operation_id="createSession",
    status_code=status.HTTP_201_CREATED,
    summary="Create a session",
)
@declares(
    NotFound,
    NameTaken,
    SessionRefused,
    PrivacyIncomplete,
    AccountingError,
    SchemaError,
    SpecError,
    ProgramError,
    TableError,
    TermsError,
)
def create(_: Admin, new: Annotated[NewSession, json_body(NewSession)], here: Here) -> WholeSession:
    """Create a session; it cannot be changed afterwards.

    Name, schema, members, privacy and model are enough: without `stages` the coordinator makes the
    program from the schema, and `in_words` says what it will do and cost.
    """
    with here.database.changing() as connection:
        session = sessions.create(connection, new, now=here.clock())
    return _whole(session, {})


@router.get("/sessions", operation_id="listSessions", summary="List the sessions")
def every(_: Admin, here: Here) -> list[ShownSession]:
    """List all sessions, oldest first."""
    with here.database.reading() as connection:
        return [
            ShownSession(**_parts(session, members.counts(connection, session.id)))
            for session in sessions.every(connection)
        ]


@router.get("/sessions/{session_id}", operation_id="getSession", summary="Get a session")
@declares(NotFound)
def one(_: Admin, session_id: str, here: Here) -> WholeSession:
    """Return a session with its program, terms and budget."""
    with here.database.reading() as connection:
        session = sessions.find(connection, session_id)
        return _whole(session, members.counts(connection, session_id))


@router.get(
    "/sessions/{session_id}/privacy",
    operation_id="getPrivacyReport",
    summary="Get the privacy report",
)
@declares(NotFound)
def privacy(_: Admin, session_id: str, here: Here) -> PrivacyReport:
    """Return the unit of privacy, the budget, every charged sum, and the cost of a run."""
    with here.database.reading() as connection:
        return privacy_report.report(connection, session_id)


@router.delete(
    "/sessions/{session_id}",
    operation_id="deleteSession",
    status_code=status.HTTP_204_NO_CONTENT,
    summary="Delete a session",
)
@declares(NotFound, SessionHasRuns)
def remove(_: Admin, session_id: str, here: Here) -> None:
    """Delete a session that has no runs."""
    with here.database.changing() as connection:
        sessions.remove(connection, session_id)


def _whole(session: Session, enrolled: dict[str, int]) -> WholeSession:
    return WholeSession(
        **_parts(session, enrolled),
        program=json.loads(session.program),
        in_words=[*sessions.in_words(session)],
        forecast=[_forecast(own) for own in forecasts(Program.from_json(session.program))],
        terms=session.terms.encode().hex(),
        budget=privacy_report.budget_of(session),
    )


def _expected(own: Expected) -> ExpectedOfTarget:
    low, expected, high = own.scores
    return ExpectedOfTarget(
        own.target, own.measure.value, low, expected, high, not own.has_prospect
    )


def _forecast(found: Forecast) -> ShownForecast:
    return ShownForecast(found.rows, [_expected(own) for own in found.targets])


def _parts(session: Session, enrolled: dict[str, int]) -> dict[str, Any]:
    terms = session.terms
    return {
        "id": session.id,
        "name": session.name,
        "members": session.planned_members,
        "enrolled": enrolled,
        "privacy": SessionPrivacy(
            terms.differential_privacy,
            terms.max_colluders,
            terms.min_cohort,
        ),
        "sums": "blind" if terms.blind else "open",
        "model": "members" if terms.members_only else "served",
        "created_at": iso_time(session.created_at),
    }
