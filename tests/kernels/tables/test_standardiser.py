"""Moments of any split add up to the pooled ones, and standardise like those of one table."""

import json
import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.errors import (
    EmptyTable,
    NewerStandardiser,
    NotFinite,
    StandardiserError,
    StatisticsError,
    WrongShape,
)
from kernels.tables.curves import Curve
from kernels.tables.moments import Moments
from kernels.tables.records import Records
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.standardiser import CLIP, Rows, Scale, Shares, Standardiser
from kernels.tables.targets import Target

SCHEMA = Schema(
    features=(
        Numeric("age", "a", lower=0, upper=120),
        Categorical("ward", ("A", "B", "C"), may_be_missing=True),
        Numeric("lactate", "mmol/L", lower=0, may_be_missing=True),
    ),
    targets=(Target("stay", "d"), Target("cost", "EUR", 0, 1e6)),
    patient="id",
)

Table = dict[str, list[Any]]


@st.composite
def tables(draw: st.DrawFn) -> Table:
    n = draw(st.integers(1, 25))

    def column(cells: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(cells, min_size=n, max_size=n))

    return {
        "age": column(st.floats(0, 120)),
        "ward": column(st.sampled_from(["A", "B", "C", None])),
        "lactate": column(st.none() | st.floats(0, 20)),
        "stay": column(st.floats(-50, 50)),
        "cost": column(st.floats(0, 1e6)),
        "id": [f"p{row}" for row in range(n)],
    }


TABLE: Table = {
    "age": [20, 40, 60, 80],
    "ward": ["A", "A", None, "B"],
    "lactate": [1.0, None, 3.0, 5.0],
    "stay": [1, 2, 3, 4],
    "cost": [0, 2e5, 4e5, 1e6],
    "id": ["p", "p", "q", "r"],
}


CURVE = {"name": "age", "at": [-1, 0.5, 2], "to": [-3, 0, 0.25]}


def read(table: Table, schema: Schema = SCHEMA) -> Records:
    return Records.for_training(schema, table)


def fitted(table: Table, schema: Schema = SCHEMA) -> Standardiser:
    return Standardiser.of(schema, Moments.of(read(table, schema)))


def standardised(table: Table, schema: Schema = SCHEMA) -> Rows:
    return fitted(table, schema).apply(read(table, schema))


def of_rows(table: Table, rows: list[int]) -> Table:
    return {name: [column[row] for row in rows] for name, column in table.items()}


def assert_equal(a: Moments, b: Moments) -> None:
    for f in fields(Moments):
        torch.testing.assert_close(getattr(a, f.name), getattr(b, f.name), rtol=1e-12, atol=1e-9)


@settings(max_examples=50, deadline=None)
@given(table=tables(), data=st.data())
def test_moments_of_any_split_add_up_to_the_pooled_moments(
    table: Table, data: st.DataObject
) -> None:
    n = len(table["id"])
    site = data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    total = Moments.zero(SCHEMA)
    for one in set(site):
        total = total + Moments.of(read(of_rows(table, [r for r in range(n) if site[r] == one])))
    assert_equal(total, Moments.of(read(table)))


@settings(max_examples=50, deadline=None)
@given(table=tables(), data=st.data())
def test_the_order_of_rows_does_not_matter(table: Table, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(table["id"]))))
    assert_equal(Moments.of(read(of_rows(table, order))), Moments.of(read(table)))
    # One standardiser for both, so that the rows can be compared to the last bit.
    standardiser = fitted(table)
    shuffled = standardiser.apply(read(of_rows(table, order)))
    rows = standardiser.apply(read(table))
    assert torch.equal(shuffled.features, rows.features[list(order)])


