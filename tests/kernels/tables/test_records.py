"""A table is read by its schema, or refused with all its problems and without a cell's value."""

import math
import traceback
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.errors import (
    ColumnError,
    EmptyTable,
    InfiniteValue,
    MissingColumn,
    MissingTarget,
    MissingValue,
    NotALabel,
    NotNumeric,
    OutOfBounds,
    TableError,
    TableRefused,
    UnknownLevel,
    WrongLength,
)
from kernels.tables.problems import RowByRow
from kernels.tables.records import Records, read_in_pieces
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import Target

SCHEMA = Schema(
    features=(
        Numeric("age", "a", lower=0, upper=120),
        Categorical("sex", ("female", "male")),
        Numeric("lactate", "mmol/L", may_be_missing=True),
        Categorical("ward", ("1", "2", "rest"), other="rest", may_be_missing=True),
    ),
    targets=(Target("stay", "d", lower=0),),
    patient="id",
)
TABLE: dict[str, Any] = {
    "age": [61, 47.5, 80],
    "sex": ["female", "male", "female"],
    "lactate": [1.5, None, math.nan],
    "ward": [1, None, "intensive care"],
    "stay": [3, 1.5, 7],
    "id": ["p1", "p2", "p1"],
}


def table(**changes: object) -> dict[str, Any]:
    return {**TABLE, **changes}


def refusal(changed: dict[str, Any], schema: Schema = SCHEMA) -> tuple[TableError, ...]:
    with pytest.raises(TableRefused) as raised:
        Records.for_training(schema, changed)
    return raised.value.problems


def test_a_table_is_read_in_schema_order_and_raw_units() -> None:
    records = Records.for_training(SCHEMA, TABLE)
    assert records.numeric.dtype == torch.float64
    assert records.numeric.tolist() == [[61, 1.5], [47.5, 0], [80, 0]]
    assert records.missing.tolist() == [[False, False], [False, True], [False, True]]
    assert records.levels.tolist() == [[0, 0], [1, -1], [0, 2]]
    assert records.targets is not None
    assert records.targets.tolist() == [[3], [1.5], [7]]
    assert records.patients == ("p1", "p2", "p1")
    assert not records.outside.any()


def test_prediction_reads_features_only() -> None:
    features = {column.name: TABLE[column.name] for column in SCHEMA.features}
    bare = Records.for_prediction(SCHEMA, features)
    whole = Records.for_prediction(SCHEMA, TABLE)
    for records in (bare, whole):
        assert records.targets is None
        assert records.patients is None
        assert torch.equal(records.numeric, bare.numeric)


def test_out_of_bounds_is_refused_in_training_and_flagged_in_prediction() -> None:
    wild = table(age=[-1, 0, 121])
    (problem,) = refusal(wild)
    assert type(problem) is OutOfBounds
    assert problem.rows == 2
    assert "2 of 3 cells are not within [0, 120] a (rows 0, 2, counted from 0)" in str(problem)
    outside = Records.for_prediction(SCHEMA, wild).outside
    assert outside.tolist() == [[True, False], [False, False], [True, False]]


def test_columns_that_the_schema_does_not_name_are_ignored() -> None:
    wider = {**TABLE, "note": ["x", "y"], 7: object()}
    assert torch.equal(
        Records.for_training(SCHEMA, wider).numeric, Records.for_training(SCHEMA, TABLE).numeric
    )


@pytest.mark.parametrize(
    "column",
    [
        [1, 2, 3],
        (1.0, 2.0, 3.0),
        range(1, 4),
        np.array([1, 2, 3], np.int8),
        np.array([1, 2, 3], np.uint64),
        np.array([1, 2, 3], np.float32),
        np.array([1, 2.0, np.int64(3)], object),
        torch.tensor([1, 2, 3]),
    ],
)
def test_numbers_of_every_kind_are_read_alike(column: object) -> None:
    assert Records.for_training(SCHEMA, table(age=column)).numeric[:, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "column",
    [
        ["1", "2", ""],
        [1, 2, None],
        [1.0, 2.0, math.nan],
        np.array(["1", "2", ""]),
        np.array([1.0, 2.0, np.nan]),
        np.array(["1", 2, None], object),
        np.ma.MaskedArray([1, 2, 2], mask=[False, False, True]),
    ],
)
def test_labels_of_every_kind_are_read_alike(column: object) -> None:
    assert Records.for_training(SCHEMA, table(ward=column)).levels[:, 1].tolist() == [0, 1, -1]


def test_booleans_are_labels_and_never_numbers() -> None:
    flag = Schema((Categorical("flag", ("false", "true")),), (Target("y", "1"),))
    for column in ([True, False], np.array([True, False])):
        read = Records.for_training(flag, {"flag": column, "y": [1, 2]})
        assert read.levels.tolist() == [[1], [0]]
        (problem,) = refusal({"flag": ["true", "false"], "y": column}, flag)
        assert type(problem) is NotNumeric


