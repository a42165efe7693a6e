"""The reports of a schema's columns, from the tallies of a table's cells."""

from collections.abc import Iterator, Mapping, Sequence

from client_sdk.tables.checking.doubts import copies, doubts_about
from client_sdk.tables.checking.report import ColumnReport
from client_sdk.tables.checking.tally import LabelTally, NumberTally, Tally
from kernels.tables.labels import canonical_label
from kernels.tables.outcome_cells import EXPOSURES, label_columns
from kernels.tables.schema import Categorical, Feature, Schema
from kernels.tables.targets import AnyTarget, Binary, Classes, Count, Target, TimeToEvent, kind_of

Bounds = tuple[float | None, float | None]


def tallies_of(schema: Schema) -> dict[str, Tally]:
    """Return an empty tally for each column that a schema reads."""
    labels = {column.name for column in schema.categorical} | {schema.patient}
    labels |= {name for outcome in schema.outcomes for name in label_columns(outcome)}
    codes = schema.missing_codes
    return {
        name: (LabelTally if name in labels else NumberTally)(codes.get(name, ()))
        for name in schema.columns
    }


def reports(schema: Schema, tallies: Mapping[str, Tally]) -> Iterator[ColumnReport]:
    """Yield the report of each column, in the order of the schema."""
    targets = [name for target in schema.targets for name in target.columns]
    for feature in schema.features:
        yield _of_feature(feature, tallies, targets)
    for target in schema.targets:
        yield from _of_target(target, tallies)
    if schema.patient is not None:
        own = tallies[schema.patient]
        yield ColumnReport(schema.patient, "patient", "patient", None, own.rows, own.missing)


def _of_feature(
    feature: Feature, tallies: Mapping[str, Tally], targets: Sequence[str]
) -> ColumnReport:
    tally = tallies[feature.name]
    doubts = [*doubts_about(feature.name, tally)]
    for name in targets:
        doubts += copies(tally, tallies[name], name)
    if isinstance(feature, Categorical):
        return _report(
            feature.name, "feature", "categorical", tally, levels=feature.levels, doubts=doubts
        )
    bounds = feature.lower, feature.upper
    return _report(
        feature.name, "feature", "numeric", tally, unit=feature.unit, bounds=bounds, doubts=doubts
    )


def _of_target(target: AnyTarget, tallies: Mapping[str, Tally]) -> Iterator[ColumnReport]:
    name, kind, tally = target.name, kind_of(target), tallies[target.name]
    match target:
        case Target():
            bounds: Bounds = (target.lower, target.upper)
            yield _report(name, "target", kind, tally, unit=target.unit, bounds=bounds)
        case Binary() | Classes():
            yield _report(name, "target", kind, tally, levels=target.levels)
        case Count():
            bounds = (0.0, target.upper)
            yield _report(name, "target", kind, tally, unit=target.unit, bounds=bounds)
            if target.exposure is not None:
                own = tallies[target.exposure]
                yield _report(target.exposure, "target", kind, own, bounds=EXPOSURES)
        case TimeToEvent():
            yield _report(name, "target", kind, tally, unit=target.unit, bounds=(0.0, None))
            both = target.censored, target.happened
            yield _report(target.event, "target", kind, tallies[target.event], levels=both)


def _report(
    name: str,
    role: str,
    kind: str,
    tally: Tally,
    *,
    unit: str | None = None,
    bounds: Bounds = (None, None),
    levels: Sequence[str] = (),
    doubts: Sequence[str] = (),
) -> ColumnReport:
    labels = tally.labels if isinstance(tally, LabelTally) else {}
    rows = {level: labels.get(canonical_label(level), 0) for level in levels}
    there = isinstance(tally, NumberTally) and tally.least <= tally.most
    return ColumnReport(
        name,
        role,
        kind,
        unit,
        rows=tally.rows,
        missing=tally.missing,
        coded=tally.coded,
        levels=rows,
        other_levels=sum(labels.values()) - sum(rows.values()),
        least=tally.least if isinstance(tally, NumberTally) and there else None,
        most=tally.most if isinstance(tally, NumberTally) and there else None,
        lower=bounds[0],
        upper=bounds[1],
        doubts=tuple(doubts),
    )
