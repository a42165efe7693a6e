"""How much a caller may ask for: a bucket of rows for each token, refilled evenly.

In memory, and for each replica its own: a restart fills the buckets, n replicas allow n times as
much. It bounds the load and slows down whoever asks for row after row to find out which of them
the model was trained on (docs/threats.md, A16); it is no guarantee against that.
"""

import math
from threading import Lock

from service.context import Clock
from service.errors import RateExceeded


class RateLimits:
    """Buckets of `per_minute` rows that fill up within a minute.

    >>> rates = RateLimits(per_minute=60, clock=lambda: 0.0)
    >>> rates.charge("a caller", 60)
    >>> rates.charge("a caller", 2)
    Traceback (most recent call last):
    service.errors.RateExceeded: ... again in 2 s.
    >>> rates.charge("another", 1)
    """

    def __init__(self, *, per_minute: int, clock: Clock) -> None:
        self._most = per_minute
        self._clock = clock
        self._lock = Lock()
        self._buckets: dict[str, tuple[float, float]] = {}

    def charge(self, who: str, rows: int) -> None:
        """Take so many rows, or say when there will be as many; more than fit empty a full one."""
        rows = min(rows, self._most)
        now = self._clock()
        with self._lock:
            left, since = self._buckets.get(who, (float(self._most), now))
            left = min(left + max(now - since, 0.0) * self._most / 60, float(self._most))
            enough = left >= rows
            self._buckets[who] = (left - rows if enough else left, now)
        if not enough:
            wait_s = max(math.ceil((rows - left) * 60 / self._most), 1)
            raise RateExceeded(
                f"This token may ask for {self._most} rows a minute, and has; ask again in "
                f"{wait_s} s.",
                retry_after_s=wait_s,
            )