def test_masked_cells_are_missing_and_never_read() -> None:
    masked = np.ma.MaskedArray([1.0, 2.0, 999.0], mask=[False, True, True])
    records = Records.for_training(SCHEMA, table(lactate=masked))
    assert records.numeric[:, 1].tolist() == [1, 0, 0]
    assert records.missing[:, 1].tolist() == [False, True, True]
    (problem,) = refusal(table(age=masked))
    assert type(problem) is MissingValue


@pytest.mark.parametrize(
    ("changes", "kind", "rows"),
    [
        ({"age": ["61", "47", "80"]}, NotNumeric, 3),
        ({"age": np.array(["61", "47", "80"])}, NotNumeric, 3),
        ({"age": [61, True, 80]}, NotNumeric, 1),
        ({"age": [61, "", 80]}, NotNumeric, 1),
        ({"age": [61, [47], 80]}, NotNumeric, 1),
        ({"age": np.array([1, 2, 3], "datetime64[D]")}, NotNumeric, 3),
        ({"age": np.array([1, 2, 3], complex)}, NotNumeric, 3),
        ({"age": [61, None, 80]}, MissingValue, 1),
        ({"age": np.array([61, np.nan, np.nan])}, MissingValue, 2),
        ({"stay": [3, None, 7]}, MissingTarget, 1),
        ({"sex": ["female", None, "male"]}, MissingValue, 1),
        ({"sex": ["female", "", "male"]}, MissingValue, 1),
        ({"id": ["p1", None, "p2"]}, MissingValue, 1),
        ({"lactate": [1, math.inf, 2]}, InfiniteValue, 1),
        ({"lactate": [1, 10**400, 2]}, InfiniteValue, 1),
        ({"lactate": np.array([1, np.finfo(np.longdouble).max, 2])}, InfiniteValue, 1),
        ({"age": [61, math.inf, 80]}, InfiniteValue, 1),
        ({"stay": [3, -1, 7]}, OutOfBounds, 1),
        ({"sex": ["female", "Male", "male "]}, UnknownLevel, 2),
        ({"sex": ["male", 0.5, "male"]}, UnknownLevel, 1),
        ({"ward": [1, b"1", 2]}, NotALabel, 1),
        ({"ward": np.array([1, 2, 3], "datetime64[D]")}, NotALabel, 3),
        ({"id": [b"1", 2, 3]}, NotALabel, 1),
        ({"age": [61, 47]}, WrongLength, 0),
        ({"age": np.ones((3, 1))}, WrongLength, 0),
        ({"age": 61}, WrongLength, 0),
        ({"sex": "female"}, WrongLength, 0),
        ({"age": {1, 2, 3}}, WrongLength, 0),
    ],
)
def test_each_problem_has_its_name_and_its_number_of_rows(
    changes: dict[str, object], kind: type[ColumnError], rows: int
) -> None:
    (problem,) = refusal(table(**changes))
    assert type(problem) is kind
    assert (problem.column, problem.rows) == (next(iter(changes)), rows)


def test_a_missing_column_is_named_also_where_cells_may_be_missing() -> None:
    for name in TABLE:
        (problem,) = refusal({k: v for k, v in TABLE.items() if k != name})
        assert type(problem) is MissingColumn
        assert problem.column == name


def test_an_empty_table_is_refused() -> None:
    empty: dict[str, Any] = {name: [] for name in TABLE}
    (problem,) = refusal(empty)
    assert type(problem) is EmptyTable
    with pytest.raises(TableRefused):
        Records.for_prediction(SCHEMA, empty)


def test_a_missing_label_is_missing_and_never_other() -> None:
    strict = Schema(
        (Categorical("ward", ("1", "rest"), other="rest"),),
        (Target("y", "1"),),
    )
    (problem,) = refusal({"ward": ["", None, "9"], "y": [1, 2, 3]}, strict)
    assert type(problem) is MissingValue
    assert problem.rows == 2


def test_all_problems_are_reported_at_once() -> None:
    problems = refusal(
        {
            "age": [None, 200, "x"],
            "sex": ["f", "male", None],
            "lactate": [math.inf, 1],
            "ward": [[], 1, 2],
            "stay": [-1, None, 3],
        }
    )
    found = [(type(p), p.column) for p in problems if isinstance(p, ColumnError)]
    assert set(found) == {
        (MissingColumn, "id"),
        (WrongLength, "lactate"),
        (NotNumeric, "age"),
        (MissingValue, "age"),
        (OutOfBounds, "age"),
        (InfiniteValue, "lactate"),
        (MissingValue, "sex"),
        (UnknownLevel, "sex"),
        (NotALabel, "ward"),
        (MissingTarget, "stay"),
        (OutOfBounds, "stay"),
    }
    assert len(found) == len(problems) == 11


