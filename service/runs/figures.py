"""Counts of all runs, sums and sessions, for the coordinator's metrics."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from service.database.tables import runs, sessions
from service.runs.machine.plan import Status


@dataclass(frozen=True)
class Figures:
    """Counts over all sessions; none describes a single site."""

    runs: Mapping[str, int]
    """Number of runs by status."""
    sums: int
    sessions: int


def count(connection: Connection) -> Figures:
    """Return the current counts."""
    by_status = select(runs.c.status, func.count().label("runs")).group_by(runs.c.status)
    counted = {row.status: row.runs for row in connection.execute(by_status)}
    return Figures(
        runs={status.value: counted.get(status.value, 0) for status in Status},
        sums=connection.execute(select(func.sum(runs.c.sums))).scalar() or 0,
        sessions=connection.execute(select(func.count(sessions.c.id))).scalar() or 0,
    )
