"""For whoever runs the coordinator: does it live, is it ready for work, what does it do."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from sqlalchemy import select

from service import readiness
from service.context import Here
from service.errors import NotAllowed, NotAuthenticated, NotReady
from service.http.access import require_admin
from service.http.declarations import ADMIN, declares
from service.routes.parts import EngineHere, MetricsHere, PredictorHere, RunsHere
from service.runs import figures

router = APIRouter(tags=["operators"])


@dataclass(frozen=True)
class Health:
    """Alive, with its database."""

    status: str


@dataclass(frozen=True)
class Readiness:
    """All that was looked at is well."""

    status: str
    checks: dict[str, str]


@declares(NotAuthenticated, NotAllowed, security=(ADMIN,))
def _scraper(request: Request, here: Here) -> None:
    """Let anyone read figures where the settings say so, else the admin."""
    if not here.settings.open_metrics:
        require_admin(request, here)


@router.get("/healthz", operation_id="checkHealth", summary="Ask whether it lives")
def healthz(here: Here) -> Health:
    """Say whether the coordinator and its database answer."""
    with here.database.reading() as connection:
        connection.execute(select(1))
    return Health("ok")


@router.get("/readyz", operation_id="checkReadiness", summary="Ask whether it is ready for work")
@declares(NotReady)
def readyz(here: Here, engine: EngineHere) -> Readiness:
    """Say whether database, its migrations, disk and engine are well; 503 names what is not."""
    found = list(readiness.readiness(here.settings, here.database, engine_alive=engine.is_alive))
    if failing := [check.name for check in found if not check.is_well]:
        raise NotReady(
            f"Failing: {', '.join(failing)}. `veilgp doctor coordinator`, where it runs, says what "
            "to do about each."
        )
    return Readiness("ok", {check.name: "ok" for check in found})


@router.get(
    "/metrics",
    operation_id="getMetrics",
    summary="Read figures for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(
    _: Annotated[None, Depends(_scraper)],
    here: Here,
    gathered: MetricsHere,
    engine: EngineHere,
    runs: RunsHere,
    predictor: PredictorHere,
) -> Response:
    """Give requests, sums, runs and queues; no figure is one site's, no label names anything.

    For the admin, or where the setting `open_metrics` says so for anyone.
    """
    queues = {
        "long_polls": runs.wakeups.count,
        "predictions": predictor.threads.statistics().tasks_waiting,
        "runs_at_work": engine.at_work,
    }
    with here.database.reading() as connection:
        found = figures.count(connection)
    text = gathered.text(runs=found.runs, sums=found.sums, sessions=found.sessions, queues=queues)
    return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)
