"""For admins: start, list, watch, cancel and restart runs. No metric describes a single site."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field
from sqlalchemy import Connection

from kernels.rounds.run_kinds import Kind
from privacy.errors import BudgetExceeded
from service.context import Context, Here
from service.errors import (
    ModelDamaged,
    NotFound,
    RunEnded,
    RunNotEnded,
    RunOpen,
    RunRefused,
    TooFewMembers,
)
from service.http.access import Admin
from service.http.bodies import json_body
from service.http.declarations import declares, described_as
from service.http.request_models import RequestModel
from service.http.times import iso_time, iso_time_if
from service.routes.parts import RunsHere
from service.runs import rows, starting
from service.runs.rows import RunRow
from service.runs.runs import Runs

router = APIRouter(tags=["admins: runs"])

MAX_DEADLINE_S = 30 * 86_400


class RunIn(RequestModel):
    """A run to start; every kind except `train` starts from a model, given by id or alias."""

    kind: Annotated[Kind, Field(strict=False)]
    model: str | None = None
    deadline_s: Annotated[float, Field(gt=0, le=MAX_DEADLINE_S, strict=False)] | None = None
    """The setting `run_deadline_s` if absent."""


class ProgressOut(BaseModel):
    """The progress of a run: index of the stage, number of stages, sums completed so far."""

    stage: int
    stages: int
    algorithm: str
    sums: int


class RunOut(BaseModel):
    """A run without its metrics."""

    id: str
    session: str
    kind: str
    base_model: str | None
    status: str
    code: str | None
    detail: str | None
    created_at: str
    deadline: str
    ended_at: str | None
    progress: ProgressOut
    model: str | None


class WatchedOut(RunOut):
    """A run with its metrics by step, over all sites together, and the members it waits for."""

    metrics: list[Annotated[dict[str, Any], described_as("RunStep")]]
    waiting_for: list[str]


@router.post(
    "/sessions/{session_id}/runs", operation_id="startRun", status_code=201, summary="Start a run"
)
@declares(NotFound, RunOpen, TooFewMembers, RunRefused, ModelDamaged, BudgetExceeded)
def start(
    _: Admin, session_id: UUID, new: Annotated[RunIn, json_body(RunIn)], here: Here, runs: RunsHere
) -> WatchedOut:
    """Start a run with all members that are approved now; a session has one open run at a time.

    With differential privacy, a run that would exceed the session's remaining budget is refused.
    """
    with here.database.changing() as connection:
        run_id = starting.start(
            connection,
            session_id=str(session_id),
            kind=new.kind,
            model=new.model,
            deadline_s=new.deadline_s or here.settings.run_deadline_s,
            now=here.clock(),
        )
    runs.started(str(session_id), run_id)
    return watched(here, runs, run_id)


@router.get("/sessions/{session_id}/runs", operation_id="listRuns", summary="List a session's runs")
def list_runs(_: Admin, session_id: UUID, here: Here) -> list[RunOut]:
    """List the runs of a session, newest first."""
    with here.database.reading() as connection:
        return [RunOut(**_shown(row)) for row in rows.listed(connection, str(session_id))]


@router.get("/runs/{run_id}", operation_id="getRun", summary="Get a run")
@declares(NotFound)
def show(_: Admin, run_id: UUID, here: Here, runs: RunsHere) -> WatchedOut:
    """Return a run with its metrics and the members whose answers it waits for.

    `GET /runs/{run_id}/events` sends the same after every change, as server-sent events.
    """
    return watched(here, runs, str(run_id))


@router.post("/runs/{run_id}/cancel", operation_id="cancelRun", summary="Cancel a run")
@declares(NotFound, RunEnded)
def cancel(_: Admin, run_id: UUID, here: Here, runs: RunsHere) -> WatchedOut:
    """Cancel an open run; its members are notified."""
    runs.cancel(str(run_id))
    return watched(here, runs, str(run_id))


@router.post(
    "/runs/{run_id}/retry", operation_id="retryRun", status_code=201, summary="Start a run again"
)
@declares(NotFound, RunOpen, RunNotEnded, TooFewMembers, RunRefused, ModelDamaged, BudgetExceeded)
def retry(_: Admin, run_id: UUID, here: Here, runs: RunsHere) -> WatchedOut:
    """Start a new run of the same kind and with the same deadline as one that has ended."""
    with here.database.changing() as connection:
        again = starting.start_again(connection, str(run_id), now=here.clock())
        session_id = rows.find(connection, again).session_id
    runs.started(session_id, again)
    return watched(here, runs, again)


def watched(here: Context, runs: Runs, run_id: str) -> WatchedOut:
    """Return a run with its metrics and the members it waits for."""
    progress = runs.progress(run_id)
    with here.database.reading() as connection:
        return _out(connection, run_id, progress.awaited if progress else ())


def _out(connection: Connection, run_id: str, awaited: tuple[str, ...]) -> WatchedOut:
    row = rows.find(connection, run_id)
    return WatchedOut(
        **_shown(row),
        metrics=rows.metrics(connection, run_id),
        waiting_for=list(awaited) if row.is_open else [],
    )


def _shown(row: RunRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "session": row.session_id,
        "kind": row.kind,
        "base_model": row.base_model,
        "status": row.status,
        "code": row.code,
        "detail": row.detail,
        "created_at": iso_time(row.created_at),
        "deadline": iso_time(row.deadline_at),
        "ended_at": iso_time_if(row.ended_at),
        "progress": ProgressOut(
            stage=row.stage, stages=row.stages, algorithm=row.algorithm, sums=row.sums
        ),
        "model": row.model_id,
    }
