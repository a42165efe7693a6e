"""For operators: health, readiness and metrics of the coordinator."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from service.context import Here
from service.errors import NotAllowed, NotAuthenticated, NotReady
from service.http.access import require_admin
from service.http.declarations import ADMIN, declares
from service.routes.parts import (
    DatabaseCheckHere,
    EngineHere,
    MetricsHere,
    PredictorHere,
    ReadinessCheckHere,
    RunsHere,
)
from service.runs import figures

router = APIRouter(tags=["operators"])


@dataclass(frozen=True)
class Health:
    """The coordinator and its database answer."""

    status: str


@dataclass(frozen=True)
class Readiness:
    """All checks have passed."""

    status: str
    checks: dict[str, str]


@declares(NotAuthenticated, NotAllowed, security=(ADMIN,))
def _scraper(request: Request, here: Here) -> None:
    """Admit anyone if the setting `open_metrics` is on, otherwise only the admin."""
    if not here.settings.open_metrics:
        require_admin(request, here)


@router.get("/healthz", operation_id="checkHealth", summary="Check that the coordinator is alive")
async def healthz(database: DatabaseCheckHere) -> Health:
    """Check that the coordinator and its database answer; a result is kept for one second."""
    await database.result()
    return Health("ok")


@router.get(
    "/readyz", operation_id="checkReadiness", summary="Check that the coordinator is ready for work"
)
@declares(NotReady)
async def readyz(ready: ReadinessCheckHere) -> Readiness:
    """Check database, migrations, disk and engine; a result is kept for one second.

    A 503 answer names the failing checks.
    """
    found = await ready.result()
    if failing := [check.name for check in found if not check.is_well]:
        raise NotReady(
            f"Failing checks: {', '.join(failing)}. Run `veilgp doctor coordinator` on the "
            "coordinator's machine to see what to do."
        )
    return Readiness("ok", {check.name: "ok" for check in found})


@router.get(
    "/metrics",
    operation_id="getMetrics",
    summary="Get metrics for Prometheus",
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
    """Return metrics of requests, sums, runs and queues.

    No metric describes a single site, and no label names a session, member, model or caller. Only
    the admin may read them, unless the setting `open_metrics` opens them to anyone.
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
