"""How the outcome of each kind is scored and recalibrated, by the type of its target.

A stage loops over the outcomes of a schema with `kind_of(target)` and knows none of them:

    said = predicted(target, fitted, columns, mean, variance)
    sums = sums + kind.sums.of(target, columns, said)
    held = held + kind.held.of(target, columns, said, folds)
    calibration = kind.calibration.of(target, held, dispersion=fitted.dispersion)
    sums.of(target, columns, calibration.without(fold).apply(said))
    calibration.covered(target, columns, said)         # None for a time to an event
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from kernels.errors import PredictionError
from kernels.outcomes.fitted import FittedOutcome
from kernels.outcomes.scored import binary, classes, count, count_law, time_to_event
from kernels.outcomes.scored.conformal import Covered
from kernels.outcomes.scored.logit_map import LogitMap
from kernels.outcomes.scored.recalibration import binary as binary_recalibration
from kernels.outcomes.scored.recalibration import classes as classes_recalibration
from kernels.outcomes.scored.recalibration import count as count_recalibration
from kernels.outcomes.scored.recalibration import time_to_event as time_recalibration
from kernels.outcomes.scored.summed import HeldOut, Scored
from kernels.tables.targets import Binary, Classes, Count, Outcome, TimeToEvent


@dataclass(frozen=True)
class Kind:
    """One kind's classes.

    sums: what scores follow from. held: what a recalibration follows from. calibration: the
    recalibration, with `of`, `from_noisy`, `check`, `without`, `apply`, `covered` and
    `few_covered`.
    """

    sums: type[Scored[Any, Any]]
    held: type[HeldOut[Any, Any]]
    calibration: Any


KINDS: Mapping[type[Outcome], Kind] = {
    Binary: Kind(binary.Sums, binary_recalibration.Held, binary_recalibration.Calibration),
    Classes: Kind(classes.Sums, classes_recalibration.Held, classes_recalibration.Calibration),
    Count: Kind(count.Sums, count_recalibration.Held, count_recalibration.Calibration),
    TimeToEvent: Kind(time_to_event.Sums, time_recalibration.Held, time_recalibration.Calibration),
}


def kind_of(target: Outcome) -> Kind:
    """Return the classes of a target's kind."""
    return KINDS[type(target)]


def predicted(
    target: Outcome,
    fitted: FittedOutcome,
    columns: Tensor,
    mean: Tensor,
    variance: Tensor | None = None,
) -> Any:
    """Return what the model says of rows, of the kind's own type `Predicted`.

    columns: (n, width) the outcomes as numbers, of which a count's exposure is read. mean,
    variance: those of the latent functions, (n, L) each; for a time to an event `mean` is mean
    survival, (n, J), and there is no variance.
    """
    if isinstance(target, TimeToEvent):
        return time_to_event.Predicted(mean)
    if variance is None:
        raise PredictionError("the latent functions' variances must be given with their means")
    match target:
        case Binary():
            return binary.Predicted.of(mean[:, 0], variance[:, 0], offset=fitted.offsets[0])
        case Classes():
            return classes.Predicted.of(mean, variance, offsets=fitted.offsets)
        case Count():
            if fitted.dispersion is None:
                raise PredictionError("a count must have been fitted with a dispersion")
            return count_law.Predicted.of(
                mean[:, 0],
                variance[:, 0],
                offset=fitted.offsets[0],
                exposure=columns[:, 1],
                dispersion=fitted.dispersion,
            )


STORED: tuple[type, ...] = (
    Covered,
    LogitMap,
    *(kind.sums for kind in KINDS.values()),
    *(kind.held for kind in KINDS.values()),
    *(kind.calibration for kind in KINDS.values()),
)
"""The dataclasses that are stored."""
