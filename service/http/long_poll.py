"""Answers that are held back until there is something to say: members ask, and need not hurry."""

import asyncio
from collections.abc import Callable
from typing import Annotated, TypeVar

from fastapi import Query, Request
from starlette.concurrency import run_in_threadpool

from service.http.wakeups import Wakeups

MAX_WAIT_S = 30
LOOK_AGAIN_S = 2.0
"""How long a change that wakes nobody here, such as another replica's, may stay unseen."""

Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_S)]
"""For how many seconds an answer may be held back."""

T = TypeVar("T")


async def held_back(
    request: Request,
    wakeups: Wakeups,
    session_id: str,
    wait: float,
    look: Callable[[], T],
    said: Callable[[T], bool],
) -> T:
    """Look, again whenever it is woken, until something is said or the time is over."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait
    with wakeups.waiting(session_id) as waiter:
        while True:
            found = await run_in_threadpool(look)
            left = until - loop.time()
            if said(found) or left <= 0 or await request.is_disconnected():
                return found
            await waiter.wait(min(left, LOOK_AGAIN_S))
