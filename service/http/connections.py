"""A deadline for the headers of a request, for which uvicorn itself waits without limit."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class Prompt(H11Protocol):
    """Closes a connection that has not sent complete headers within `header_deadline_s` seconds.

    Bodies and long polls have deadlines of their own; uvicorn closes connections that are idle
    between two requests.
    """

    header_deadline_s = 20.0

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the deadline for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Keep the deadline while headers are incomplete; cancel it once they have arrived."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline."""
        super().connection_lost(exc)
        self._forget()

    def _watch(self) -> None:
        if self._answering:
            self._forget()
        elif self._due is None:
            self._due = self.loop.call_later(self.header_deadline_s, self._give_up)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _give_up(self) -> None:
        if not self._answering:
            self.transport.close()

    def _forget(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
