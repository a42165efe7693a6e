"""The kinds of target that a schema can have, and which columns and cells each of them reads.

    real            a number                                    `Target`
    binary          which of two levels; one of them is the event    `Binary`
    classes         which of several levels                     `Classes`
    count           how often, perhaps during an exposure       `Count`
    time_to_event   how long until an event, or until observation ended    `TimeToEvent`

All kinds but the first are `outcomes`. Their cells are read as numbers: a binary target as 1 for
the event and 0 otherwise, a class as its position among the levels, a count with its exposure, a
time with 1 for an event and 0 for an end of observation (`kernels.tables.outcome_cells`).

Missing codes are as those of features. A row in which a cell of any target is missing is no row for
training: all targets share sums such as Σφφᵀ and n, so it is left out as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

from kernels.errors import SchemaError, WrongBounds, WrongCodes, WrongField, WrongLevels
from kernels.strict_json import is_number, is_text
from kernels.tables.column_checks import (
    bound_problems,
    label_code_problems,
    level_problems,
    name_problems,
    number_code_problems,
    unit_problems,
)
from kernels.tables.labels import canonical_label

MOST_CLASSES = 50
"""A sum has one matrix for each class."""
MOST_EDGES = 100
"""The most intervals of a time to an event; a patient can have a row in each of them."""
LARGEST_COUNT = 2**24
"""The largest count: a larger number is an identifier or an error."""
TIMES = 2.0**-32, 2.0**32
"""The least and the largest edge or horizon: otherwise choose another unit of time."""
INTERVALS = 10
"""The number of equal intervals up to a horizon, where no edges are given."""


@dataclass(frozen=True)
class Target:
    """A number to predict, with a unit and inclusive bounds.

    name: the table's column. unit: for example "d"; "1" for a dimensionless number.
    lower, upper: the bounds, in `unit`.
    """

    STORED_AS: ClassVar[str] = "target"

    name: str
    unit: str
    lower: float | None = None
    upper: float | None = None
    missing_codes: tuple[float | str, ...] = ()
    """Cells that mean "missing": numbers outside the bounds, or texts such as "?"."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns that it reads."""
        return (self.name,)


@dataclass(frozen=True)
class Binary:
    """A yes or no: one of two levels, one of which is the event whose probability is predicted.

    name: the table's column. levels: its two labels. event: one of them.
    """

    STORED_AS: ClassVar[str] = "target.binary"

    name: str
    levels: tuple[str, ...]
    event: str
    missing_codes: tuple[str, ...] = ()
    """Labels that mean "missing"; none of them is a level."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns that it reads."""
        return (self.name,)

    @property
    def unit(self) -> str:
        """The unit of its mean: a probability has none."""
        return "1"


@dataclass(frozen=True)
class Classes:
    """One of several levels that exclude each other, such as a diagnosis.

    name: the table's column. levels: its labels, at least three.
    """

    STORED_AS: ClassVar[str] = "target.classes"

    name: str
    levels: tuple[str, ...]
    missing_codes: tuple[str, ...] = ()
    """Labels that mean "missing"; none of them is a level."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns that it reads."""
        return (self.name,)

    @property
    def unit(self) -> str:
        """The unit of its means: probabilities have none."""
        return "1"


@dataclass(frozen=True)
class Count:
    """How often something happened: 0, 1, 2, …, perhaps during an exposure that differs by row.

    name: the table's column. unit: what is counted, such as "visits".
    upper: the largest possible count, which bounds every sum; with differential privacy, the less
    it is, the less noise. exposure: a numeric column, positive in every row, such as the years of
    observation; the expected count is in proportion to it.
    """

    STORED_AS: ClassVar[str] = "target.count"

    name: str
    unit: str
    upper: float = 1000.0
    exposure: str | None = None
    missing_codes: tuple[float | str, ...] = ()
    """Cells that mean "missing": no possible counts, or texts such as "?"."""
    exposure_missing_codes: tuple[float | str, ...] = ()
    """The same in the exposure's column."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns that it reads."""
        return (self.name,) if self.exposure is None else (self.name, self.exposure)


@dataclass(frozen=True)
class TimeToEvent:
    """How long until an event, from an origin that is the same for everyone, such as admission.

    name: the column with times ≥ 0, in `unit`. unit: for example "d". event: the column that says
    whether the event happened at that time or observation ended without it.
    happened, censored: the labels of the one and of the other in that column.
    edges: public ends of the intervals whose hazards are modelled, rising; nothing is predicted
    beyond the last. horizon: the time whose risk is predicted, by default the last edge; given
    without edges, it is the last of ten equal intervals.
    """

    STORED_AS: ClassVar[str] = "target.time_to_event"

    name: str
    unit: str
    event: str
    edges: tuple[float, ...] = ()
    horizon: float | None = None
    happened: str = "1"
    censored: str = "0"
    missing_codes: tuple[float | str, ...] = ()
    """Cells that mean "missing": numbers that are no times up to the last edge, or texts."""
    event_missing_codes: tuple[str, ...] = ()
    """Labels that mean "missing" in the event's column."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns that it reads."""
        return self.name, self.event

    @cached_property
    def intervals(self) -> tuple[float, ...]:
        """The ends of the intervals, rising."""
        if self.edges or self.horizon is None:
            return self.edges
        inner = (self.horizon * (step / INTERVALS) for step in range(1, INTERVALS))
        return (*inner, float(self.horizon))  # not 10 h/10, which may be another number than h

    @property
    def risk_at(self) -> float:
        """The time whose risk is predicted."""
        return self.intervals[-1] if self.horizon is None else self.horizon


