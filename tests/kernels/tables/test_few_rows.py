"""A few rows read cell by cell equal those read column by column, or are left to that reader."""

import math
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.errors import TableRefused
from kernels.tables.curves import Curve
from kernels.tables.few_rows import FEW, FewRows
from kernels.tables.records import Records
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.standardiser import Scale, Shares, Standardiser
from kernels.tables.targets import Target

SCHEMA = Schema(
    features=(
        Numeric("age", "a", lower=0, upper=120),
        Categorical("ward", ("1", "B", "rest"), other="rest", may_be_missing=True),
        Numeric("lactate", "mmol/L", may_be_missing=True),
        Categorical("sex", ("female", "male")),
    ),
    targets=(Target("stay", "d"),),
)
STANDARDISER = Standardiser(
    numeric=(Scale("age", 61.3, 17.9), Scale("lactate", 0.7, 1e-9)),
    curves=(Curve("lactate", (-3.1e9, -0.7, 1.3, 4e9), (-4.7, -0.1, 1.1, 4.3)),),
    categorical=(Shares("ward", (0.1, 0.2, 0.7)), Shares("sex", (0.4, 0.6))),
    targets=(Scale("stay", 3.0, 2.0),),
)
FEW_ROWS = FewRows(SCHEMA, STANDARDISER)
GOOD: dict[str, list[Any]] = {"age": [61], "ward": ["B"], "lactate": [1.5], "sex": ["male"]}

numbers = st.floats(allow_infinity=False, allow_nan=False) | st.integers(-(10**9), 10**9)
missing = st.sampled_from([None, math.nan])
odd = st.sampled_from(
    [True, "", "7", "male", math.inf, 10**400, [1], 0.5, np.float64(3), np.int64(1), object()]
)


@st.composite
def tables(draw: st.DrawFn, more: st.SearchStrategy[Any]) -> dict[str, list[Any]]:
    rows = draw(st.integers(1, FEW))
    wards = st.sampled_from(["1", 1, 1.0, "B", "C", True]) | missing

    def column(cells: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(cells | more, min_size=rows, max_size=rows))

    return {
        "age": column(numbers),
        "ward": column(wards),
        "lactate": column(numbers | missing),
        "sex": column(st.sampled_from(["female", "male"])),
    }


@given(tables(st.nothing()))
def test_what_is_right_is_read_to_the_same_last_bit(table: dict[str, list[Any]]) -> None:
    read, records = FEW_ROWS.read(table), Records.for_prediction(SCHEMA, table)
    assert read is not None
    assert torch.equal(read.features, STANDARDISER.apply(records).features)
    assert torch.equal(read.extrapolates, records.outside.any(1))


@given(tables(odd | missing))
def test_it_reads_exactly_the_tables_that_are_not_refused(table: dict[str, list[Any]]) -> None:
    try:
        records = Records.for_prediction(SCHEMA, table)
    except TableRefused:
        assert FEW_ROWS.read(table) is None
        return
    read = FEW_ROWS.read(table)
    assert read is not None
    assert torch.equal(read.features, STANDARDISER.apply(records).features)


def test_what_are_no_few_rows_of_plain_lists_is_left_to_others() -> None:
    assert FEW_ROWS.read(GOOD) is not None
    assert FEW_ROWS.read({**GOOD, "more": [1, 2]}) is not None
    for changes in ({"sex": ["male"] * 2}, {"sex": np.array(["male"])}, {"sex": None}):
        assert FEW_ROWS.read({**GOOD, **changes}) is None
    assert FEW_ROWS.read({name: cells for name, cells in GOOD.items() if name != "sex"}) is None
    for rows in (0, FEW + 1):
        assert FEW_ROWS.read({name: cells * rows for name, cells in GOOD.items()}) is None
