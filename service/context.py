"""What every request and the engine need: settings, database, clock. Made once, by `create_app`."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from service.database.database import Database
from service.settings import Settings

Clock = Callable[[], float]
"""Gives seconds since 1970."""


@dataclass(frozen=True)
class Context:
    """The coordinator's parts."""

    settings: Settings
    database: Database
    clock: Clock = time.time


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


Here = Annotated[Context, Depends(_context)]
"""The coordinator that a request came to."""
