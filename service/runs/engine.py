"""The engine: does the due work of each open run at once, and survives any failure.

It wakes up when members have sent what a run waited for, and by the clock for deadlines. It also
checks all open runs at regular intervals: after a start, and for work that another replica has left
unfinished. One thread at a time works on a run; several threads work on several runs.
"""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock, Thread
from time import monotonic

from sqlalchemy.exc import SQLAlchemyError

from service.errors import NotFound, RunEnded
from service.runs.runs import Runs

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 5.0
"""Seconds between checks of all open runs, and before a retry after a database failure."""


class Engine:
    """Threads that advance runs, from `start` to `stop`."""

    def __init__(self, runs: Runs, clock: Callable[[], float], *, workers: int = 2) -> None:
        self._runs = runs
        self._clock = clock
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="veilgp-engine")
        self._timer = Thread(target=self._watch, name="veilgp-timer", daemon=True)
        self._stopping = False
        self._sooner = Event()
        self._lock = Lock()
        self._busy: set[str] = set()
        self._again: set[str] = set()
        self._due: dict[str, float] = {}

    def start(self) -> None:
        """Start working on all open runs."""
        self._runs.on_change = self.wake
        self._timer.start()

    def stop(self) -> None:
        """Finish current computations and start no new ones."""
        self._runs.on_change = lambda _: None
        with self._lock:
            self._stopping = True
        self._sooner.set()
        self._timer.join()
        self._pool.shutdown(cancel_futures=True)

    @property
    def is_alive(self) -> bool:
        """Whether due runs are noticed."""
        return self._timer.is_alive() and not self._stopping

    @property
    def at_work(self) -> int:
        """The number of runs that are worked on or wait for a thread."""
        with self._lock:
            return len(self._busy)

    def wake(self, run_id: str) -> None:
        """Work on a run as soon as a thread is free."""
        with self._lock:
            if self._stopping:
                return
            if run_id in self._busy:
                self._again.add(run_id)
                return
            self._busy.add(run_id)
            self._pool.submit(self._work, run_id)

    def _work(self, run_id: str) -> None:
        due_at = None
        try:
            due_at = self._runs.advance(run_id)
        except SQLAlchemyError:
            # Nothing is lost: the rows hold the state, and the run's deadline bounds the retries.
            log.exception(
                "the database does not answer; the engine will try again", extra={"run": run_id}
            )
            due_at = self._clock() + LOOK_AGAIN_S
        except Exception as error:
            log.exception("the engine failed while working on a run", extra={"run": run_id})
            self._give_up(run_id, error)
        finally:
            self._done(run_id, due_at)

    def _give_up(self, run_id: str, error: Exception) -> None:
        """End the run as failed, so that no member waits for it; if that fails, try again later."""
        try:
            self._runs.give_up(
                run_id,
                "run.internal",
                f"The coordinator failed with {type(error).__name__} while working on this run; "
                "its log has the details. Other runs are not affected.",
            )
        except (RunEnded, NotFound):
            return
        except Exception:
            log.exception("the failed run could not be ended", extra={"run": run_id})

    def _done(self, run_id: str, due_at: float | None) -> None:
        with self._lock:
            self._busy.discard(run_id)
            again = run_id in self._again
            self._again.discard(run_id)
            if due_at is None:
                self._due.pop(run_id, None)
            else:
                self._due[run_id] = due_at
        self._sooner.set()
        if again:
            self.wake(run_id)

    def _watch(self) -> None:
        look_at = monotonic()
        while not self._stopping:
            if monotonic() >= look_at:
                self._look()
                look_at = monotonic() + LOOK_AGAIN_S
            now = self._clock()
            with self._lock:
                overdue = [run_id for run_id, due_at in self._due.items() if due_at <= now]
                for run_id in overdue:
                    del self._due[run_id]
                next_due_s = min(self._due.values(), default=now + LOOK_AGAIN_S) - now
            for run_id in overdue:
                self.wake(run_id)
            self._sooner.wait(max(0.0, min(look_at - monotonic(), next_due_s)))
            self._sooner.clear()

    def _look(self) -> None:
        try:
            for run_id in self._runs.open_ids():
                self.wake(run_id)
        except SQLAlchemyError:
            log.exception("the database does not answer; the engine will try again")
