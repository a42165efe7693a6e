"""Models on the page: name, history, scores, calibration, and who has signed them.

A model's name is its alias, or that of its session with the number of the run that made it: runs
are never deleted, so the name stays. Of a model for members only the coordinator has the
certificate: the page shows the results that its members have released and signed, with the names
and units of the session's program.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from markupsafe import Markup
from sqlalchemy import Connection

from kernels.ensembles.distilled import Method
from kernels.errors import KernelsError
from kernels.model.card import Card
from kernels.model.card_sections import DISTILLED, Evaluation, OutcomeLayer, Privacy, Quality
from kernels.model.figures import figure, share
from kernels.model.results import Results
from kernels.model.score_errors import ScoreErrors
from kernels.rounds.program import Program
from kernels.scores.metrics import LEVELS
from kernels.tables.schema import Schema
from kernels.tables.standardiser import Scale
from kernels.tables.targets import Target, kind_of
from privacy.errors import PrivacyError
from privacy.identity import fingerprint
from privacy.members.endorsement import ModelCertificate
from service import models
from service.models import ListedModel
from service.page.plots import calibration_plot
from service.page.results import LEVEL, Result, results
from service.page.shown_outcomes import ShownOutcome
from service.prediction.methods import served
from service.runs import rows as run_rows
from service.runs.rows import RunRow
from service.sessions import members, sessions
from service.sessions.sessions import Session

_LEVELS_SAID = (0.5, 0.8, LEVEL, 0.95)


@dataclass(frozen=True)
class ShownModel:
    """A model as the page shows it, from its card, or from what its members have released.

    run, parent: the run that made it, and the id of the model that it started from. damaged:
    whether its card cannot be read. kernel_alone: whether it has no layer and predicts nothing.
    schema: of the session's program; None if it is damaged. scales: the deviation of each real
    target in the tables; None if nobody has told. outcomes: the layers of all targets but real
    numbers; none of a model for members only. members, rows: of training; rows is None if nothing
    was released. ways: how each ensemble is served. signers: names of the members that have signed
    it, or their fingerprints; keys: theirs.
    """

    id: str
    name: str
    aliases: tuple[str, ...]
    created_at: float
    session_id: str
    run: RunRow | None
    parent: str | None
    signers: tuple[str, ...]
    keys: frozenset[bytes]
    members_only: bool
    schema: Schema | None = None
    members: int = 0
    rows: int | None = None
    evaluation: Evaluation | None = None
    outcomes: tuple[OutcomeLayer, ...] = ()
    scales: tuple[Scale, ...] | None = None
    ways: Mapping[str, str] = field(default_factory=dict)
    privacy: Privacy | None = None
    damaged: bool = False
    kernel_alone: bool = False

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets that are real numbers."""
        return () if self.schema is None else self.schema.real

    @property
    def results(self) -> list[Result]:
        """What it has achieved, a line for each target; nothing without scores."""
        if self.evaluation is None or self.schema is None:
            return []
        return results(self.evaluation, self.targets, self.schema.outcomes, self.scales)

    @property
    def scores(self) -> list[tuple[str, ...]]:
        """For each target: name, RMSE with its unit, NLL, CRPS, ECE, coverage at 90 %."""
        evaluation = self.evaluation
        if evaluation is None:
            return []
        own, errors = evaluation.recalibrated or evaluation.gaussian, evaluation.errors
        return [
            self._scores(
                i, own[i], evaluation.conformal[i] if evaluation.conformal else None, errors
            )
            for i in range(len(self.targets))
        ]

    @property
    def outcome_scores(self) -> list[ShownOutcome]:
        """The scores of all other targets."""
        evaluation = self.evaluation
        if evaluation is None:
            return []
        errors = evaluation.errors
        off = (None,) * len(evaluation.outcomes) if errors is None else errors.outcomes
        return [*map(ShownOutcome, evaluation.outcomes, off)]

    @property
    def summary(self) -> list[tuple[str, ...]]:
        """As `scores`, and for each outcome its log loss as NLL; it has no RMSE and no CRPS."""
        none = "–"
        return self.scores + [
            (own.name, none, own.log_loss, none, own.ece, own.coverage(LEVEL))
            for own in self.outcome_scores
        ]

    @property
    def compared(self) -> list[tuple[str, ...]]:
        """Scores of each method, by target, the default first: method, how it is served, scores.

        Empty if there is only one method, or no evaluation.
        """
        evaluation = self.evaluation
        if evaluation is None or not evaluation.others:
            return []
        rows = []
        for i, own in enumerate(self.scores):
            rows.append((evaluation.method, self._way(evaluation.method), *own))
            rows += [
                (
                    each.method,
                    self._way(each.method),
                    *self._scores(i, each.quality[i]),
                )
                for each in evaluation.others
            ]
        return rows

    def _way(self, method: str) -> str:
        """Return how a method is served; nobody has told of a model for members only."""
        served_as = self.ways.get(method) or (DISTILLED if method in tuple(Method) else "")
        return served_as or "one model"

    def _scores(
        self,
        position: int,
        own: Quality,
        conformal: Sequence[float] | None = None,
        errors: ScoreErrors | None = None,
    ) -> tuple[str, ...]:
        """Return the scores, each with its standard error if they were released with noise."""
        target, at = self.targets[position], LEVELS.index(LEVEL)
        off = None if errors is None else (errors.recalibrated or errors.gaussian)[position]
        rmse, *numbers = (
            figure(getattr(own, name), None if off is None else getattr(off, name))
            for name in ("rmse", "nll", "crps", "ece")
        )
        inside = (own.curve if conformal is None else conformal)[at]
        of_inside = None
        if errors is not None and off is not None:
            of_inside = (errors.conformal[position] if errors.conformal else off.curve)[at]
        if target.unit != "1":
            rmse = f"{rmse} {target.unit}"
        return (target.name, rmse, *numbers, share(inside, of_inside))

    @property
    def coverage(self) -> list[tuple[str, list[str]]]:
        """The share of held-out rows inside intervals, by level and then by real target."""
        evaluation = self.evaluation
        if evaluation is None:
            return []
        own = evaluation.recalibrated or evaluation.gaussian
        served = evaluation.conformal or [each.curve for each in own]
        return [
            (f"{level:.0%}", [f"{curve[LEVELS.index(level)]:.1%}" for curve in served])
            for level in _LEVELS_SAID
        ]

    @property
    def plots(self) -> list[Markup]:
        """The calibration plot of each target."""
        evaluation = self.evaluation
        if evaluation is None:
            return []
        drawn = []
        for i, target in enumerate(self.targets):
            curves: dict[str, Sequence[float]] = {"Gaussian": evaluation.gaussian[i].curve}
            if evaluation.recalibrated is not None:
                curves["recalibrated"] = evaluation.recalibrated[i].curve
            if evaluation.conformal is not None:
                curves["conformal"] = evaluation.conformal[i]
            rows = evaluation.rows
            drawn.append(calibration_plot(target.name, evaluation.levels, curves, rows=rows))
        return drawn

    @property
    def compared_plots(self) -> list[Markup]:
        """The calibration curves of all methods, one plot for each target."""
        evaluation = self.evaluation
        if evaluation is None or not evaluation.others:
            return []
        first = evaluation.recalibrated or evaluation.gaussian
        return [
            calibration_plot(
                f"{target.name}, by method",
                evaluation.levels,
                {evaluation.method: first[i].curve}
                | {each.method: each.quality[i].curve for each in evaluation.others},
                rows=evaluation.rows,
            )
            for i, target in enumerate(self.targets)
        ]


