"""Sites and tables that differ only in their rows: none, one and many, and extreme rows.

Sites have rows of the chosen kind in each part, in memory or streamed; tables are what a hospital
joins with.
"""

import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from kernels.rounds.site.site import Part, Site
from kernels.rounds.site.streamed import DEALT, Dealt, Streamed
from kernels.tables.outcome_cells import EXPOSURES, positions, width
from kernels.tables.records import Records
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Binary, Classes, Count, Outcome, Target, TimeToEvent
from tests.dealing import DEALING

MANY = 24
IN_MEMORY = 12
"""Of tables with more rows than this, conversations read every sum anew from the stream."""
EXTREMES = (1e300, -1e300, 5e-324, 0.0, 1.0, -1.0)
"""Where a column has no bounds, every finite number is valid."""


def sites(schema: Schema, seed: int = 0) -> Mapping[str, Site]:
    """Return sites by what is in their parts; all of them are valid for the schema."""
    chance = random.Random(seed)
    none, one = Records.none(schema), rows(schema, 1, chance)
    many = rows(schema, MANY, chance)
    found = {
        "no rows": _site(dict.fromkeys(Part, none)),
        "one row": _site(dict.fromkeys(Part, one)),
        "many rows": _site(dict.fromkeys(Part, many)),
        "one patient": _site(dict.fromkeys(Part, _of_one_patient(many))),
        "equal rows": _site(dict.fromkeys(Part, Records.concatenate([one] * 5))),
        "extreme rows": _site(dict.fromkeys(Part, rows(schema, MANY, chance, extreme=1.0))),
        "one extreme row": _site(
            dict.fromkeys(Part, Records.concatenate([many, rows(schema, 1, chance, extreme=1.0)]))
        ),
        "all missing": _site(dict.fromkeys(Part, rows(schema, 3, chance, missing=1.0))),
    }
    for streamed, held in (("streamed", many), ("one row, streamed", one)):
        found[streamed] = _streamed(held)
    for part in Part:
        found[f"no rows in {part}"] = _site({**dict.fromkeys(Part, many), part: none})
        found[f"one row in {part} alone"] = _site({**dict.fromkeys(Part, none), part: one})
    return found


def chosen(every: Mapping[str, Site], chance: random.Random, count: int) -> Iterator[str]:
    """Yield the names of some sites, always with one that has no rows and one that has many."""
    yield from ("no rows", "many rows")
    yield from chance.sample(sorted(set(every) - {"no rows", "many rows"}), max(count - 2, 0))


Table = Mapping[str, list[Any]]


