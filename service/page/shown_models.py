"""Models on the page: scores, calibration, and who has signed them.

Of a model for members only the coordinator has the certificate: the page shows the results that
its members have released and signed, with the names and units of the session's program.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from sqlalchemy import Connection

from kernels.errors import KernelsError
from kernels.model.card import Card
from kernels.model.card_sections import DISTILLED, Evaluation, OutcomeLayer, Quality
from kernels.model.figures import figure, share
from kernels.model.methods import FEDBNR
from kernels.model.results import Results
from kernels.model.score_errors import ScoreErrors
from kernels.rounds.program import Program
from kernels.scores.metrics import LEVELS
from kernels.tables.schema import Schema
from kernels.tables.targets import Target, kind_of
from privacy.errors import PrivacyError
from privacy.identity import fingerprint
from privacy.members.endorsement import ModelCertificate
from service import models
from service.models import ListedModel
from service.page.plots import calibration_plot
from service.page.shown_outcomes import ShownOutcome
from service.prediction.methods import served
from service.sessions import members, sessions

LEVEL = 0.9
"""The level of the intervals whose coverage the tables show."""


@dataclass(frozen=True)
class ShownModel:
    """A model as the page shows it, from its card, or from what its members have released.

    targets: those that are real numbers. outcomes: the layers of all others; none of a model for
    members only. members, rows: of training; rows is None if nothing was released. ways: how each
    method but `fedbnr` is served. signers: names of the members that have signed it, or their
    fingerprints.
    """

    id: str
    aliases: tuple[str, ...]
    created_at: float
    session_id: str
    targets: tuple[Target, ...]
    outcomes: tuple[OutcomeLayer, ...]
    members: int
    rows: int | None
    evaluation: Evaluation | None
    ways: Mapping[str, str]
    signers: tuple[str, ...]
    members_only: bool

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
        """Scores of each method, by target, `fedbnr` first: method, how it is served, scores.

        Empty if there is only one method, or no evaluation.
        """
        evaluation = self.evaluation
        if evaluation is None or not evaluation.students:
            return []
        rows = []
        for i, own in enumerate(self.scores):
            rows.append((FEDBNR, "one model", *own))
            rows += [
                (
                    each.method,
                    self.ways.get(each.method, DISTILLED),
                    *self._scores(i, each.quality[i]),
                )
                for each in evaluation.students
            ]
        return rows

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
        return (target.name, f"{rmse} {target.unit}", *numbers, share(inside, of_inside))

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
        if evaluation is None or not evaluation.students:
            return []
        first = evaluation.recalibrated or evaluation.gaussian
        return [
            calibration_plot(
                f"{target.name}, by method",
                evaluation.levels,
                {FEDBNR: first[i].curve}
                | {each.method: each.quality[i].curve for each in evaluation.students},
                rows=evaluation.rows,
            )
            for i, target in enumerate(self.targets)
        ]


def shown_models(connection: Connection) -> list[ShownModel]:
    """Return all models, newest first."""
    return [_shown(connection, each) for each in models.listed(connection)]


def _shown(connection: Connection, listed: ListedModel) -> ShownModel:
    certificate = _certificate(connection, listed.id)
    names = {each.key: each.name for each in members.roster(connection, listed.session_id)}
    signers = () if certificate is None else certificate.signers
    said = tuple(sorted(names.get(key) or fingerprint(key) for key in signers))
    if listed.members_only:
        program = Program.from_json(sessions.find(connection, listed.session_id).program)
        released = _released(certificate, program.schema)
        return ShownModel(
            listed.id,
            listed.aliases,
            listed.created_at,
            listed.session_id,
            targets=program.schema.real,
            outcomes=(),
            members=0 if certificate is None else certificate.statement.members,
            rows=None if released is None else released.rows,
            evaluation=None if released is None else released.evaluation,
            ways={},
            signers=said,
            members_only=True,
        )
    card = Card.from_json(models.card(connection, listed.id))
    return ShownModel(
        listed.id,
        listed.aliases,
        listed.created_at,
        listed.session_id,
        targets=card.schema.real,
        outcomes=card.outcomes,
        members=card.members,
        rows=card.rows,
        evaluation=card.evaluation,
        ways={each.method: " and ".join(each.ensembles) for each in served(card)},
        signers=said,
        members_only=False,
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
    lists += [each.quality for each in evaluation.students]
    conformal = evaluation.conformal
    return (
        all([own.name for own in each] == names for each in lists)
        and (conformal is None or len(conformal) == len(names))
        and [(own.name, own.kind) for own in evaluation.outcomes]
        == [(target.name, kind_of(target)) for target in schema.outcomes]
    )
