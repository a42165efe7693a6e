"""The page's content as plain data, read in one transaction: all sessions, or one session.

No number describes a single site. For a member the page shows its name, its status, whether it is
present, and its last refusal in the words that its site sent. All numbers are those of sums and
models.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from sqlalchemy import Connection

from kernels.rounds.known import known
from kernels.rounds.plan import StageDisclosure, columns_read, stages_disclosed
from kernels.rounds.program import Program
from kernels.rounds.stated.numbers_known import numbers_known
from service.http.access import APPROVED
from service.page.plots import steps_plot
from service.page.shown_models import ShownModel, shown_models
from service.runs import rows as run_rows
from service.runs.rows import RunRow
from service.sessions import members, presence, privacy_report, sessions
from service.sessions.members import MemberRow
from service.sessions.privacy_report import PrivacyReport
from service.sessions.sessions import Session

_COUNTERS = ("stage", "sum", "run", "step", "round")


@dataclass(frozen=True)
class ShownStage:
    """A stage of a run: its name, its most sums, and its state."""

    name: str
    most_sums: int
    state: str
    """done, running or next; stopped or unreached if the run has failed or was cancelled."""


@dataclass(frozen=True)
class ShownRun:
    """A run with its stages; `waiting_for` are members' names."""

    row: RunRow
    stages: tuple[ShownStage, ...]
    waiting_for: tuple[str, ...]

    @property
    def most_sums(self) -> int:
        """The most sums of the whole run."""
        return sum(stage.most_sums for stage in self.stages)


@dataclass(frozen=True)
class Outline:
    """A session in the list of all sessions."""

    session: Session
    approved: int
    present: int
    run: ShownRun | None
    """The newest run."""


@dataclass(frozen=True)
class View:
    """A session with everything the page shows of it."""

    session: Session
    members: tuple[MemberRow, ...]
    present: frozenset[str]
    run: ShownRun | None
    metrics: tuple[dict[str, Any], ...]
    earlier: tuple[RunRow, ...]
    models: tuple[ShownModel, ...]
    columns: tuple[str, ...]
    features: int
    """The number of columns that models read."""
    disclosed: tuple[StageDisclosure, ...]
    became_known: str | None
    """How many exact numbers a run makes known to whom; None with differential privacy."""
    privacy: PrivacyReport

    @property
    def approved(self) -> int:
        """The number of approved members."""
        return sum(member.status == APPROVED for member in self.members)

    @property
    def plots(self) -> list[Markup]:
        """The learning curves of the newest run: its metrics by sum, a plot for each."""
        return _plots(self.metrics)

    @property
    def spending(self) -> Markup:
        """The plot of spent ε by number of sums; empty without differential privacy."""
        points = [(float(each.sums), each.epsilon) for each in self.privacy.over_time]
        title, line = "ε spent, by sum", [(0.0, 0.0), *points]
        return steps_plot(title, [line], by="sum") if points else Markup("")

    @property
    def steps(self) -> list[tuple[str, list[str], list[list[object]]]]:
        """The metrics of the newest run as tables: algorithm, columns, rows."""
        return _tables(self.metrics)


def outlines(
    connection: Connection, awaited: Mapping[str, tuple[str, ...]], *, now: float
) -> list[Outline]:
    """Return all sessions, newest first; `awaited` has the members each open run waits for."""
    found = []
    for session in reversed(sessions.every(connection)):
        there = presence.present(connection, session.id, now=now)
        approved = {each.name for each in members.approved(connection, session.id)}
        rows = run_rows.listed(connection, session.id)
        run = _run(rows[0], awaited) if rows else None
        found.append(Outline(session, len(approved), len(there & approved), run))
    return found


def view(
    connection: Connection,
    session_id: str,
    awaited: Mapping[str, tuple[str, ...]],
    *,
    now: float,
) -> View:
    """Return one session."""
    session = sessions.find(connection, session_id)
    program = Program.from_json(session.program)
    rows = run_rows.listed(connection, session_id)
    return View(
        session=session,
        members=tuple(members.roster(connection, session_id)),
        present=presence.present(connection, session_id, now=now),
        run=_run(rows[0], awaited) if rows else None,
        metrics=tuple(run_rows.metrics(connection, rows[0].id)) if rows else (),
        earlier=tuple(rows[1:]),
        models=tuple(m for m in shown_models(connection) if m.session_id == session_id),
        columns=columns_read(program.schema),
        features=len(program.schema.features),
        disclosed=stages_disclosed(program),
        became_known=None
        if program.privacy is not None
        else numbers_known(
            known(
                program,
                members=session.terms.min_cohort,
                blind=session.terms.blind,
                members_only=session.terms.members_only,
            )
        ),
        privacy=privacy_report.report(connection, session_id),
    )


def _run(row: RunRow, awaited: Mapping[str, tuple[str, ...]]) -> ShownRun:
    stages = stages_disclosed(Program.from_json(row.program))
    done = len(stages) if row.status == "done" else row.stage
    here, later = ("running", "next") if row.is_open else ("stopped", "unreached")
    return ShownRun(
        row,
        tuple(
            ShownStage(
                stage.algorithm.partition("/")[0],
                stage.sums,
                "done" if i < done else here if i == done else later,
            )
            for i, stage in enumerate(stages)
        ),
        awaited.get(row.id, ()) if row.is_open else (),
    )


def _by_stage(metrics: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    stages: dict[object, list[Mapping[str, Any]]] = {}
    for told in metrics:
        stages.setdefault(told.get("stage"), []).append(told)
    return list(stages.values())


def _figures(told: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the metrics that any step has."""
    names = dict.fromkeys(name for each in told for name in sorted(each))
    return [
        name
        for name in names
        if name not in (*_COUNTERS, "algorithm")
        and any(isinstance(each.get(name), int | float) for each in told)
    ]


def _plots(metrics: Iterable[Mapping[str, Any]]) -> list[Markup]:
    drawn = []
    for told in _by_stage(metrics):
        for name in _figures(told):
            passes: dict[object, list[tuple[float, float]]] = {}
            for each in told:
                # Of a search every recipe is a line.
                line = passes.setdefault((each.get("run"), each.get("recipe")), [])
                value = each.get(name)
                if isinstance(value, int | float):
                    line.append((each["sum"], value))
            title = f"{told[0]['algorithm']}: {name.replace('_', ' ')}"
            drawn.append(steps_plot(title, list(passes.values()), by="sum"))
    return drawn


def _tables(
    metrics: Iterable[Mapping[str, Any]],
) -> list[tuple[str, list[str], list[list[object]]]]:
    tables = []
    for told in _by_stage(metrics):
        names = [name for name in ("recipe", *_COUNTERS[1:]) if name in told[0]] + _figures(told)
        rows: list[list[object]] = [[_shown(each.get(name)) for name in names] for each in told]
        tables.append((str(told[0]["algorithm"]), names, rows))
    return tables


def _shown(value: object) -> object:
    return f"{value:.5g}" if isinstance(value, float) else "–" if value is None else value
