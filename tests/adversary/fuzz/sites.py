"""Sites that differ only in their rows: none, one and many in each part, and extreme rows."""

import random
from collections.abc import Iterator, Mapping

import torch

from kernels.rounds.site.site import Part, Site
from kernels.tables.records import Records
from kernels.tables.schema import Numeric, Schema, Target
from tests.dealing import DEALING

MANY = 24
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
    for part in Part:
        found[f"no rows in {part}"] = _site({**dict.fromkeys(Part, many), part: none})
        found[f"one row in {part} alone"] = _site({**dict.fromkeys(Part, none), part: one})
    return found


def chosen(every: Mapping[str, Site], chance: random.Random, count: int) -> Iterator[str]:
    """Yield the names of some sites, always with one that has no rows and one that has many."""
    yield from ("no rows", "many rows")
    yield from chance.sample(sorted(set(every) - {"no rows", "many rows"}), max(count - 2, 0))


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
        targets=_cells(schema.targets, count, chance, extreme),
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


def _of_one_patient(records: Records) -> Records:
    patients = None if records.patients is None else ("the same",) * len(records)
    return Records(
        records.schema,
        records.numeric,
        records.missing,
        records.outside,
        records.levels,
        records.targets,
        patients,
    )


def _site(parts: Mapping[Part, Records]) -> Site:
    return Site(parts, digest=bytes(32), dealing=DEALING)