def tables(schema: Schema, seed: int = 0) -> Mapping[str, Table]:
    """Return tables by what is in them; but for the last, all are valid for the schema."""
    chance = random.Random(seed)
    one, many = rows(schema, 1, chance), rows(schema, MANY, chance)
    found = {
        "no rows": Records.none(schema),
        "one row": one,
        "few rows": rows(schema, IN_MEMORY // 2, chance),
        "many rows": many,
        "one patient": _of_one_patient(many),
        "equal rows": Records.concatenate([one] * 5),
        "extreme rows": rows(schema, MANY, chance, extreme=1.0),
        "one extreme row": Records.concatenate([many, rows(schema, 1, chance, extreme=1.0)]),
        "all missing": rows(schema, 3, chance, missing=1.0),
    }
    read = {name: table_of(records) for name, records in found.items()}
    return {**read, "broken cells": _broken(read["many rows"], chance)}


def table_of(records: Records) -> Table:
    """Return the columns of which such records are read."""
    schema, found = records.schema, {}
    numeric = records.numeric.masked_fill(records.missing, torch.nan)
    for column, cells in zip(schema.numeric, numeric.unbind(1), strict=True):
        found[column.name] = cells.tolist()
    for labels, codes in zip(schema.categorical, records.levels.unbind(1), strict=True):
        found[labels.name] = [None if c < 0 else labels.levels[c] for c in codes.tolist()]
    assert records.targets is not None
    for target, cells in zip(schema.real, records.targets.unbind(1), strict=True):
        found[target.name] = cells.tolist()
    assert records.outcomes is not None
    for outcome, where in zip(schema.outcomes, positions(schema.outcomes), strict=True):
        found |= _cells_of(outcome, records.outcomes[:, where].mT.tolist())
    if schema.patient is not None:
        found[schema.patient] = list(records.patients or ())
    return found


def _cells_of(outcome: Outcome, columns: list[list[float]]) -> dict[str, list[Any]]:
    match outcome:
        case Binary():
            no = next(level for level in outcome.levels if level != outcome.event)
            return {outcome.name: [outcome.event if own else no for own in columns[0]]}
        case Classes():
            return {outcome.name: [outcome.levels[int(own)] for own in columns[0]]}
        case Count():
            return dict(zip(outcome.columns, columns, strict=False))
        case TimeToEvent():
            both = outcome.censored, outcome.happened
            return {outcome.name: columns[0], outcome.event: [both[int(own)] for own in columns[1]]}


def _broken(table: Table, chance: random.Random) -> Table:
    """Return a table with cells that no schema allows: programs with noise read it row by row."""
    bad = (None, float("nan"), float("inf"), 1e308, -1e308)
    return {
        name: [
            cell
            if chance.random() < 0.8
            else chance.choice(bad if isinstance(cell, float) else ("?", None))
            for cell in cells
        ]
        for name, cells in table.items()
    }


def rows(
    schema: Schema,
    count: int,
    chance: random.Random,
    *,
    extreme: float = 0.05,
    missing: float = 0.1,
) -> Records:
    """Return random rows; shares of the cells are as large or small as may be, or missing."""
    numeric = _cells(schema.numeric, count, chance, extreme)
    absent = torch.tensor(
        [
            [column.may_be_missing and chance.random() < missing for column in schema.numeric]
            for _ in range(count)
        ],
        dtype=torch.bool,
    ).reshape(count, len(schema.numeric))
    levels = torch.tensor(
        [
            [
                -1
                if labels.may_be_missing and chance.random() < missing
                else chance.randrange(len(labels.levels))
                for labels in schema.categorical
            ]
            for _ in range(count)
        ],
        dtype=torch.int64,
    ).reshape(count, len(schema.categorical))
    who = tuple(str(chance.randrange(max(count // 2, 1))) for _ in range(count))
    return Records(
        schema,
        numeric=numeric.masked_fill(absent, 0.0),
        missing=absent,
        outside=torch.zeros_like(absent),
        levels=levels,
        targets=_cells(schema.real, count, chance, extreme),
        outcomes=_outcomes(schema.outcomes, count, chance, extreme),
        patients=None if schema.patient is None else who,
    )


def _cells(
    columns: tuple[Numeric, ...] | tuple[Target, ...],
    count: int,
    chance: random.Random,
    extreme: float,
) -> torch.Tensor:
    def cell(column: Numeric | Target) -> float:
        ends = [end for end in (column.lower, column.upper) if end is not None]
        if chance.random() < extreme:
            return chance.choice(ends or EXTREMES)
        share = chance.random()
        # Not lower + (upper − lower)·u, which overflows for bounds of ±1e308.
        lower, upper = (ends[0], ends[-1]) if len(ends) > 1 else (0.0, 50.0)
        own = lower * (1 - share) + upper * share
        own = own if column.lower is None else max(own, column.lower)
        return own if column.upper is None else min(own, column.upper)

    cells = [[cell(column) for column in columns] for _ in range(count)]
    return torch.tensor(cells, dtype=torch.float64).reshape(count, len(columns))


def _outcomes(
    outcomes: tuple[Outcome, ...], count: int, chance: random.Random, extreme: float
) -> torch.Tensor:
    def cells(outcome: Outcome) -> list[float]:
        far = chance.random() < extreme
        match outcome:
            case Binary() | Classes():
                return [0 if far else chance.randrange(len(outcome.levels))]
            case Count():
                most = math.floor(outcome.upper)
                exposure = 1.0 if outcome.exposure is None else chance.choice(EXPOSURES)
                return [most if far else chance.randrange(min(most, 9) + 1), exposure]
            case TimeToEvent():
                times = (0.0, *outcome.intervals, 1e300)
                time = chance.choice(times) if far else chance.random() * times[-2]
                return [time, chance.randrange(2)]

    rows = [[number for own in outcomes for number in cells(own)] for _ in range(count)]
    return torch.tensor(rows, dtype=torch.float64).reshape(count, sum(map(width, outcomes)))


def _of_one_patient(records: Records) -> Records:
    patients = None if records.patients is None else ("the same",) * len(records)
    return Records(
        records.schema,
        records.numeric,
        records.missing,
        records.outside,
        records.levels,
        records.targets,
        records.outcomes,
        patients,
    )


def _site(parts: Mapping[Part, Records]) -> Site:
    return Site(parts, digest=bytes(32), dealing=DEALING)


def _streamed(records: Records) -> Site:
    """Return a site whose dealt parts all have these rows, read again for every sum."""
    parts: dict[Part, Records | Streamed] = dict.fromkeys(Part, records)
    stream = [table_of(records)]
    for part in [*Part][:DEALT]:
        dealt = Dealt.of(records.schema, stream, held_out=0.0, dealing=DEALING, rows_in_memory=0)
        own = dealt.part(0)
        assert isinstance(own, Streamed)
        parts[part] = own
    return Site(parts, digest=bytes(32), dealing=DEALING)
