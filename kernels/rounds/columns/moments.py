"""Federated standardisation: counts, sums and sums of squares of every column, in 1 to 3 sums.

mean = Σx/n, scale² = Σx²/n − mean², over all sites' training rows; missing cells and categorical
levels are counted. The same sum takes the census of the outcomes (`kernels.outcomes.census`): how
often each level occurs, and at how many sites. If fewer than `min_sites` sites have a level of an
outcome, the run ends here: a model that separates the level would describe those sites' patients.

Fixed-point sums need a bound on the summed values. Columns with both bounds in the schema have one.
For the other columns, a first sum finds how large their values are: it counts the sites by the
smallest power of two above their largest |x|. The column is then summed in units of the largest
power that any site needs.

With `curves`, a last sum counts the rows of each numeric feature in fixed intervals of
(x − mean)/scale, and columns with heavy tails get a curve (`kernels.tables.curves`); targets never.

broadcast  the schema; after the first sum, the power of two of each column without bounds; with
           curves, then also mean and scale of each column
local      1 at the exponent of the column's largest |x|; then n_c, missing, Σu, Σu², levels, and
           the census of its outcomes; with curves, then counts of rows in intervals
sum        the number of sites that need each power of two; then the moments of all rows; with
           curves, then the histogram of each numeric feature over all rows
update     the standardiser and the census, rounded: dividing the same rows differently among sites
           gives the same, bit for bit

With `from_bounds` there is no sum: the standardiser is computed from the schema's bounds, and no
column has a curve.

With differential privacy every numeric column and target needs both bounds, so |u| ≤ 1 and there is
no first sum, and `curves` has no effect: bounds keep values near, and a histogram would cost noise.
A row changes `rows` by 1, `sums` and `squares` by at most 1 in each of K columns, `missing` by 1 in
each column that may be missing, `levels` by 1 in each of C columns, and the targets' sums by at
most 1 for each of T targets. In Euclidean norm, k rows therefore change these by at most k times 1,
√K, √K, √(columns that may be missing), √C, √T and √T. In the census, a row changes one level of
each binary target and of classes, and up to J intervals and one event of a time to an event; a
count by at most its upper bound, and an exposure, which is clipped, by at most `PRIVATE_EXPOSURES`.
The sites of a level are not counted: noise protects them. Noise of deviation ∝ Δ/√c with c ∝ Δ
minimises the sum of all variances. `kernels.noisy.moments` decides how far noisy sums are used.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from kernels.errors import OutOfBounds, RareLevel, SchemaRefused, StateError, StatisticsError
from kernels.model.model import Model, check_model
from kernels.noisy.moments import check_bounds, from_bounds, from_noisy
from kernels.outcomes.census import EXPOSURE_STEP, Census
from kernels.parameter_checks import check_flag, check_whole
from kernels.rounds.algorithm import Contribution, accepted
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import BITWISE
from kernels.rounds.site.site import Part, Site
from kernels.tables.curves import INTERVALS, MOST_KNOTS, Curve, count_in_intervals, curve_of, edges
from kernels.tables.moments import RESOLUTION, Moments
from kernels.tables.outcome_cells import EXPOSURES, PRIVATE_EXPOSURES, positions
from kernels.tables.records import Records
from kernels.tables.schema import Numeric, Schema
from kernels.tables.standardiser import Scale, Standardiser
from kernels.tables.targets import Binary, Classes, Count, Target, TimeToEvent
from privacy.layout import Block, Layout, SecureTotal

Matrix = NDArray[np.float64]

NAME = "moments"
VERSION = 3
NEEDS: frozenset[Made] = frozenset()
MAKES = frozenset({Made.STANDARDISER})

NOISE_SHARE = 0.07
"""With differential privacy: a mean over all rows is accurate even with much noise."""

EXPONENTS = 64
"""Sizes |x| from 2^-32 to 2^32 are distinguished; a smaller |x| counts as 2^-32."""
_LARGEST = 32
SCALE_BITS = 20
"""Bits of a scale, and of a mean relative to it: a millionth of a deviation, far above rounding."""
_HISTOGRAMS = "rows_per_interval"
_WORDS_OF_CURVES = (
    f"; for each column of numbers, how many rows are in each of {INTERVALS} intervals"
)
_NOT_FILLED = "the bounds of this state are not the schema's with powers of two where it has none"


@dataclass(frozen=True, kw_only=True)
class Spec:
    """How to standardise.

    from_bounds: standardise by the schema's bounds alone, without a sum; every outcome then starts
        from an offset of 0.
    min_sites: the least number of sites that must have each level of a binary target and of
        classes, or all sites if there are fewer.
    curves: a further sum finds the numeric features that have heavy tails, and gives them a curve.
        Without effect if `from_bounds`, or with differential privacy, so that one list of stages
        serves sessions with and without.
    """

    STORED_AS: ClassVar[str] = "moments.spec"

    from_bounds: bool = False
    min_sites: int = 3
    curves: bool = False

    def __post_init__(self) -> None:
        check_flag(from_bounds=self.from_bounds, curves=self.curves)
        check_whole(1, min_sites=self.min_sites)


@dataclass(frozen=True, eq=False)
class State:
    """A standardisation in progress.

    bounded: the schema with a bound on every number, known after the first sum.
    straight: the standardiser without curves, known while the sum that decides on them is due.
    """

    STORED_AS: ClassVar[str] = "moments.state"

    model: Model
    spec: Spec
    bounded: Schema | None
    straight: Standardiser | None = None

    def __post_init__(self) -> None:
        """Refuse bounds that cannot result from a first sum.

        With other bounds, a coordinator could choose the unit in which a column is summed, and
        learn from a site's refusal whether that site's own sum is above any chosen number.
        """
        check_model(self.model)
        schema = self.model.schema
        _check_straight(self)
        if self.bounded is None:
            if not _unbounded(schema):
                raise StateError("this state requests bounds that the schema already has")
            return
        filled = {column.name: column for column in _numbers(self.bounded)}
        try:
            reach = {own.name: _reach(own, filled[own.name]) for own in _unbounded(schema)}
            expected = _filled(schema, reach)
        except (KeyError, TypeError, SchemaRefused) as error:
            raise StateError(_NOT_FILLED) from error
        if self.bounded != expected or not all(map(_is_power, reach.values())):
            raise StateError(_NOT_FILLED)


def layout(state: State) -> Layout:
    """Return the number of sites per exponent, the moments, or the histograms."""
    schema = state.model.schema
    if state.straight is not None:
        return _layout_of_histograms(state.model)
    if state.bounded is None:
        shape = (len(_unbounded(schema)), EXPONENTS)
        return Layout((Block("sites_per_exponent", shape, 1.0, 1.0),))
    return layout_of_moments(state.model)


def initial(spec: Spec, model: Model) -> State:
    """Start at the second sum if the schema has all bounds, or finish with the bounds alone."""
    if spec.from_bounds:
        model = model.advanced(
            standardiser=from_bounds(model.schema), census=Census.zero(model.schema)
        )
        return State(model, spec, model.schema)
    complete = not _unbounded(model.schema)
    model = model.advanced(standardiser=None, census=None)
    return State(model, spec, model.schema if complete else None)


def contribute(state: State, site: Site) -> Contribution:
    """Mark the exponents of the site's columns, sum its training rows, or count them."""
    chunks = site.record_chunks(Part.TRAINING, state.model)
    if state.straight is not None:
        return {_HISTOGRAMS: _histograms(state.straight, chunks)}
    if state.bounded is None:
        return {"sites_per_exponent": _exponents(state.model.schema, chunks)}
    moments, census = Moments.zero(state.bounded), Census.zero(state.model.schema)
    for records in chunks:
        if state.model.privacy is None:
            _check_reach(state.model.schema, state.bounded, records)
        else:
            records = _clipped_exposures(records)
        moments += Moments.of(replace(records, schema=state.bounded))
        census += Census.of(records)
    # A site has a level or does not, however many pieces of its table do.
    census = replace(census, sites=census.sites.clamp_max(1.0))
    names = [block.name for block in layout(state).blocks]
    return {
        name: (_census_field(census, name) if _of_census(name) else getattr(moments, name)).numpy()
        for name in names
    }