Outcome = Binary | Classes | Count | TimeToEvent
AnyTarget = Target | Outcome

TARGET_KINDS: Mapping[str, type[AnyTarget]] = {
    "real": Target,
    "binary": Binary,
    "classes": Classes,
    "count": Count,
    "time_to_event": TimeToEvent,
}


def kind_of(target: AnyTarget) -> str:
    """Return the name of a target's kind."""
    return next(name for name, kind in TARGET_KINDS.items() if type(target) is kind)


def target_problems(target: AnyTarget) -> list[SchemaError]:
    """Return everything that is wrong with a target by itself."""
    where = f"target {target.name!r}"
    problems = name_problems(target.name, where)
    match target:
        case Target():
            problems += unit_problems(target.unit, where)
            ends = bound_problems(target.lower, target.upper, where)
            bounds = (None, None) if ends else (target.lower, target.upper)
            problems += [*ends, *number_code_problems(target.missing_codes, where, bounds=bounds)]
        case Binary():
            problems += level_problems(target.levels, where, least=2, most=2)
            problems += label_code_problems(target.missing_codes, target.levels, where)
            if not problems and target.event not in target.levels:
                problems.append(
                    WrongLevels(f"{where}: event must be one of the levels, not {target.event!r}")
                )
        case Classes():
            problems += level_problems(target.levels, where, least=3)
            problems += label_code_problems(target.missing_codes, target.levels, where)
            if not problems and len(target.levels) > MOST_CLASSES:
                problems.append(
                    WrongLevels(
                        f"{where}: at most {MOST_CLASSES} levels are allowed, not "
                        f"{len(target.levels)}: group rare ones"
                    )
                )
        case Count():
            problems += unit_problems(target.unit, where)
            problems += _count_problems(target, where)
        case TimeToEvent():
            problems += unit_problems(target.unit, where)
            problems += _time_problems(target, where)
    return problems


def _count_problems(target: Count, where: str) -> list[SchemaError]:
    problems: list[SchemaError] = []
    bounds: tuple[float | None, float | None] = (None, None)
    if is_number(target.upper) and 1 <= target.upper <= LARGEST_COUNT:
        bounds = 0.0, target.upper
    else:
        problems.append(
            WrongBounds(f"{where}: upper must be a number from 1 to {LARGEST_COUNT}, or omitted")
        )
    problems += number_code_problems(target.missing_codes, where, bounds=bounds)
    of_exposure = f"{where}, exposure"
    problems += number_code_problems(target.exposure_missing_codes, of_exposure)
    if target.exposure_missing_codes and target.exposure is None:
        problems.append(WrongCodes(f"{of_exposure}: missing codes are given, but no exposure"))
    if target.exposure is not None and not is_text(target.exposure):
        problems.append(WrongField(f"{where}: exposure must be the name of a column, or omitted"))
    return problems


def _time_problems(target: TimeToEvent, where: str) -> list[SchemaError]:
    problems: list[SchemaError] = []
    if not is_text(target.event):
        problems.append(WrongField(f"{where}: event must be the name of a column"))
    both = target.happened, target.censored
    labels = [canonical_label(own) for own in both if is_text(own)]
    if len(labels) < 2 or labels[0] == labels[1] or not all(labels):
        problems.append(
            WrongLevels(f"{where}: happened and censored must be two different texts, not blank")
        )
    problems += label_code_problems(target.event_missing_codes, both, f"{where}, event")
    if not isinstance(target.edges, tuple) or not all(map(is_number, target.edges)):
        return [*problems, WrongBounds(f"{where}: edges must be a list of finite numbers")]
    given = [own for own in (*target.edges, target.horizon) if is_number(own)]
    # Without edges and horizon, which is a problem by itself, only a negative time is no time.
    last = max(given, default=None)
    problems += number_code_problems(target.missing_codes, where, bounds=(0.0, last))
    if len(target.edges) > MOST_EDGES:
        problems.append(
            WrongBounds(f"{where}: at most {MOST_EDGES} edges are allowed, not {len(target.edges)}")
        )
    least, most = TIMES
    if not all(least <= edge <= most for edge in target.edges) or any(
        float(low) >= float(high) for low, high in pairwise(target.edges)
    ):
        problems.append(
            WrongBounds(f"{where}: edges must rise and be from {least:.1g} to {most:.1g}")
        )
    if target.horizon is None:
        if not target.edges:
            problems.append(WrongBounds(f"{where}: edges or a horizon must be given"))
    elif not (is_number(target.horizon) and least <= target.horizon <= most):
        problems.append(
            WrongBounds(
                f"{where}: horizon must be a number from {least:.1g} to {most:.1g}, or omitted"
            )
        )
    elif target.edges and target.horizon > target.edges[-1]:
        problems.append(
            WrongBounds(
                f"{where}: horizon must not be beyond the last edge, {target.edges[-1]}: nothing "
                "is known there"
            )
        )
    return problems
