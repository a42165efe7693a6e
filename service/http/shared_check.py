"""A check that anyone may ask for, made at most once a second however many ask.

Health checks need no token, so they must not be a way to put load on the database. Requests that
arrive while a check is being made wait for its result, without a thread of their own.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from starlette.concurrency import run_in_threadpool

from service.context import Clock

KEPT_S = 1.0
"""Seconds for which a result is given to everyone who asks. A check that fails with an exception is
shared only by those who were waiting for it."""

T = TypeVar("T")


class SharedCheck(Generic[T]):
    """The result of `check`, which is called in a thread, by one thread at a time."""

    def __init__(self, check: Callable[[], T], clock: Clock) -> None:
        self._check = check
        self._clock = clock
        self._under_way: asyncio.Task[T] | None = None
        self._made_at = 0.0

    async def result(self) -> T:
        """Return the result of the last second, or of a new check."""
        if self._under_way is None or self._is_over(self._under_way):
            self._under_way = asyncio.create_task(run_in_threadpool(self._check))
            self._made_at = self._clock()
        # Whoever hangs up does not cancel the check for the others.
        return await asyncio.shield(self._under_way)

    def _is_over(self, task: "asyncio.Task[T]") -> bool:
        if not task.done():
            return False
        is_fresh = 0 <= self._clock() - self._made_at < KEPT_S
        return task.cancelled() or task.exception() is not None or not is_fresh
