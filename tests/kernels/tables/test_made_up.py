"""Made-up rows: whatever the schema, they are rows that it allows, and always the same."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.noisy.moments import from_bounds
from kernels.tables.made_up import made_up_rows
from kernels.tables.records import Records
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.standardiser import CLIP
from kernels.tables.targets import Target

ENDS = st.sampled_from([None, -1e308, -3.0, 0.0, 2.5, 1e-300, 1e308])
BOUNDS = st.tuples(ENDS, ENDS).filter(lambda own: None in own or own[0] < own[1])


def _table(records: Records) -> dict[str, object]:
    schema = records.schema
    table: dict[str, object] = {}
    for column, cells, missing in zip(
        schema.numeric, records.numeric.mT, records.missing.mT, strict=True
    ):
        table[column.name] = [
            None if gone else cell
            for cell, gone in zip(cells.tolist(), missing.tolist(), strict=True)
        ]
    for column, codes in zip(schema.categorical, records.levels.mT, strict=True):
        table[column.name] = [None if code < 0 else column.levels[code] for code in codes.tolist()]
    assert records.targets is not None
    for target, cells in zip(schema.targets, records.targets.mT, strict=True):
        table[target.name] = cells.tolist()
    return table | ({} if schema.patient is None else {schema.patient: records.patients})


@given(first=BOUNDS, second=BOUNDS, missing=st.booleans(), rows=st.integers(1, 9))
@settings(max_examples=50, deadline=None, database=None)
def test_made_up_rows_are_rows_that_the_schema_allows(
    first: tuple[float, float], second: tuple[float, float], missing: bool, rows: int
) -> None:
    schema = Schema(
        (
            Numeric("a", "1", *first, may_be_missing=missing),
            Categorical("b", ("x", "y", "z"), may_be_missing=missing),
        ),
        (Target("c", "1", *second),),
        patient="p",
    )
    records = made_up_rows(schema, rows)
    read = Records.for_training(schema, _table(records))
    for name in ("numeric", "missing", "levels", "targets"):
        assert torch.equal(getattr(read, name), getattr(records, name))
    assert read.patients == records.patients
    again = made_up_rows(schema, rows)
    assert torch.equal(again.numeric, records.numeric)


def test_with_a_standardiser_they_are_like_most_rows_and_still_within_bounds() -> None:
    schema = Schema((Numeric("a", "1", 0, 1e6),), (Target("c", "1", 0, 1e6),))
    narrow = from_bounds(Schema((Numeric("a", "1", 10, 20),), (Target("c", "1", 2e6, 3e6),)))
    records = made_up_rows(schema, 50, narrow)
    assert float(narrow.apply(records).features.abs().max()) < CLIP / 2
    assert float(records.numeric.std()) > 1
    assert bool((records.targets == 1e6).all()), "a forged mean does not leave the bounds"
