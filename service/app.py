"""The coordinator as an ASGI application: `create_app(settings)`; nothing happens on import."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI

from service.bell import Bell
from service.context import Clock, Context
from service.database import Database
from service.engine import Engine
from service.prediction import Predictor
from service.problems import add_problem_handlers
from service.routes import models, predict, rounds, runs
from service.runs import Runs
from service.settings import Settings


def create_app(settings: Settings, *, clock: Clock = time.time) -> FastAPI:
    """Build the application over one data directory, or one database."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
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

    app = FastAPI(title="veilgp", lifespan=lifespan)
    app.include_router(models.router)
    app.include_router(predict.router)
    app.include_router(rounds.router)
    app.include_router(runs.router)
    add_problem_handlers(app)
    return app
