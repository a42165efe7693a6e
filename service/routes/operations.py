"""For whoever runs the coordinator: is it ready for work, and what does it do."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from service import checks
from service.access import require_admin
from service.context import Here
from service.engine import Engine
from service.metrics import Metrics
from service.prediction import Predicting
from service.runs import Running

# Not in the contract: whoever watches the machine reads these, in forms of their own.
router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Readiness:
    """ok or failing, in all and for each thing that was looked at; `veilgp doctor` says more."""

    status: str
    checks: dict[str, str]


def _scraper(request: Request, here: Here) -> None:
    """Let anyone read figures where the settings say so, else the admin."""
    if not here.settings.open_metrics:
        require_admin(request, here)


@router.get(
    "/readyz",
    summary="Ask whether it is ready for work",
    responses={503: {"model": Readiness, "description": "Something is failing."}},
)
def readyz(request: Request, response: Response, here: Here) -> Readiness:
    """Say whether database, disk and engine are well; 503 if one is not."""
    engine: Engine = request.app.state.engine
    found = list(checks.readiness(here.settings, here.database, engine_alive=engine.is_alive))
    well = all(check.is_well for check in found)
    response.status_code = 200 if well else 503
    return Readiness(
        "ok" if well else "failing",
        {check.name: "ok" if check.is_well else "failing" for check in found},
    )


@router.get(
    "/metrics",
    summary="Read figures for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}},
)
def metrics(
    _: Annotated[None, Depends(_scraper)],
    request: Request,
    here: Here,
    runs: Running,
    predictor: Predicting,
) -> Response:
    """Give requests, sums, runs and queues; no figure is one site's, no label names anything."""
    state = request.app.state
    engine: Engine = state.engine
    figures: Metrics = state.metrics
    queues = {
        "long_polls": runs.bell.listeners,
        "predictions": predictor.threads.statistics().tasks_waiting,
        "runs_at_work": engine.at_work,
    }
    with here.database.reading() as connection:
        text = figures.text(connection, queues)
    return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)
