"""The coordinator as an ASGI application: `create_app(settings)`; nothing happens on import."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI

from service import data_directory
from service.bell import Bell
from service.context import Clock, Context
from service.database import Database
from service.engine import Engine
from service.metrics import Measured, Metrics
from service.notices import Listener
from service.prediction import Predictor
from service.problems import add_problem_handlers
from service.protocol import Envelope
from service.routes import (
    anyone,
    callers,
    events,
    inference,
    membership,
    models,
    operations,
    page,
    predict,
    public_sets,
    roster,
    rounds,
    runs,
    sessions,
)
from service.runs import Runs
from service.settings import Settings
from service.spool import Spool


def create_app(settings: Settings, *, clock: Clock = time.time) -> FastAPI:
    """Build the application over one data directory, or one database."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        data_directory.prepare(settings.data_dir)
        database = Database(settings.url)
        database.migrate()
        app.state.context = Context(settings, database, clock)
        # Small matrices, many requests: threads within one would wait for each other.
        torch.set_num_threads(1)
        app.state.predictor = Predictor(
            settings, database, clock, count=app.state.metrics.predicted.inc
        )
        app.state.runs = Runs(database, settings, Bell(), clock)
        app.state.spool = Spool(settings.data_dir, settings.max_spool)
        app.state.engine = engine = Engine(app.state.runs, clock)
        bell = app.state.runs.bell
        listener = Listener(database, bell.ring, own=app.state.runs.replica)
        engine.start()
        listener.start()
        yield
        listener.stop()
        engine.stop()
        database.close()

    # The interactive pages load scripts from elsewhere, which a hospital's network may not.
    app = FastAPI(title="veilgp", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.metrics = Metrics()
    app.add_middleware(Envelope, secure=settings.tls_certificate is not None)
    app.add_middleware(Measured, metrics=app.state.metrics)
    add_problem_handlers(app)
    app.state.templates = page.templates()
    for routes in (
        rounds,  # first, for paths are tried in this order and most requests are these
        anyone,
        operations,
        sessions,
        roster,
        runs,
        events,
        public_sets,
        models,
        callers,
        predict,
        inference,
        membership,
        page,
    ):
        app.include_router(routes.router)
    return app