def shown_models(connection: Connection, session_id: str | None = None) -> list[ShownModel]:
    """Return all models, or those of one session, newest first."""
    there = [each for each in models.listed(connection) if session_id in (None, each.session_id)]
    owners = {each.session_id: _Owner.of(connection, each.session_id) for each in there}
    return [_shown(connection, each, owners[each.session_id]) for each in there]


@dataclass(frozen=True)
class _Owner:
    """A model's session with its runs, oldest first, and the names of its members."""

    session: Session
    runs: tuple[RunRow, ...]
    names: Mapping[bytes, str]

    @classmethod
    def of(cls, connection: Connection, session_id: str) -> "_Owner":
        """Read a session."""
        return cls(
            sessions.find(connection, session_id),
            tuple(reversed(run_rows.listed(connection, session_id))),
            {each.key: each.name for each in members.roster(connection, session_id)},
        )

    def name_of(self, listed: ListedModel) -> str:
        """Return a model's name."""
        if listed.aliases:
            return listed.aliases[0]
        ids = [run.id for run in self.runs]
        if listed.run_id not in ids:
            return f"{self.session.name}, {listed.id[:10]}"
        return f"{self.session.name}, run {ids.index(listed.run_id) + 1}"


def _shown(connection: Connection, listed: ListedModel, owner: _Owner) -> ShownModel:
    certificate = _certificate(connection, listed.id)
    signers = () if certificate is None else certificate.signers
    run = next((each for each in owner.runs if each.id == listed.run_id), None)
    shown = ShownModel(
        listed.id,
        owner.name_of(listed),
        listed.aliases,
        listed.created_at,
        listed.session_id,
        run,
        None if run is None else run.base_model,
        tuple(sorted(owner.names.get(key) or fingerprint(key) for key in signers)),
        frozenset(signers),
        listed.members_only,
    )
    if listed.members_only:
        program = Program.from_json(owner.session.program)
        released = _released(certificate, program.schema)
        return replace(
            shown,
            schema=program.schema,
            members=0 if certificate is None else certificate.statement.members,
            rows=None if released is None else released.rows,
            evaluation=None if released is None else released.evaluation,
        )
    try:
        card = Card.from_json(models.card(connection, listed.id))
    except KernelsError:  # the page must still show a damaged model, so that it can be deleted
        return replace(shown, damaged=True)
    return replace(
        shown,
        parent=card.parent,
        schema=card.schema,
        outcomes=card.outcomes,
        members=card.members,
        rows=None if card.kernel_alone else card.rows,
        kernel_alone=card.kernel_alone,
        evaluation=card.evaluation,
        scales=card.standardiser.targets,
        ways={each.method: " and ".join(each.ensembles) for each in served(card)},
        privacy=card.privacy,
    )


def _certificate(connection: Connection, model_id: str) -> ModelCertificate | None:
    data = models.certificate(connection, model_id)
    try:
        return None if data is None else ModelCertificate.decode(data)
    except PrivacyError:  # the page must still show a damaged model, so that it can be deleted
        return None


def _released(certificate: ModelCertificate | None, schema: Schema) -> Results | None:
    """Return what members have released, if it is about the targets of this schema."""
    try:
        released = None if certificate is None else Results.read(certificate.results)
    except KernelsError:
        return None
    return released if released is not None and _fits(released.evaluation, schema) else None


def _fits(evaluation: Evaluation, schema: Schema) -> bool:
    names = [target.name for target in schema.real]
    lists = [evaluation.gaussian, evaluation.recalibrated or evaluation.gaussian]
    lists += [each.quality for each in evaluation.others]
    conformal = evaluation.conformal
    return (
        all([own.name for own in each] == names for each in lists)
        and (conformal is None or len(conformal) == len(names))
        and [(own.name, own.kind) for own in evaluation.outcomes]
        == [(target.name, kind_of(target)) for target in schema.outcomes]
    )
