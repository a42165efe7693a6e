"""The page's content as plain data, read in one transaction: all sessions, one session, one model.

No number describes a single site. For a member the page shows its name, its fingerprint, its
status, whether it is present, and its last refusal in the words that its site sent, until it has
signed a model since. All numbers are those of sums and models.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from sqlalchemy import Connection

from kernels.rounds.in_words import in_words
from kernels.rounds.known import known
from kernels.rounds.plan import columns_read, stages_disclosed
from kernels.rounds.program import Program
from kernels.rounds.stated.numbers_known import numbers_known
from service import models
from service.http.access import APPROVED, ModelAccess
from service.page import learning
from service.page.plain_words import stage_words
from service.page.plots import steps_plot
from service.page.shown_models import ShownModel, shown_models
from service.page.standing import Standing, standing
from service.runs import rows as run_rows
from service.runs.rows import RunRow
from service.sessions import invitations, members, presence, privacy_report, sessions
from service.sessions.invitations import Invitation
from service.sessions.members import MemberRow, Refusal
from service.sessions.privacy_report import PrivacyReport
from service.sessions.sessions import Session

Awaited = Mapping[str, tuple[str, ...]]
"""The names of the members that each open run waits for, by its id."""


@dataclass(frozen=True)
class ShownStage:
    """A stage of a run: its name, what it does in words, its most sums, and its state."""

    name: str
    words: str
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
    standing: Standing
    model: ShownModel | None
    """The newest model."""


@dataclass(frozen=True)
class ShownMember:
    """A member; refusal: its last one, unless it has signed a model since."""

    row: MemberRow
    present: bool
    refusal: Refusal | None


@dataclass(frozen=True)
class View:
    """A session with everything the page shows of it."""

    session: Session
    standing: Standing
    members: tuple[ShownMember, ...]
    invited: tuple[Invitation, ...]
    """Open invitations."""
    run: ShownRun | None
    metrics: tuple[dict[str, Any], ...]
    earlier: tuple[RunRow, ...]
    models: tuple[ShownModel, ...]
    columns: tuple[str, ...]
    in_words: tuple[str, ...]
    """What the program will do and cost."""
    became_known: str | None
    """How many exact numbers a run makes known to whom; None with differential privacy."""
    privacy: PrivacyReport

    @property
    def approved(self) -> int:
        """The number of approved members."""
        return sum(member.row.status == APPROVED for member in self.members)

    @property
    def present(self) -> int:
        """The number of members that are present."""
        return sum(member.present for member in self.members)

    @property
    def curves(self) -> list[learning.Curve]:
        """The learning curves of the newest run."""
        return learning.curves(self.metrics)

    @property
    def warnings(self) -> list[str]:
        """What the learning curves say is wrong."""
        return learning.warnings(self.curves)

    @property
    def steps(self) -> list[learning.StepsTable]:
        """The metrics of the newest run as tables."""
        return learning.tables(self.metrics)

    @property
    def spending(self) -> Markup:
        """The plot of spent ε by number of sums; empty without differential privacy."""
        points = [(float(each.sums), each.epsilon) for each in self.privacy.over_time]
        line = [(0.0, 0.0), *points]
        title = "ε spent"
        return (
            steps_plot(title, [line], by="sum", across="number of sums", up="ε of any one unit")
            if points
            else Markup("")
        )


@dataclass(frozen=True)
class ModelView:
    """A model with its session and the models beside it."""

    model: ShownModel
    session: Session
    parent: ShownModel | None
    updates: tuple[ShownModel, ...]
    """The models that runs have made from it."""
    siblings: tuple[ShownModel, ...]
    """All models of its session, itself included, newest first."""
    served: bool
    """Whether `/predict` answers with it."""


def outlines(connection: Connection, awaited: Awaited, *, now: float) -> list[Outline]:
    """Return all sessions, newest first."""
    newest: dict[str, ShownModel] = {}
    for model in shown_models(connection):
        newest.setdefault(model.session_id, model)
    found = []
    for session in reversed(sessions.every(connection)):
        there = presence.present(connection, session.id, now=now)
        roster = members.roster(connection, session.id)
        approved = {each.name for each in roster if each.status == APPROVED}
        rows = run_rows.listed(connection, session.id)
        run = _run(rows[0], awaited) if rows else None
        found.append(
            Outline(
                session,
                len(approved),
                len(there & approved),
                run,
                _standing(session, roster, run),
                newest.get(session.id),
            )
        )
    return found


def view(connection: Connection, session_id: str, awaited: Awaited, *, now: float) -> View:
    """Return one session."""
    session = sessions.find(connection, session_id)
    program, terms = Program.from_json(session.program), session.terms
    rows = run_rows.listed(connection, session_id)
    run = _run(rows[0], awaited) if rows else None
    roster = members.roster(connection, session_id)
    there = presence.present(connection, session_id, now=now)
    made = tuple(shown_models(connection, session_id))
    invited = invitations.every(connection, session_id, now=now)
    return View(
        session=session,
        standing=_standing(session, roster, run),
        members=tuple(
            ShownMember(each, each.name in there, _still_refusing(each, made)) for each in roster
        ),
        invited=tuple(each for each in invited if each.status == "open"),
        run=run,
        metrics=tuple(run_rows.metrics(connection, rows[0].id)) if rows else (),
        earlier=tuple(rows[1:]),
        models=made,
        columns=columns_read(program.schema),
        in_words=in_words(
            program,
            blind=terms.blind,
            members_only=terms.members_only,
            budget=sessions.planned_for(session),
        ),
        became_known=None
        if program.privacy is not None
        else numbers_known(
            known(
                program,
                members=terms.min_cohort,
                blind=terms.blind,
                members_only=terms.members_only,
            )
        ),
        privacy=privacy_report.report(connection, session_id),
    )


def model_view(connection: Connection, name: str) -> ModelView:
    """Return one model, by its id or an alias."""
    model_id = models.resolve(connection, name, ModelAccess(everything=True))
    (listed,) = (each for each in models.listed(connection) if each.id == model_id)
    siblings = tuple(shown_models(connection, listed.session_id))
    (model,) = (each for each in siblings if each.id == model_id)
    return ModelView(
        model=model,
        session=sessions.find(connection, listed.session_id),
        parent=next((each for each in siblings if each.id == model.parent), None),
        updates=tuple(each for each in siblings if each.parent == model_id),
        siblings=siblings,
        served=not model.members_only and models.is_served(connection, model_id),
    )


def _still_refusing(member: MemberRow, made: tuple[ShownModel, ...]) -> Refusal | None:
    """Return a member's last refusal, unless it has signed a model since."""
    refusal = member.refusal
    if refusal is None or any(
        member.key in model.keys and model.created_at > refusal.at for model in made
    ):
        return None
    return refusal


def _standing(session: Session, roster: list[MemberRow], run: ShownRun | None) -> Standing:
    waiting = () if run is None else run.waiting_for
    return standing(session, roster, None if run is None else run.row, waiting)


def _run(row: RunRow, awaited: Awaited) -> ShownRun:
    program = Program.from_json(row.program)
    done = len(program.stages) if row.status == "done" else row.stage
    here, later = ("running", "next") if row.is_open else ("stopped", "unreached")
    return ShownRun(
        row,
        tuple(
            ShownStage(
                name := stage.algorithm.partition("/")[0],
                stage_words(name),
                stage.sums,
                "done" if i < done else here if i == done else later,
            )
            for i, stage in enumerate(stages_disclosed(program))
        ),
        awaited.get(row.id, ()) if row.is_open else (),
    )
