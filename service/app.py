"""The coordinator as an ASGI application: `create_app(settings)`; nothing happens on import."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from service.context import Clock, Context
from service.database import Database
from service.problems import add_problem_handlers
from service.settings import Settings


def create_app(settings: Settings, *, clock: Clock = time.time) -> FastAPI:
    """Build the application over one data directory, or one database."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        database = Database(settings.url)
        database.migrate()
        app.state.context = Context(settings, database, clock)
        yield
        database.close()

    app = FastAPI(title="veilgp", lifespan=lifespan)
    add_problem_handlers(app)
    return app