def update(state: State, total: SecureTotal) -> State:
    """Set the bounds, or the standardiser; with curves, only its scales before the last sum."""
    total = accepted(total, layout(state))
    schema = state.model.schema
    if state.straight is not None:
        standardiser = replace(state.straight, curves=_curves(state.straight, total[_HISTOGRAMS]))
        model = state.model.advanced(standardiser=standardiser, census=state.model.census)
        return replace(state, model=model, straight=None)
    if state.bounded is None:
        return replace(state, bounded=_with_bounds(schema, total["sites_per_exponent"]))
    if state.model.privacy is not None:
        model = state.model.advanced(
            standardiser=_despite_noise(state, total), census=_noisy_census(state, total)
        )
        return replace(state, model=model)
    census = _counted(state, total)
    sums = {field.name: torch.tensor(total[field.name]) for field in fields(Moments)}
    # Counts are whole numbers; remove the rounding of the fixed-point encoding.
    for name in ("rows", "missing", "levels"):
        sums[name] = sums[name].round()
    moments = Moments(**sums)
    exact = Standardiser.of(state.bounded, moments)
    standardiser = replace(
        exact,
        numeric=tuple(_rounded(column) for column in exact.numeric),
        targets=tuple(_rounded(column) for column in exact.targets),
    )
    if _has_curves(state.spec, state.model):
        return replace(state, model=state.model.advanced(census=census), straight=standardiser)
    return replace(state, model=state.model.advanced(standardiser=standardiser, census=census))


