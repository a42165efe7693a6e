"""The scores of one outcome as a card says them: those of what is served, and what was changed."""

from dataclasses import dataclass
from typing import Self

from kernels.errors import ArtifactError
from kernels.outcomes.scored.binary import Quality as BinaryQuality
from kernels.outcomes.scored.classes import Quality as ClassesQuality
from kernels.outcomes.scored.conformal import Coverage
from kernels.outcomes.scored.count import Quality as CountQuality
from kernels.outcomes.scored.evaluated import OutcomeScores
from kernels.outcomes.scored.time_to_event import Quality as TimeQuality
from kernels.scores.metrics import LEVELS
from kernels.tables.targets import TARGET_KINDS, Outcome, kind_of

Quality = BinaryQuality | ClassesQuality | CountQuality | TimeQuality

_NAMES = {
    "binary": {"AUC": "auc", "Brier": "brier", "ECE": "ece"},
    "classes": {"accuracy": "accuracy", "AUC": "auc", "Brier": "brier", "ECE": "ece"},
    "count": {"deviance": "deviance", "RMSE": "rmse", "error": "error"},
    "time_to_event": {
        "concordance": "concordance",
        "integrated Brier": "integrated_brier",
        "ECE": "ece",
    },
}


@dataclass(frozen=True, kw_only=True)
class JudgedOutcome:
    """One outcome's scores on held-out rows; of the four kinds of scores it has those of its own.

    The scores are of the recalibrated prediction if there is one, as it is served. raw_log_loss:
    the log loss of the model without recalibration. coverage: of conformal sets or intervals at
    each level of the evaluation; None for a time to an event and without recalibration.
    """

    name: str
    kind: str
    raw_log_loss: float
    coverage: Coverage | None
    binary: BinaryQuality | None = None
    classes: ClassesQuality | None = None
    count: CountQuality | None = None
    time_to_event: TimeQuality | None = None

    def __post_init__(self) -> None:
        scores = {name: getattr(self, name) for name in TARGET_KINDS if name != "real"}
        if [name for name, own in scores.items() if own is not None] != [self.kind]:
            raise ArtifactError(
                "the card's evaluation must have the scores of each outcome's own kind, and of no "
                "other"
            )
        curve, coverage = self.quality.curve, self.coverage
        if not len(curve.predicted) == len(curve.observed) == len(curve.rows):
            raise ArtifactError(
                "a curve of the card's evaluation must have as many observations and rows as "
                "predictions"
            )
        if coverage is not None and len(coverage.inside) != len(LEVELS):
            raise ArtifactError(
                "the card's evaluation must have the coverage of an outcome at each of its levels"
            )

    @classmethod
    def of(cls, target: Outcome, scores: OutcomeScores) -> Self:
        """Return the description of an outcome's scores, which must have rows."""
        served = scores.raw if scores.recalibrated is None else scores.recalibrated
        kind = kind_of(target)
        return cls(
            name=target.name,
            kind=kind,
            raw_log_loss=scores.raw.quality(target).log_loss,
            coverage=scores.coverage,
            **{kind: served.quality(target)},
        )

    @property
    def quality(self) -> Quality:
        """The scores of what is served."""
        quality: Quality = getattr(self, self.kind)
        return quality

    @property
    def log_loss(self) -> float:
        """The log loss of what is served."""
        return self.quality.log_loss

    @property
    def further(self) -> dict[str, float | None]:
        """The other scores of its kind by their names; None if the rows do not define one."""
        return {name: getattr(self.quality, own) for name, own in _NAMES[self.kind].items()}

    def inside(self, level: float) -> float | None:
        """Return the share of rows in their sets or intervals of one of `LEVELS`, if known."""
        return None if self.coverage is None else self.coverage.inside[LEVELS.index(level)]
