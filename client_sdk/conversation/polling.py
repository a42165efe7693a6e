"""Polling for the next item, at a limited rate.

The coordinator delays its response until there is something to do, and may return the next item
directly with the response to what it was sent. If it behaves otherwise, by mistake or on purpose,
the hospital waits longer each time, up to a few seconds, so it cannot be made to poll rapidly. An
answer that arrived too late is not an error, because the run continued without it; many in a row
are.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from client_sdk.conversation.answers import Item
from client_sdk.network.exchange import LONGEST_POLL_S, Effects, Exchange, Pause, SendResult
from privacy.frames import Frame

T = TypeVar("T")
_WAIT = f"wait={LONGEST_POLL_S}"
_MOST_CONFLICTS = 8
_LONGEST_WAIT_S = 5.0
_LEAST_POLL_S = 1.0


class Polling:
    """The polling state for one session; none of it needs to survive a crash."""

    def __init__(self, exchange: Exchange, session: str) -> None:
        self._exchange = exchange
        self._session = session
        self._following: Frame | None = None
        self._answered: tuple[str, bytes] | None = None
        self._witnesses = False
        self._objected = False
        self._repeats = 0
        self._empty = 0
        self._conflicts = 0

    def await_witnesses(self) -> None:
        """Wait until others have answered the current task; then it comes with their headers."""
        self._witnesses = True

    def await_state(self) -> None:
        """Wait until the author of the current task has sealed its state for this hospital."""
        self._objected = True

    def next(self, run: str | None) -> Effects[Item | None]:
        """Return the next item; `run` is this hospital's current run, whose end is reported."""
        frame, self._following = self._following, None
        if frame is None:
            last = "" if run is None else f"&run={run}"
            last += "&witnesses=true" * self._witnesses + "&objected=true" * self._objected
            frame = yield from self._poll(self._exchange.poll_item, f"next?{_WAIT}{last}")
        if frame is None:
            return None
        self._witnesses = self._objected = False
        item = Item.read(frame)
        said = (item.kind, item.message)
        self._repeats = self._repeats + 1 if said == self._answered else 0
        self._answered = said
        if self._repeats:  # the coordinator has our answer, or cannot accept it yet
            yield _wait(0.05, self._repeats)
        return item

    def sent(self, sent: SendResult) -> Effects[None]:
        """Keep the item that came with the response; tolerate a limited number of late answers."""
        self._following = sent.following
        self._conflicts = 0 if sent.conflict is None else self._conflicts + 1
        if sent.conflict is not None:
            if self._conflicts > _MOST_CONFLICTS:
                raise sent.conflict
            yield _wait(0.1, self._conflicts)

    def decision(self) -> Effects[dict[str, Any]]:
        """Return the membership; the response is delayed while the admin has not decided."""
        plain = yield from self._poll(
            self._exchange.poll, f"membership?{_WAIT}", is_nothing=lambda _: True
        )
        return plain or {}

    def _poll(
        self,
        poll: Callable[[str], Effects[T | None]],
        what: str,
        *,
        is_nothing: Callable[[object], bool] = lambda found: found is None,
    ) -> Effects[T | None]:
        if self._empty:  # the last response came immediately and was empty
            yield _wait(0.05, self._empty)
        began = self._exchange.clock.monotonic()
        found = yield from poll(f"/sessions/{self._session}/{what}")
        at_once = self._exchange.clock.monotonic() - began < _LEAST_POLL_S
        self._empty = self._empty + 1 if at_once and is_nothing(found) else 0
        return found


def _wait(first_s: float, times: int) -> Pause:
    """Return a pause that doubles each time, up to a limit."""
    return Pause(min(first_s * 2.0 ** min(times, 10), _LONGEST_WAIT_S))