def test_problems_are_those_of_the_whole_table_in_whatever_pieces_it_comes() -> None:
    whole = table(
        age=[61, 47, 900, 50, None, 70],
        sex=["female", b"", "male", "nobody", "male", None],
        lactate=["high", 1, math.inf, 2, 3, 4],
        ward=["1"] * 6,
        stay=[1, 2, 3, None, -4, 5],
        id=["a", None, "c", "d", "e", "f"],
    )

    def said(pieces: list[dict[str, Any]]) -> str:
        with pytest.raises(TableRefused) as raised:
            list(read_in_pieces(SCHEMA, pieces))
        return str(raised.value)

    expected = said([whole])
    assert expected.count("of 6 cells") == 10
    for rows in (1, 2, 4):
        starts = range(0, 6, rows)
        assert said([{n: c[i : i + rows] for n, c in whole.items()} for i in starts]) == expected


def test_a_refusal_prints_levels_of_the_schema_and_few_rows() -> None:
    n = 1000
    many = Schema(
        (Categorical("code", tuple(f"c{i}" for i in range(500))),),
        (Target("y", "1"),),
    )
    (problem,) = refusal({"code": ["q"] * n, "y": [0] * n}, many)
    assert "'c0', 'c1'" in str(problem)
    assert "rows 0, 1, 2 …, counted from 0" in str(problem)
    assert len(str(problem)) < 400


MARKERS = ["SECRET-4711", 471147114711.5, -471147114711, b"SECRET-4711", ["SECRET-4711"], "", None]


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from([*TABLE]),
    cells=st.lists(st.sampled_from(MARKERS), min_size=1, max_size=4),
    training=st.booleans(),
)
def test_no_cell_is_ever_quoted(name: str, cells: list[Any], training: bool) -> None:
    read = Records.for_training if training else Records.for_prediction
    try:
        records = read(SCHEMA, table(**{name: cells}))
    except TableRefused as error:
        told = "".join(traceback.format_exception(error)) + repr(error) + repr(error.problems)
    else:
        told = repr(records) + str(records)
    assert "SECRET" not in told
    assert "4711" not in told


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.lists(st.integers(), max_size=2),
    st.datetimes(),
    st.complex_numbers(),
    st.sampled_from([np.float32(1), np.int8(1), np.str_("male"), np.bool_(1)]),
)


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from([*TABLE]), cells=st.lists(CELLS, min_size=3, max_size=3))
def test_no_table_fails_otherwise_than_by_name(name: str, cells: list[Any]) -> None:
    try:
        records = Records.for_training(SCHEMA, table(**{name: cells}))
    except TableRefused:
        return
    assert records.numeric.isfinite().all()
    assert records.targets is not None
    assert records.targets.isfinite().all()


BAD_CELLS = [
    ("age", None),
    ("age", "old"),
    ("age", math.inf),
    ("sex", "unknown"),
    ("sex", None),
    ("stay", True),
    ("id", None),
    ("id", b"1"),
]
"""Cells that cause their row to be left out with differential privacy."""


@pytest.mark.parametrize(("name", "cell"), BAD_CELLS)
def test_row_by_row_a_bad_cell_takes_its_own_row_and_no_other(name: str, cell: object) -> None:
    found = RowByRow()
    bad = table(**{name: [TABLE[name][0], cell, TABLE[name][2]]})
    (records,) = read_in_pieces(SCHEMA, [bad], problems=found)
    expected = Records.for_training(SCHEMA, TABLE).take(torch.tensor([True, False, True]))
    assert (found.left_out, found.clipped) == (1, 0)
    for part in ("numeric", "missing", "levels", "targets"):
        assert torch.equal(getattr(records, part), getattr(expected, part)), part
    assert records.patients == expected.patients


def test_row_by_row_numbers_out_of_bounds_are_clipped_to_them() -> None:
    found = RowByRow()
    wide = table(age=[-1, 47.5, 147], stay=[3, -2.0, 7])
    (records,) = read_in_pieces(SCHEMA, [wide], problems=found)
    assert (found.left_out, found.clipped) == (0, 3)
    assert records.targets is not None
    assert records.numeric[:, 0].tolist() == [0.0, 47.5, 120.0]
    assert records.targets[:, 0].tolist() == [3.0, 0.0, 7.0]
    assert not records.outside.any()


def test_row_by_row_a_table_may_have_no_rows_and_must_have_its_columns() -> None:
    nothing: list[list[dict[str, Any]]] = [[], [{name: [] for name in TABLE}]]
    for pieces in nothing:
        (records,) = read_in_pieces(SCHEMA, pieces, problems=RowByRow())
        assert len(records) == 0
    (records,) = read_in_pieces(SCHEMA, [table(sex=["x", "y", "z"])], problems=RowByRow())
    assert len(records) == 0
    without = {name: cells for name, cells in TABLE.items() if name != "age"}
    with pytest.raises(TableRefused, match="it is not in the table"):
        list(read_in_pieces(SCHEMA, [without], problems=RowByRow()))
    with pytest.raises(TableRefused, match="rows, and most columns have"):
        list(read_in_pieces(SCHEMA, [table(age=[1, None], sex=[None] * 3)], problems=RowByRow()))
