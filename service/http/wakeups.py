"""Wakes members that wait for their next item, from whichever thread changed their session.

Waiting costs a future each and no thread, so a whole roster may wait at once.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class Wakeups:
    """One for each process; those who wait for other sessions sleep on."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiters: dict[str, set[Waiter]] = {}

    def wake(self, session_id: str) -> None:
        """Wake all who wait for a session."""
        with self._lock:
            waiters = tuple(self._waiters.get(session_id, ()))
        for waiter in waiters:
            waiter.wake()

    @property
    def count(self) -> int:
        """How many wait, in all sessions."""
        with self._lock:
            return sum(map(len, self._waiters.values()))

    @contextmanager
    def waiting(self, session_id: str) -> Iterator["Waiter"]:
        """Be woken from here on; look what there is after this, not before."""
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
    """One that waits, in the event loop in which it was made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Let `wait` return, now or when it is called next; from any thread."""
        # A loop that is closed has nobody left to wake.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    async def wait(self, timeout_s: float) -> None:
        """Wait to be woken, at most `timeout_s` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()
