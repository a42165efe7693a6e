"""Wakes members that wait for their next item, from whichever thread changed their session.

Waiting costs a future each and no thread, so a whole roster may wait at once.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class Bell:
    """One for each process; members of other sessions sleep on."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: dict[str, set[Listener]] = {}

    def ring(self, session_id: str) -> None:
        """Wake all who listen to a session."""
        with self._lock:
            listeners = tuple(self._waiting.get(session_id, ()))
        for listener in listeners:
            listener.wake()

    @property
    def listeners(self) -> int:
        """How many wait, in all sessions."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    @contextmanager
    def listening(self, session_id: str) -> Iterator["Listener"]:
        """Hear every ring from here on; look what there is after this, not before."""
        listener = Listener()
        with self._lock:
            self._waiting.setdefault(session_id, set()).add(listener)
        try:
            yield listener
        finally:
            with self._lock:
                self._waiting[session_id].discard(listener)
                if not self._waiting[session_id]:
                    del self._waiting[session_id]


class Listener:
    """One that waits, in the event loop in which it was made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def wake(self) -> None:
        """Let `heard` return, now or when it is called next; from any thread."""
        # A loop that is closed has nobody left to wake.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._rung.set)

    async def heard(self, timeout_s: float) -> None:
        """Wait for a ring, or as long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()
        except TimeoutError:
            return
        self._rung.clear()