@settings(max_examples=50, deadline=None)
@given(table=tables())
def test_means_and_deviations_are_those_of_the_cells_that_are_there(table: Table) -> None:
    standardiser = fitted(table)
    for column in (*standardiser.numeric, *standardiser.targets):
        cells = np.array([x for x in table[column.name] if x is not None], float)
        if not len(cells):
            continue
        magnitude = {"age": 60, "cost": 5e5}.get(column.name, math.sqrt(np.mean(cells**2)))
        assert column.mean == pytest.approx(cells.mean(), rel=1e-12, abs=1e-12 * magnitude)
        if cells.std() > max(1e-4 * magnitude, 1e-100):  # squares of smaller ones underflow
            assert column.scale == pytest.approx(cells.std(), rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(table=tables())
def test_rows_are_finite_clipped_and_named(table: Table) -> None:
    rows = standardised(table)
    assert rows.features.dtype == torch.float64
    assert rows.features.isfinite().all()
    assert rows.features.abs().max() <= CLIP
    assert rows.features.shape == (len(rows), len(rows.feature_names))
    assert rows.feature_names == SCHEMA.feature_names


@settings(max_examples=50, deadline=None)
@given(table=tables())
def test_a_standardiser_survives_json_to_the_last_bit(table: Table) -> None:
    standardiser = fitted(table)
    assert Standardiser.from_json(standardiser.to_json()) == standardiser


def test_rows_are_standardised_imputed_and_laid_out_in_schema_order() -> None:
    rows = standardised(TABLE)
    assert rows.feature_names == (
        "age",
        "ward=A",
        "ward=B",
        "ward=C",
        "ward is missing",
        "lactate",
        "lactate is missing",
    )
    z = (np.array([20, 40, 60, 80]) - 50) / np.sqrt(500)
    w = 2 / np.sqrt(8 / 3)
    expected = [
        [z[0], 1, 0, 0, 0, -w, 0],
        [z[1], 1, 0, 0, 0, 0, 1],
        [z[2], 2 / 3, 1 / 3, 0, 1, 0, 0],
        [z[3], 0, 1, 0, 0, w, 0],
    ]
    np.testing.assert_allclose(rows.features, expected, atol=1e-12)
    assert rows.targets is not None
    np.testing.assert_allclose(rows.targets.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(rows.targets.std(0, correction=0), 1, rtol=1e-12)
    assert rows.patients == ("p", "p", "q", "r")


def test_prediction_rows_use_the_training_scale_and_flag_what_is_outside() -> None:
    records = Records.for_prediction(SCHEMA, of_rows({**TABLE, "age": [50, 500, 50, 50]}, [0, 1]))
    rows = fitted(TABLE).apply(records)
    assert rows.features[:, 0].tolist() == [0, CLIP]
    assert rows.outside.tolist() == [[False, False], [True, False]]
    assert rows.targets is None


def test_a_curve_moves_its_own_column_before_the_clip_and_no_other() -> None:
    straight = fitted(TABLE)
    curve = Curve("lactate", (-1.0, 0.5, 2.0), (-30.0, 0.0, 0.25))
    curved = replace(straight, curves=(curve,))
    rows, moved = (each.apply(read(TABLE)).features for each in (straight, curved))
    there = [0, 2, 3]
    assert torch.equal(moved[there, 5], curve.apply(rows[there, 5]).clamp(-CLIP, CLIP))
    assert moved[:2, 5].tolist() == [-CLIP, 0.0], "clipped, and imputed with the middle"
    others = [0, 1, 2, 3, 4, 6]
    assert torch.equal(moved[:, others], rows[:, others])
    assert Standardiser.from_json(curved.to_json()) == curved


def test_a_curve_of_a_target_or_of_an_unknown_column_is_refused() -> None:
    straight = fitted(TABLE)
    for name in ("stay", "ward", "height"):
        with pytest.raises(StandardiserError, match="of different numeric features"):
            replace(straight, curves=(Curve(name, (0.0, 1.0), (0.0, 1.0)),))
    wrong: Any = [Curve("age", (0.0, 1.0), (0.0, 1.0))]
    with pytest.raises(StandardiserError, match="a tuple of Curve"):
        replace(straight, curves=wrong)


def test_targets_are_not_clipped() -> None:
    table = of_rows(TABLE, [0] * 99 + [3])
    rows = standardised(table)
    assert rows.targets is not None
    assert rows.targets.max() > CLIP


def test_predictions_return_to_the_units_of_the_targets() -> None:
    standardiser, rows = fitted(TABLE), standardised(TABLE)
    assert rows.targets is not None
    mean, variance = standardiser.in_units(rows.targets, torch.ones_like(rows.targets))
    np.testing.assert_allclose(mean[:, 0], TABLE["stay"], rtol=1e-12)
    np.testing.assert_allclose(mean[:, 1], TABLE["cost"], atol=1e-9)
    np.testing.assert_allclose(variance[0], [np.var(TABLE["stay"]), np.var(TABLE["cost"])])
    with pytest.raises(WrongShape, match=r"shape \(n, 2\)"):
        standardiser.in_units(torch.zeros(2), torch.ones(2))


def numeric(values: list[float | None], **column: Any) -> Scale:
    """Return the scale of a single numeric column with these cells."""
    schema = Schema((Numeric("x", "1", may_be_missing=True, **column),), (Target("y", "1"),))
    return fitted({"x": values, "y": [0.0] * len(values)}, schema).numeric[0]


@pytest.mark.parametrize("bounds", [{}, {"lower": -10}, {"lower": -1000, "upper": 3000}])
@pytest.mark.parametrize("value", [0.0, 0.1, 37.2, -9.99])
def test_a_column_that_does_not_vary_has_scale_1(value: float, bounds: dict[str, float]) -> None:
    column = numeric([value] * 7 + [None], **bounds)
    assert column.mean == pytest.approx(value, abs=1e-9)
    assert column.scale == 1


def test_a_column_without_any_cell_is_all_zeros_and_indicators() -> None:
    schema = Schema(
        (
            Numeric("x", "1", 2, 6, may_be_missing=True),
            Categorical("c", ("a", "b"), may_be_missing=True),
        ),
        (Target("y", "1"),),
    )
    table: Table = {"x": [None, None], "c": [None, None], "y": [1, 2]}
    standardiser = fitted(table, schema)
    assert standardiser.numeric[0].mean == 4
    assert standardised(table, schema).features.tolist() == [[0, 1, 0.5, 0.5, 1]] * 2
    # Nobody knows what a value of it means, so every value is as good as the mean.
    later = Records.for_prediction(schema, {"x": [2, 1e6], "c": ["a", None]})
    assert standardiser.apply(later).features[:, 0].abs().max() < 1e-6


def test_a_column_without_any_cell_has_a_finite_scale_whatever_its_bounds() -> None:
    for lower, upper in ((None, None), (0, None), (-1e308, 1e308), (0, 1e-300)):
        schema = Schema(
            (Numeric("x", "1", lower, upper, may_be_missing=True),), (Target("y", "1"),)
        )
        assert math.isfinite(fitted({"x": [None], "y": [1]}, schema).numeric[0].scale)


def test_bounds_save_the_digits_of_a_column_far_from_zero() -> None:
    values: list[float | None] = [1e9 + 0.1 * i for i in range(100)]
    bounded = numeric(values, lower=1e9 - 50, upper=1e9 + 50)
    assert bounded.scale == pytest.approx(np.std(np.arange(100) * 0.1), rel=1e-6)
    # Without bounds the digits are lost; the scale is then too large, but never so small it clips.
    assert numeric(values).scale >= bounded.scale


def test_small_units_without_bounds_are_no_constants() -> None:
    assert numeric([1e-9, 3e-9]).scale == pytest.approx(1e-9, rel=1e-6)


@pytest.mark.parametrize("value", [3.3, *(5 + 0.0007 * k for k in range(1, 8))])
def test_rounding_of_the_secure_sum_makes_no_scale_of_a_constant(value: float) -> None:
    # Near the middle of the bounds u² is smaller than the fixed-point step, so the step matters.
    schema = Schema((Numeric("x", "1", 0, 10),), (Target("y", "1"),))
    exact = Moments.of(read({"x": [value] * 3, "y": [0.0] * 3}, schema))
    step = 2.0**-40
    rounded = Moments(*((getattr(exact, f.name) / step).round() * step for f in fields(Moments)))
    assert Standardiser.of(schema, rounded).numeric[0].scale == 1


def test_rows_never_print_a_cell() -> None:
    rows = standardised(TABLE)
    assert repr(rows) == "Rows(4 rows of 7 features)"


def test_moments_need_targets_and_one_schema() -> None:
    with pytest.raises(WrongShape, match="were read for prediction"):
        Moments.of(Records.for_prediction(SCHEMA, TABLE))
    other = Schema((Numeric("age", "a"),), (Target("stay", "d"),))
    with pytest.raises(WrongShape, match="same schema"):
        Moments.zero(SCHEMA) + Moments.zero(other)
    with pytest.raises(WrongShape, match="another schema"):
        Standardiser.of(other, Moments.of(read(TABLE)))


def test_squares_that_overflow_are_refused_by_column() -> None:
    with pytest.raises(NotFinite, match="column 'stay'"):
        Moments.of(read({**TABLE, "stay": [1e200, 0, 0, 0]}))


def test_moments_of_no_rows_standardise_nothing() -> None:
    with pytest.raises(EmptyTable):
        Standardiser.of(SCHEMA, Moments.zero(SCHEMA))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sums", math.nan),
        ("target_squares", math.inf),
        ("squares", -1.0),
        ("rows", -1.0),
        ("missing", 5.0),
        ("levels", 5.0),
    ],
)
def test_moments_of_no_possible_table_are_refused(field: str, value: float) -> None:
    moments = Moments.of(read(TABLE))
    sums = {f.name: getattr(moments, f.name) for f in fields(Moments)}
    sums[field] = torch.full_like(sums[field], value)
    with pytest.raises(StatisticsError):
        Standardiser.of(SCHEMA, Moments(**sums))


