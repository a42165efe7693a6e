"""The coordinator as an ASGI application: `create_app(settings)`; nothing happens on import."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import torch
from fastapi import FastAPI
from fastapi.routing import APIRoute

from service.context import Clock, Context
from service.contract.document import document
from service.database import data_directory
from service.database.database import Database
from service.database.notices import NoticeListener
from service.http.every_request import Envelope
from service.http.metrics import Metrics, RequestMeter
from service.http.problems import add_problem_handlers
from service.http.rate_limits import RateLimits
from service.http.shared_check import SharedCheck
from service.http.wakeups import Wakeups
from service.page.model_effects import ModelEffects
from service.prediction.prediction import Predictor
from service.readiness import readiness
from service.routes import (
    callers,
    console,
    events,
    inference,
    membership,
    models,
    open_samples,
    operations,
    predict,
    protocol,
    public_sets,
    roster,
    rounds,
    runs,
    sessions,
)
from service.routes.page import (
    invitation,
    model_forms,
    reading,
    rendering,
    session_forms,
    signing_in,
)
from service.runs.engine import Engine
from service.runs.runs import Runs
from service.runs.spool import Spool
from service.settings import Settings

_ROUTERS = tuple(
    routes.router
    for routes in (
        sessions,
        roster,
        runs,
        events,
        models,
        callers,
        public_sets,
        predict,
        inference,
        membership,
        rounds,
        open_samples,
        protocol,
        operations,
        console,
        signing_in,
        reading,
        session_forms,
        model_forms,
        invitation,
    )
)
"""The routers in the order of use, which is the order of the contract."""


INVITATION_READS = 60
"""How often a minute an invitation may be read: a program is computed in words each time."""


class _Application(FastAPI):
    """FastAPI with the contract that the routes declare."""

    def openapi(self) -> dict[str, Any]:
        """Return the contract, built on first use."""
        if self.openapi_schema is None:
            routes = [each for router in _ROUTERS for each in router.routes]
            self.openapi_schema = document([r for r in routes if isinstance(r, APIRoute)])
        return self.openapi_schema


def create_app(settings: Settings, *, clock: Clock = time.time) -> FastAPI:
    """Build the application for one data directory or one database."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        data_directory.prepare(settings.data_dir)
        database = Database(settings.url)
        database.migrate()
        app.state.context = Context(settings, database, clock)
        # Many requests with small matrices: threads inside one request would only compete.
        torch.set_num_threads(1)
        app.state.predictor = Predictor(
            settings, database, clock, count=app.state.metrics.predicted.inc
        )
        app.state.effects = ModelEffects(app.state.predictor)
        app.state.invitation_reads = RateLimits(
            per_minute=INVITATION_READS, clock=clock, whose="invitation", what="reads"
        )
        app.state.runs = Runs(database, settings, Wakeups(), clock)
        app.state.spool = Spool(settings.data_dir, settings.max_spool)
        app.state.engine = engine = Engine(app.state.runs, clock)
        app.state.readiness = SharedCheck(
            lambda: list(readiness(settings, database, engine_alive=engine.is_alive)), clock
        )
        app.state.database_check = SharedCheck(database.check, clock)
        wakeups, predictor = app.state.runs.wakeups, app.state.predictor

        def on_notice(session_id: str) -> None:
            wakeups.wake(session_id)
            predictor.close(session_id)

        listener = NoticeListener(database, on_notice, own=app.state.runs.replica)
        engine.start()
        listener.start()
        yield
        app.state.effects.stop()
        listener.stop()
        engine.stop()
        database.close()

    # FastAPI's own pages load scripts from other hosts; ours are in `routes.console`.
    app = _Application(lifespan=lifespan, openapi_url=None)
    app.state.metrics = Metrics()
    app.add_middleware(Envelope, secure=settings.tls_certificate is not None)
    app.add_middleware(RequestMeter, metrics=app.state.metrics)
    add_problem_handlers(app)
    app.state.templates = rendering.templates()
    # First, because paths are tried in this order and most requests go to this router.
    app.include_router(rounds.router)
    for router in _ROUTERS:
        if router is not rounds.router:
            app.include_router(router)
    app.mount("/docs", console.ConsoleFiles())
    return app
