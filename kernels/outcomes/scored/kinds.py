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

from kernels.outcomes.scored import binary, classes, time_to_event
from kernels.outcomes.scored.conformal import Covered
from kernels.outcomes.scored.logit_map import LogitMap
from kernels.outcomes.scored.recalibration import binary as binary_recalibration
from kernels.outcomes.scored.recalibration import classes as classes_recalibration
from kernels.outcomes.scored.recalibration import time_to_event as time_recalibration
from kernels.outcomes.scored.summed import HeldOut, Scored
from kernels.tables.targets import Binary, Classes, Outcome, TimeToEvent


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
    TimeToEvent: Kind(time_to_event.Sums, time_recalibration.Held, time_recalibration.Calibration),
}


def kind_of(target: Outcome) -> Kind:
    """Return the classes of a target's kind."""
    return KINDS[type(target)]


STORED: tuple[type, ...] = (
    Covered,
    LogitMap,
    *(kind.sums for kind in KINDS.values()),
    *(kind.held for kind in KINDS.values()),
    *(kind.calibration for kind in KINDS.values()),
)
"""The dataclasses that are stored."""
