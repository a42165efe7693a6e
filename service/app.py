"""The coordinator as an ASGI application: `create_app(settings)`; nothing happens on import."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import torch
from fastapi import FastAPI
from fastapi.routing import APIRoute

from service import data_directory
from service.bell import Bell
from service.context import Clock, Context
from service.contract import document
from service.database import Database
from service.engine import Engine
from service.prediction import Predictor
from service.problems import add_problem_handlers
from service.protocol import Envelope
from service.routes import (
    anyone,
    callers,
    console,
    membership,
    models,
    predict,
    public_sets,
    roster,
    rounds,
    runs,
    sessions,
)
from service.runs import Runs
from service.settings import Settings

_ROUTERS = tuple(
    routes.router
    for routes in (
        sessions,
        roster,
        runs,
        models,
        callers,
        public_sets,
        predict,
        membership,
        rounds,
        anyone,
        console,
    )
)
"""In the order of use."""


class _Application(FastAPI):
    """FastAPI with the contract that the routes state."""

    def openapi(self) -> dict[str, Any]:
        """Give the contract, made once."""
        if self.openapi_schema is None:
            routes = [each for router in _ROUTERS for each in router.routes]
            self.openapi_schema = document([r for r in routes if isinstance(r, APIRoute)])
        return self.openapi_schema


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
        app.state.predictor = Predictor(settings, database, clock)
        app.state.runs = Runs(database, settings, Bell(), clock)
        app.state.engine = engine = Engine(app.state.runs, clock)
        engine.start()
        yield
        engine.stop()
        database.close()

    # FastAPI's own pages load scripts from elsewhere; ours are in `routes.console`.
    app = _Application(lifespan=lifespan, openapi_url=None)
    app.add_middleware(Envelope, secure=settings.tls_certificate is not None)
    add_problem_handlers(app)
    for router in _ROUTERS:
        app.include_router(router)
    app.mount("/docs", console.ConsoleFiles())
    return app
