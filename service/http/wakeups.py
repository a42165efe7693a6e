"""Wakeups of waiting requests, from whichever thread changed their session.

A waiting request needs no thread, so a whole roster can wait at once.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class Wakeups:
    """The waiters of one process by session; a wakeup reaches only waiters of its session."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiters: dict[str, set[Waiter]] = {}

    def wake(self, session_id: str) -> None:
        """Wake all waiters of a session."""
        with self._lock:
            waiters = tuple(self._waiters.get(session_id, ()))
        for waiter in waiters:
            waiter.wake()

    @property
    def count(self) -> int:
        """The number of waiters of all sessions."""
        with self._lock:
            return sum(map(len, self._waiters.values()))

    @contextmanager
    def waiting(self, session_id: str) -> Iterator["Waiter"]:
        """Register a waiter; check the state after entering, so that no change is missed."""
        waiter = Waiter()
        with self._lock:
            self._waiters.setdefault(session_id, set()).add(waiter)
        try:
            yield waiter
        finally:
            with self._lock:
                self._waiters[session_id].discard(waiter)
                if not self._waiters[session_id]:
                    del self._waiters[session_id]


class Waiter:
    """One waiting request, in the event loop in which it was created."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Make the current or the next `wait` return; may be called from any thread."""
        # A closed loop has no waiters left.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    async def wait(self, timeout_s: float) -> None:
        """Wait for a wakeup, at most `timeout_s` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()
