"""Runs as stored in their rows, including ended ones: for lists, admins and late members."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from service.database.tables import run_members, run_metrics, runs, totals
from service.errors import NotFound
from service.runs.machine.closed_sum import ClosedSum
from service.runs.machine.plan import OPEN

_COLUMNS = [column for column in runs.c if column.name != "state"]
# Requests for the next item run this query: building it once makes it five times faster.
_OF_MEMBER = (
    select(*_COLUMNS)
    .join(run_members)
    .where(
        runs.c.id == bindparam("run_id"),
        runs.c.session_id == bindparam("session_id"),
        run_members.c.key == bindparam("key"),
    )
)
_LAST_SUM = select(*[column for column in totals.c if column.name != "run_id"]).where(
    totals.c.run_id == bindparam("run_id")
)


@dataclass(frozen=True)
class RunRow:
    """One run."""

    id: str
    session_id: str
    kind: str
    program: str
    base_model: str | None
    status: str
    code: str | None
    detail: str | None
    created_at: float
    deadline_at: float
    ended_at: float | None
    epoch: int
    stage: int
    sums: int
    model_id: str | None

    @cached_property
    def _stages(self) -> list[dict[str, Any]]:
        stages: list[dict[str, Any]] = json.loads(self.program)["stages"]
        return stages

    @property
    def stages(self) -> int:
        """The number of stages of its program."""
        return len(self._stages)

    @property
    def algorithm(self) -> str:
        """The algorithm of its current stage."""
        return str(self._stages[self.stage]["algorithm"])

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.status in OPEN


def find(connection: Connection, run_id: str) -> RunRow:
    """Return a run."""
    row = connection.execute(select(*_COLUMNS).where(runs.c.id == run_id)).one_or_none()
    if row is None:
        raise NotFound("There is no run with this id.")
    return _run(row)


def listed(connection: Connection, session_id: str) -> list[RunRow]:
    """Return the runs of a session, newest first; of runs of one instant, one that is open."""
    query = select(*_COLUMNS).where(runs.c.session_id == session_id)
    newest_first = runs.c.created_at.desc(), runs.c.status.in_(OPEN).desc()
    return [_run(row) for row in connection.execute(query.order_by(*newest_first))]


def ended_for(connection: Connection, session_id: str, run_id: str, key: bytes) -> RunRow | None:
    """Return an ended run of which `key` is a member; None while it is open."""
    wanted = {"run_id": run_id, "session_id": session_id, "key": key}
    row = connection.execute(_OF_MEMBER, wanted).one_or_none()
    if row is None:
        raise NotFound("The session has no run with this id in which your hospital took part.")
    return None if row.status in OPEN else _run(row)


def last_sum(connection: Connection, run_id: str) -> ClosedSum | None:
    """Return the newest closed sum of a run, open or done, while it is kept."""
    row = connection.execute(_LAST_SUM, {"run_id": run_id}).one_or_none()
    return None if row is None else ClosedSum(**row._mapping)


def metrics(connection: Connection, run_id: str) -> list[dict[str, Any]]:
    """Return the metrics of a run's steps, in order."""
    query = select(run_metrics.c.body).where(run_metrics.c.run_id == run_id)
    return [
        json.loads(body) for body in connection.execute(query.order_by(run_metrics.c.id)).scalars()
    ]


def _run(row: Row[Any]) -> RunRow:
    return RunRow(**{name: getattr(row, name) for name in RunRow.__dataclass_fields__})