def test_a_standardiser_of_another_schema_is_refused() -> None:
    records = read(TABLE)
    right = fitted(TABLE)
    wrong = [
        Standardiser(right.numeric[::-1], right.categorical, right.targets),
        Standardiser(right.numeric, (), right.targets),
        Standardiser(right.numeric, (Shares("ward", (0.5, 0.5)),), right.targets),
        Standardiser(right.numeric, right.categorical, right.targets[:1]),
    ]
    for standardiser in wrong:
        with pytest.raises(
            StandardiserError, match="the columns of this standardiser, or their order, differ"
        ):
            standardiser.apply(records)


@pytest.mark.parametrize(
    ("change", "mentions"),
    [
        ({"version": 0}, "version must be 2"),
        ({"version": True}, "version must be 2"),
        ({"colour": 1}, "unknown field 'colour'"),
        ({"numeric": 3}, "numeric must be a list"),
        ({"numeric": [{"name": "age", "mean": 1}]}, "lacks the field 'scale'"),
        ({"numeric": [{"name": "age", "mean": 1, "scale": 0}]}, "positive finite scale"),
        ({"numeric": [{"name": "age", "mean": 1, "scale": True}]}, "positive finite scale"),
        ({"numeric": [{"name": "age", "mean": "1", "scale": 1}]}, "finite mean"),
        ({"targets": [{"name": "age", "mean": math.nan, "scale": 1}]}, "finite mean"),
        ({"targets": [{"name": "age", "mean": 10**400, "scale": 1}]}, "finite mean"),
        ({"categorical": [{"name": "ward", "shares": [0.5, 1.5]}]}, "between 0 and 1"),
        ({"categorical": [{"name": "ward", "shares": "ab"}]}, "between 0 and 1"),
        ({"categorical": [[]]}, "categorical[0] must be an object"),
        ({"curves": [{"name": "age", "at": [0, 0], "to": [0, 1]}]}, "knots and values"),
        ({"curves": [{"name": "age", "at": [0, 1]}]}, "lacks the field 'to'"),
        ({"curves": [CURVE, CURVE]}, "of different numeric features"),
        ({"curves": [{**CURVE, "name": "stay"}]}, "of different numeric features"),
        ({"curves": {}}, "curves must be a list"),
    ],
)
def test_a_wrong_document_is_refused_by_name(change: dict[str, object], mentions: str) -> None:
    with pytest.raises(StandardiserError) as raised:
        Standardiser.from_json(json.dumps({**json.loads(fitted(TABLE).to_json()), **change}))
    assert mentions in str(raised.value)


def test_what_is_no_document_is_refused_and_a_newer_one_says_to_upgrade() -> None:
    for text in ("", "null", "[]", "{}"):
        with pytest.raises(StandardiserError):
            Standardiser.from_json(text)
    with pytest.raises(NewerStandardiser, match="upgrade veilgp"):
        Standardiser.from_json('{"version": 3}')