def finished(state: State) -> bool:
    """Return whether the standardiser is known."""
    return state.model.standardiser is not None


def check_private(_spec: Spec, model: Model) -> None:
    """Refuse a schema in which a bound is missing."""
    check_bounds(model.schema)


def declare(spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    model = before.model
    start = initial(spec, model)
    curved = _has_curves(spec, model)
    lengths = [] if start.bounded is not None else [layout(start).length]
    lengths += [] if finished(start) else [layout_of_moments(model).length]
    lengths += [_layout_of_histograms(model).length] if curved else []
    return Declaration(
        needs=NEEDS,
        needs_students=frozenset(),
        needs_held_out=False,
        makes=MAKES,
        answers=Answers.ALL,
        students=before.students,
        words="the number of rows; for each column its sum and sum of squares; counts of missing "
        "cells and of each level of a category; how often each outcome occurs"
        + (_WORDS_OF_CURVES if curved else ""),
        sums=len(lengths),
        numbers=max(layout(start).length, layout_of_moments(model).length, *lengths),
        numbers_in_all=sum(lengths),
        leaves=2 * (len(model.schema.numeric) + model.targets)
        + sum(len(column.levels) for column in model.schema.categorical)
        + sum(block.length for block in _census_blocks(model))
        + (2 * MOST_KNOTS * len(model.schema.numeric) if curved else 0),
        row_count="rows",
        local_passes=0,
        rate_times_steps=0.0,
        reads=frozenset({Part.TRAINING}),
        summed_together=frozenset({frozenset({Part.TRAINING})}),
        sampling_rate=1.0,
        noise_share=NOISE_SHARE,
        public_rows=PublicRows.NONE,
        public_set=None,
        needs_consent=False,
        includes=frozenset(),
        replay=BITWISE,
    )


STORED = (Spec, State)


def _has_curves(spec: Spec, model: Model) -> bool:
    """Return whether there is a sum that decides on curves."""
    possible = model.privacy is None and not spec.from_bounds
    return spec.curves and possible and len(model.schema.numeric) > 0


def _check_straight(state: State) -> None:
    """Refuse scales that no sum has led to: with others, a coordinator could choose intervals."""
    straight = state.straight
    if straight is None:
        return
    if not _has_curves(state.spec, state.model) or state.bounded is None:
        raise StateError("this state requests counts in intervals, which its parameters do not")
    straight.check(state.model.schema)
    if straight.curves or any(_rounded(column) != column for column in straight.numeric):
        raise StateError("the scales of this state are not those that follow from a sum of moments")


def _layout_of_histograms(model: Model) -> Layout:
    shape = (len(model.schema.numeric), INTERVALS)
    return Layout((Block(_HISTOGRAMS, shape, float(model.max_rows), 1.0),))


def _histograms(straight: Standardiser, chunks: Iterable[Records]) -> Matrix:
    """Count the rows of each numeric feature, (K,), in each interval, (K, INTERVALS)."""
    intervals = [edges(column.mean, column.scale) for column in straight.numeric]
    counts = torch.zeros(len(intervals), INTERVALS, dtype=torch.float64)
    for records in chunks:
        for place, (column, own) in enumerate(zip(straight.numeric, intervals, strict=True)):
            x = records.numeric[:, place][~records.missing[:, place]]
            counts[place] += count_in_intervals((x - column.mean) / column.scale, own)
    return counts.numpy()


def _curves(straight: Standardiser, counts: Matrix) -> tuple[Curve, ...]:
    found = (
        curve_of(column.name, edges(column.mean, column.scale), [round(own) for own in row])
        for column, row in zip(straight.numeric, counts.tolist(), strict=True)
    )
    return tuple(curve for curve in found if curve is not None)


def _unbounded(schema: Schema) -> list[Numeric | Target]:
    return [column for column in _numbers(schema) if column.lower is None or column.upper is None]


def _numbers(schema: Schema) -> tuple[Numeric | Target, ...]:
    return (*schema.numeric, *schema.real)


def _reach(column: Numeric | Target, filled: Numeric | Target) -> float:
    """Return the 2^k that a column's missing bounds were filled with."""
    size = filled.upper if column.upper is None else filled.lower
    if size is None:
        raise StateError(_NOT_FILLED)
    return abs(size)


def _filled(schema: Schema, reach: Mapping[str, float]) -> Schema:
    """Return the schema with ±2^k in place of missing bounds.

    A column with such bounds has no missing codes any more: they may lie within, and its cells have
    been read.
    """

    def is_whole(column: Numeric | Target) -> bool:
        return column.lower is not None and column.upper is not None

    def bounds(column: Numeric | Target) -> tuple[float, float]:
        size = reach.get(column.name, math.inf)
        lower = -size if column.lower is None else column.lower
        return lower, size if column.upper is None else column.upper

    features = tuple(
        Numeric(column.name, column.unit, *bounds(column), column.may_be_missing)
        if isinstance(column, Numeric) and not is_whole(column)
        else column
        for column in schema.features
    )
    targets = tuple(
        Target(target.name, target.unit, *bounds(target))
        if isinstance(target, Target) and not is_whole(target)
        else target
        for target in schema.targets
    )
    return Schema(features, targets, schema.patient)


def _is_power(size: float) -> bool:
    mantissa, exponent = math.frexp(size)
    return mantissa == 0.5 and _LARGEST - EXPONENTS < exponent - 1 <= _LARGEST


def layout_of_moments(model: Model) -> Layout:
    """Return the layout of the moments, which depends on the columns but not on their bounds."""
    rows = float(model.max_rows)
    shapes = {
        f.name: tuple(getattr(Moments.zero(model.schema), f.name).shape) for f in fields(Moments)
    }
    if model.privacy is None:
        own = tuple(Block(name, shapes[name], rows, RESOLUTION) for name in shapes)
        return Layout((*own, *_census_blocks(model)))
    most = model.privacy.max_rows_per_patient
    sensitivities = {name: most * math.sqrt(per) for name, per in _per_row(model.schema).items()}
    return Layout(
        tuple(
            Block(name, shapes[name], rows, RESOLUTION, own, weight=own)
            for name, own in sensitivities.items()
            if own > 0
        )
        + _census_blocks(model)
    )


_CENSUS = "census."


def _census_blocks(model: Model) -> tuple[Block, ...]:
    """Return the blocks of the census; none for a schema without outcomes."""
    rows, schema = float(model.max_rows), model.schema
    zero = Census.zero(schema)
    uppers = [own.upper for own in schema.outcomes if isinstance(own, Count)]
    shapes = {f.name: tuple(getattr(zero, f.name).shape) for f in fields(Census)}
    bounds = {
        "levels": rows,
        "counts": rows * max(uppers, default=1.0),
        "exposures": rows * (EXPOSURES if model.privacy is None else PRIVATE_EXPOSURES)[1],
        "sites": 1.0,
    }
    steps = {"levels": 1.0, "counts": 1.0, "exposures": EXPOSURE_STEP, "sites": 1.0}
    present = [name for name, shape in shapes.items() if shape[0]]
    if model.privacy is None:
        return tuple(
            Block(_CENSUS + name, shapes[name], bounds[name], steps[name]) for name in present
        )
    most = model.privacy.max_rows_per_patient
    counted = [own for own in schema.outcomes if isinstance(own, Count)]
    times = [own for own in schema.outcomes if isinstance(own, TimeToEvent)]
    others = len(schema.outcomes) - len(counted) - len(times)
    per_row = {
        "levels": math.sqrt(others + sum(len(own.intervals) + 1 for own in times)),
        "counts": math.hypot(*uppers),
        "exposures": PRIVATE_EXPOSURES[1] * math.sqrt(len(counted)),
    }
    return tuple(
        Block(
            _CENSUS + name,
            shapes[name],
            bounds[name],
            steps[name],
            most * per_row[name],
            # One number of the census decides as much as one column.
            weight=float(most) * math.sqrt(shapes[name][0]),
        )
        for name in present
        if name in per_row
    )


def _of_census(name: str) -> bool:
    return name.startswith(_CENSUS)


def _census_field(census: Census, name: str) -> torch.Tensor:
    field: torch.Tensor = getattr(census, name.removeprefix(_CENSUS))
    return field


def _clipped_exposures(records: Records) -> Records:
    """Return records with the exposures of counts within `PRIVATE_EXPOSURES`."""
    if records.outcomes is None:
        return records
    schema, outcomes = records.schema, records.outcomes.clone()
    for outcome, where in zip(schema.outcomes, positions(schema.outcomes), strict=True):
        if isinstance(outcome, Count):
            outcomes[:, where.stop - 1].clamp_(*PRIVATE_EXPOSURES)
    return replace(records, outcomes=outcomes)


def _summed_census(state: State, total: SecureTotal) -> Census:
    present = {block.name for block in total.layout.blocks}
    found = {
        field.name: torch.tensor(total[_CENSUS + field.name])
        for field in fields(Census)
        if _CENSUS + field.name in present
    }
    return replace(Census.zero(state.model.schema), **found)


def _counted(state: State, total: SecureTotal) -> Census:
    """Return the census; refuse one in which too few sites have a level."""
    census = _summed_census(state, total)
    census = replace(
        census,
        levels=census.levels.round(),
        counts=census.counts.round(),
        sites=census.sites.round(),
    )
    least = min(state.spec.min_sites, total.contributors)
    named = [
        f"{level!r} of {outcome.name!r}"
        for outcome in state.model.schema.outcomes
        if isinstance(outcome, Binary | Classes)
        for level in _in_order(outcome)
    ]
    rare = [own for own, sites in zip(named, census.sites.tolist(), strict=True) if sites < least]
    if rare:
        # Everyone who sees this sees the total, in which the number of sites of each level is.
        raise RareLevel(
            f"fewer than {least} sites have rows with {', '.join(rare)}: leave the level out of "
            "the schema, join it with another one, or wait for further sites that have it"
        )
    return census


def _in_order(outcome: Binary | Classes) -> tuple[str, ...]:
    """Return the levels in the order of the census: the event of a binary target last."""
    if isinstance(outcome, Classes):
        return outcome.levels
    return tuple(sorted(outcome.levels, key=lambda level: level == outcome.event))


def _noisy_census(state: State, total: SecureTotal) -> Census:
    """Return the census with noise, as far as it is possible: nothing below zero."""
    census = _summed_census(state, total)
    return Census(*(getattr(census, field.name).clamp_min(0.0) for field in fields(Census)))


def _per_row(schema: Schema) -> dict[str, int]:
    """Return the number of elements of each block that one row can change, each by at most 1."""
    columns, targets = len(schema.numeric), len(schema.real)
    return {
        "rows": 1,
        "missing": sum(column.may_be_missing for column in schema.numeric),
        "sums": columns,
        "squares": columns,
        "levels": len(schema.categorical),
        "target_sums": targets,
        "target_squares": targets,
    }


def _exponents(schema: Schema, chunks: Iterable[Records]) -> Matrix:
    names = [column.name for column in _numbers(schema)]
    largest = torch.zeros(len(names), dtype=torch.float64)
    for records in chunks:
        values = [records.numeric, *([] if records.targets is None else [records.targets])]
        largest = torch.maximum(largest, torch.cat(values, 1).abs().amax(0))
    sizes = dict(zip(names, largest.tolist(), strict=True))
    columns = _unbounded(schema)
    marks = np.zeros((len(columns), EXPONENTS))
    for row, column in enumerate(columns):
        # frexp's exponent e is the smallest with largest < 2^e.
        exponent = max(int(np.frexp(sizes[column.name])[1]), _LARGEST - EXPONENTS + 1)
        if exponent > _LARGEST:
            raise OutOfBounds(
                column.name,
                f"values beyond 2^{_LARGEST} {column.unit}; choose a larger unit, or give the "
                "column bounds in the schema",
            )
        marks[row, exponent - (_LARGEST - EXPONENTS + 1)] = 1.0
    return marks


def _check_reach(schema: Schema, bounded: Schema, records: Records) -> None:
    """Fail if a value is beyond the powers of two: exact sums never clip to a schema's bounds.

    No site of an honest sum has such a value, because it would have reported a larger power.
    """
    if len(records) == 0:
        return
    names = [column.name for column in _numbers(schema)]
    values = [records.numeric, *([] if records.targets is None else [records.targets])]
    largest = dict(zip(names, torch.cat(values, 1).abs().amax(0).tolist(), strict=True))
    filled = {column.name: column for column in _numbers(bounded)}
    for column in _unbounded(schema):
        if largest[column.name] > _reach(column, filled[column.name]):
            raise StateError(
                f"column {column.name!r} has larger values here than the broadcast allows for any "
                "site: its bounds do not come from the sites' sum"
            )


def _with_bounds(schema: Schema, sites: Matrix) -> Schema:
    columns = _unbounded(schema)
    if not (sites.sum(axis=1) >= 0.5).all():
        raise StatisticsError("no site reported the size of a column: repeat the sum")
    reach = {
        column.name: 2.0 ** (int(np.flatnonzero(own > 0.5).max()) + _LARGEST - EXPONENTS + 1)
        for column, own in zip(columns, sites, strict=True)
    }
    return _filled(schema, reach)


def _despite_noise(state: State, total: SecureTotal) -> Standardiser:
    schema, zero = state.model.schema, Moments.zero(state.model.schema)
    names = [block.name for block in total.layout.blocks if not _of_census(block.name)]
    moments = replace(zero, **{name: torch.tensor(total[name]) for name in names})
    never = torch.tensor([not column.may_be_missing for column in schema.numeric], dtype=torch.bool)
    moments = replace(moments, missing=moments.missing.masked_fill(never, 0.0))
    noise = {f.name: total.noise(f.name) if f.name in names else 0.0 for f in fields(Moments)}
    return from_noisy(schema, moments, noise)


def _rounded(column: Scale) -> Scale:
    step = math.ldexp(1.0, math.frexp(column.scale)[1] - SCALE_BITS)
    return Scale(column.name, round(column.mean / step) * step, round(column.scale / step) * step)
