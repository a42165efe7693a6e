"""A draft schema for a table, to be edited: what the table shows, and what was guessed is said.

The table shows the columns' types, their levels and whether cells are missing, and mostly the kinds
of targets (`client_sdk.tables.target_draft`). It does not show units: they are UNKNOWN until
someone writes them, and `veilgp check` requires them. Bounds are left open, and a horizon must be
given: they must come from what is medically possible and of interest, because the extreme values
of a table belong to two patients.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from client_sdk.errors import DraftError
from client_sdk.tables.column_seen import ColumnSeen
from client_sdk.tables.draft_limits import UNKNOWN
from client_sdk.tables.opening import open_table
from client_sdk.tables.source import TableSource
from client_sdk.tables.target_draft import DraftedTarget, count, target, time_to_event
from kernels.tables.schema import Feature, Schema
from kernels.tables.targets import Binary, Classes


@dataclass(frozen=True)
class Draft:
    """A schema with unknown units, and advice on what to decide before it is used."""

    schema: Schema
    advice: tuple[str, ...]

    def to_json(self) -> str:
        """Return the schema as indented JSON, for editing."""
        return json.dumps(json.loads(self.schema.to_json()), indent=2, ensure_ascii=False)


@dataclass(frozen=True)
class _Wanted:
    """The columns to predict, as `draft` describes them."""

    targets: Sequence[str]
    times_to_event: Mapping[str, str]
    horizon: float | None
    exposures: Mapping[str, str]
    dropped: Sequence[str]

    def __post_init__(self) -> None:
        if not self.targets and not self.times_to_event:
            raise DraftError("name at least one target")
        if self.times_to_event and self.horizon is None:
            raise DraftError(
                "a time to an event needs a horizon, the time up to which it is predicted: it is a "
                "question's, such as 90 days, and not read from the table, whose longest time is "
                "one patient's"
            )
        if self.horizon is not None and not self.times_to_event:
            raise DraftError("a horizon is given, but no time to an event")
        if unknown := [repr(name) for name in self.exposures if name not in self.targets]:
            raise DraftError(f"exposures are given for {', '.join(unknown)}: name them as targets")
        if both := [repr(name) for name in self.dropped if name in self.columns]:
            raise DraftError(f"{', '.join(both)} cannot be dropped: a target reads it")

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are read for targets."""
        times = (name for both in self.times_to_event.items() for name in both)
        return (*self.targets, *times, *self.exposures.values())

    def drafted(self, seen: Mapping[str, ColumnSeen]) -> list[DraftedTarget]:
        """Return the targets, in the order in which they were named."""
        found = [
            count(name, seen[name], self.exposures[name], seen[self.exposures[name]])
            if name in self.exposures
            else target(name, seen[name])
            for name in self.targets
        ]
        for time, event in self.times_to_event.items():
            horizon = self.horizon or 0.0
            found.append(time_to_event(time, seen[time], event, seen[event], horizon=horizon))
        return found


def without_unit(schema: Schema) -> list[str]:
    """Return the columns whose unit is still unknown."""
    columns = (*schema.numeric, *schema.targets)
    return [column.name for column in columns if column.unit.strip() == UNKNOWN]


def unfinished(schema: Schema) -> list[str]:
    """Return a sentence for each column whose unit is still unknown."""
    return [
        f"column {name!r}: its unit is still {UNKNOWN!r}: write the unit, or '1' if it has none"
        for name in without_unit(schema)
    ]


def look_at(sources: Sequence[TableSource], names: Sequence[str]) -> dict[str, ColumnSeen]:
    """Read all rows of tables that have these columns, and return what is seen of each."""
    seen = {name: ColumnSeen() for name in names}
    for source in sources:
        for batch in source.batches(names):
            for name, column in batch.items():
                seen[name].look(column, text=source.numbers_are_text)
    return seen


def draft(
    data: object,
    *,
    targets: Sequence[str] = (),
    times_to_event: Mapping[str, str] | None = None,
    horizon: float | None = None,
    exposures: Mapping[str, str] | None = None,
    patient: str | None = None,
    drop: Sequence[str] = (),
) -> Draft:
    """Read all rows of a table, and return a draft schema with these targets.

    targets: columns of which the table shows the kind.
    times_to_event: for each column of times, the column that says whether the event happened.
    horizon: the time up to which these events are predicted.
    exposures: for each target that is a count, the column of its exposures.
    drop: columns that the schema leaves out, such as the site's name.
    """
    wanted = _Wanted(targets, times_to_event or {}, horizon, exposures or {}, drop)
    if patient in drop:
        raise DraftError(f"{patient!r} cannot be dropped: it is the patient column")
    source = open_table(data)
    named = [*wanted.columns, *([] if patient is None else [patient]), *drop]
    absent = [repr(name) for name in named if name not in source.columns]
    if absent:
        raise DraftError(f"{source.name} has no column {', '.join(absent)}: correct the names")
    seen = look_at([source], [own for own in source.columns if own not in (patient, *drop)])
    features: list[Feature] = []
    advice: list[str] = []
    for name, column in seen.items():
        if name in wanted.columns:
            continue
        feature = column.feature(name)
        if feature is not None:
            features.append(feature)
        advice += [f"column {name!r}: {sentence}" for sentence in column.advice(name)]
    drafted = wanted.drafted(seen)
    if not features:
        raise DraftError(f"{source.name} has no usable feature columns besides the targets")
    schema = Schema(tuple(features), tuple(own.target for own in drafted), patient)
    for own in drafted:
        advice += [f"target {own.target.name!r}: {sentence}" for sentence in own.advice]
    if schema.numeric or not all(isinstance(own, Binary | Classes) for own in schema.targets):
        advice.append(
            f"write the unit of every number in place of {UNKNOWN!r}, and bounds that are "
            "medically possible, not those of this table: its extreme values belong to single "
            "patients"
        )
    return Draft(schema, tuple(advice))
