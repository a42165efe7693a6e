"""The scores of one outcome on held-out rows, as a model keeps them."""

from dataclasses import dataclass
from typing import Any, ClassVar

from kernels.errors import StatisticsError
from kernels.outcomes.scored.conformal import Coverage, Covered
from kernels.outcomes.scored.kinds import kind_of
from kernels.tables.schema import Schema
from kernels.tables.targets import Outcome, TimeToEvent


@dataclass(frozen=True, eq=False)
class OutcomeScores:
    """Sums over all sites' rows of one part.

    raw: of the model's own prediction. recalibrated: of the recalibrated one. covered: how the
    conformal sets did, None for a time to an event. The latter two are None if not requested.
    """

    STORED_AS: ClassVar[str] = "outcome.scores"

    raw: Any
    recalibrated: Any = None
    covered: Covered | None = None

    def check(self, target: Outcome) -> None:
        """Refuse scores of another kind of target; they may come from untrusted bytes."""
        kind = kind_of(target).sums
        for own in (self.raw, self.recalibrated):
            if own is self.recalibrated and own is None:
                continue
            if not isinstance(own, kind):
                raise StatisticsError(f"the scores of {target.name!r} are of another kind")
            own.check(target)
        if self.covered is not None:
            if isinstance(target, TimeToEvent) or not isinstance(self.covered, Covered):
                raise StatisticsError(f"the coverage of {target.name!r} is of another kind")
            self.covered.check(target)

    @property
    def coverage(self) -> Coverage | None:
        """Shares of rows in their sets; None without sets or rows."""
        if self.covered is None or not float(self.covered.rows) > 0:
            return None
        return self.covered.coverage()


def check_calibrations(found: object, schema: Schema) -> None:
    """Refuse anything but one recalibration for each outcome."""
    own = found if isinstance(found, tuple) else ()
    pairs = list(zip(schema.outcomes, own, strict=False))
    fits = len(own) == len(schema.outcomes) and isinstance(found, tuple)
    if not fits or not all(isinstance(c, kind_of(target).calibration) for target, c in pairs):
        raise StatisticsError(
            f"there must be one recalibration for each of {len(schema.outcomes)} outcomes"
        )
    for target, each in pairs:
        each.check(target)


def check_scores(found: object, schema: Schema) -> None:
    """Refuse anything but the scores of each outcome."""
    own = found if isinstance(found, tuple) else ()
    fits = len(own) == len(schema.outcomes) and isinstance(found, tuple)
    if not fits or not all(isinstance(each, OutcomeScores) for each in own):
        raise StatisticsError(f"there must be scores for each of {len(schema.outcomes)} outcomes")
    for target, each in zip(schema.outcomes, own, strict=True):
        each.check(target)
