"""What every request and the engine need: settings, database, clock; built once per application."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from service.database.database import Database
from service.settings import Settings

Clock = Callable[[], float]
"""Returns seconds since 1970."""


@dataclass(frozen=True)
class Context:
    """The settings, the database and the clock of a coordinator."""

    settings: Settings
    database: Database
    clock: Clock = time.time


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


Here = Annotated[Context, Depends(_context)]
"""The context of the coordinator that handles a request."""
