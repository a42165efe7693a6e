"""What is next, asked for without haste.

The coordinator holds an answer back until there is something to do, and may answer what it was sent
with the next thing at once. One that answers otherwise, by mistake or in malice, makes a hospital
wait longer each time, up to a few seconds: it cannot be made to ask in a hurry. An answer that came
too late is no failure, for the run went on without it; many in a row are.
"""

from collections.abc import Callable
from typing import Any

from client_sdk.conversation.answers import Item
from client_sdk.network.exchange import LONGEST_POLL_S, Effects, Exchange, Pause, SendResult

_MOST_CONFLICTS = 8
_LONGEST_WAIT_S = 5.0
_LEAST_POLL_S = 1.0


class Polling:
    """How far the conversation with one session is; nothing of it needs to outlive a crash."""

    def __init__(self, exchange: Exchange, session: str) -> None:
        self._exchange = exchange
        self._session = session
        self._following: dict[str, Any] | None = None
        self._answered: tuple[str, bytes] | None = None
        self._repeats = 0
        self._empty = 0
        self._conflicts = 0

    def next(self, run: str | None) -> Effects[Item | None]:
        """Give the next item; `run` is the one that this hospital is in, to hear of its end."""
        plain, self._following = self._following, None
        if plain is None:
            last = "" if run is None else f"&run={run}"
            plain = yield from self._poll("next", last)
        if plain is None:
            return None
        item = Item.read(plain)
        said = (item.kind, item.message)
        self._repeats = self._repeats + 1 if said == self._answered else 0
        self._answered = said
        if self._repeats:  # it has our answer, or cannot take it yet
            yield _wait(0.05, self._repeats)
        return item

    def sent(self, sent: SendResult) -> Effects[None]:
        """Remember what came with an answer; go on after a late one, but not for ever."""
        self._following = sent.following
        self._conflicts = 0 if sent.conflict is None else self._conflicts + 1
        if sent.conflict is not None:
            if self._conflicts > _MOST_CONFLICTS:
                raise sent.conflict
            yield _wait(0.1, self._conflicts)

    def decision(self) -> Effects[dict[str, Any]]:
        """Give the membership, held back for as long as the admin has not decided."""
        plain = yield from self._poll("membership", is_nothing=lambda _: True)
        return plain or {}

    def _poll(
        self,
        what: str,
        query: str = "",
        *,
        is_nothing: Callable[[object], bool] = lambda plain: plain is None,
    ) -> Effects[dict[str, Any] | None]:
        if self._empty:  # it said at once that there is nothing
            yield _wait(0.05, self._empty)
        began = self._exchange.clock.monotonic()
        plain = yield from self._exchange.poll(
            f"/sessions/{self._session}/{what}?wait={LONGEST_POLL_S}{query}"
        )
        at_once = self._exchange.clock.monotonic() - began < _LEAST_POLL_S
        self._empty = self._empty + 1 if at_once and is_nothing(plain) else 0
        return plain


def _wait(first_s: float, times: int) -> Pause:
    """Wait twice as long each time."""
    return Pause(min(first_s * 2.0 ** min(times, 10), _LONGEST_WAIT_S))
