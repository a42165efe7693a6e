"""A hospital that is killed again and again, each time at another point of its conversation."""

import signal
import sys
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.federation import Hospital, Process


class Lives:
    """The lives of a hospital: one that ends at each point, and a last one that goes to the end.

    points: `KIND:NTH:before|after`, as in tests/e2e/hospital.py.
    """

    def __init__(self, hospital: Hospital, points: Sequence[str]) -> None:
        if hospital.process is None:
            raise ValueError("the hospital has no process yet")
        self._hospital = hospital
        last = hospital.process
        self._lives = [*(_killed_at(point, hospital, last) for point in points), last]
        hospital.process = self._lives[0]

    @property
    def left(self) -> int:
        """The number of deaths that are still to come."""
        return len(self._lives) - 1

    def go_on(self, _: object = None) -> None:
        """Start the next life if the present one has ended."""
        if self.left and self._lives[0].code() == -signal.SIGKILL:
            self._lives.pop(0)
            self._hospital.process = self._lives[0]
            self._lives[0].start()


def _killed_at(point: str, hospital: Hospital, joining: Process) -> Process:
    command = list(joining.command)
    link, table = command[command.index("join") + 1 : command.index("join") + 3]
    roster, policy = (command[command.index(o) + 1] for o in ("--roster", "--policy"))
    mortal = [sys.executable, "-m", "tests.e2e.hospital", point, link, table, policy, roster]
    return replace(joining, command=[*mortal, str(hospital.home)])
