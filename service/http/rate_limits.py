"""Rate limits: a token bucket for each requester, refilled evenly.

A caller has one of rows, an invitation one of reads. The buckets are in memory and separate for
each replica: a restart fills them, and n replicas allow n times as much. They bound the load and
slow down a caller who queries row after row to find out which of them the model was trained on
(docs/threats.md A16); they are no guarantee against that.
"""

import math
from threading import Lock

from service.context import Clock
from service.errors import RateExceeded


class RateLimits:
    """Buckets of `per_minute` rows, or of `what` else, that refill within a minute.

    >>> rates = RateLimits(per_minute=60, clock=lambda: 0.0)
    >>> rates.charge("a caller", 60)
    >>> rates.charge("a caller", 2)
    Traceback (most recent call last):
    service.errors.RateExceeded: ... Try again in 2 s.
    >>> rates.charge("another", 1)
    """

    def __init__(
        self, *, per_minute: int, clock: Clock, whose: str = "token", what: str = "rows"
    ) -> None:
        self._most = per_minute
        self._whose, self._what = whose, what
        self._clock = clock
        self._lock = Lock()
        self._buckets: dict[str, tuple[float, float]] = {}

    def charge(self, who: str, rows: int) -> None:
        """Charge a number of rows, or raise `RateExceeded` with the time to wait.

        A charge larger than the bucket takes a full bucket.
        """
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
                f"This {self._whose} has reached its limit of {self._most} {self._what} a minute. "
                f"Try again in {wait_s} s.",
                retry_after_s=wait_s,
            )
