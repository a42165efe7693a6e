"""Long polling: an answer is delayed until there is something to report."""

import asyncio
from collections.abc import Callable
from typing import Annotated, TypeVar

from fastapi import Query, Request
from starlette.concurrency import run_in_threadpool

from service.http.wakeups import Wakeups

MAX_WAIT_S = 30
LOOK_AGAIN_S = 2.0
"""Seconds after which a change is seen that no wakeup announced, such as another replica's."""

Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_S)]
"""The most seconds that an answer may be delayed."""

T = TypeVar("T")


async def held_back(
    request: Request,
    wakeups: Wakeups,
    session_id: str,
    wait: float,
    look: Callable[[], T],
    said: Callable[[T], bool],
) -> T:
    """Call `look`, again after each wakeup, until `said` accepts its result or `wait` is over."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait
    with wakeups.waiting(session_id) as waiter:
        while True:
            found = await run_in_threadpool(look)
            left = until - loop.time()
            if said(found) or left <= 0 or await request.is_disconnected():
                return found
            await waiter.wait(min(left, LOOK_AGAIN_S))
