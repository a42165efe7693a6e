"""Drafts of several sites become one schema, or their conflicts are named together."""

from dataclasses import replace
from typing import Any

import pytest

from client_sdk.errors import SchemasDiffer
from client_sdk.tables.draft import draft
from client_sdk.tables.merge import merge_schemas
from kernels.tables.schema import Categorical, Feature, Numeric, Schema
from kernels.tables.targets import AnyTarget, Binary, Classes, Count, Target, TimeToEvent

AGE = Numeric("age", "a", 18, 90)
WARD = Categorical("ward", ("a", "b"))
STAY = Target("stay", "d", 0, 60)
DEAD = Binary("dead", ("no", "yes"), event="yes")
VISITS = Count("visits", "visits", upper=20, exposure="years")
TIME = TimeToEvent("t", "d", "died", horizon=90)


def _merged(*columns: Any, **more: Any) -> Schema:
    """Merge schemas of one column each, beside what all have."""
    return merge_schemas(
        {f"{n}.json": _schema(own) for n, own in enumerate(columns)}, **more
    ).schema


def _schema(column: Feature | AnyTarget) -> Schema:
    if isinstance(column, Numeric | Categorical):
        return Schema((Numeric("height", "cm"), column), (STAY,))
    return Schema((AGE,), (column,))


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (AGE, replace(AGE, lower=0, upper=80), replace(AGE, lower=0)),
        (AGE, replace(AGE, upper=None), replace(AGE, upper=None)),
        (AGE, replace(AGE, unit="?"), AGE),
        (AGE, replace(AGE, may_be_missing=True), replace(AGE, may_be_missing=True)),
        (
            replace(AGE, may_be_missing=True, missing_codes=(0.0,)),
            replace(AGE, may_be_missing=True, missing_codes=(999.0, 0.0)),
            replace(AGE, may_be_missing=True, missing_codes=(0.0, 999.0)),
        ),
        (WARD, replace(WARD, levels=("b", "c")), replace(WARD, levels=("a", "b", "c"))),
        (
            replace(WARD, levels=("low", "high")),
            replace(WARD, levels=("high", "none")),
            replace(WARD, levels=("low", "high", "none")),
        ),
        (
            replace(WARD, levels=("1", "2")),
            replace(WARD, levels=("1.0", "3")),
            replace(WARD, levels=("1", "2", "3")),
        ),
        (WARD, replace(WARD, other="b"), replace(WARD, other="b")),
        (STAY, replace(STAY, lower=-1, upper=None), replace(STAY, lower=-1, upper=None)),
        (DEAD, DEAD, DEAD),
        (
            Classes("g", ("1", "2", "3")),
            Classes("g", ("1", "2", "4")),
            Classes("g", ("1", "2", "3", "4")),
        ),
        (VISITS, replace(VISITS, upper=50.0), replace(VISITS, upper=50.0)),
        (
            TIME,
            replace(TIME, unit="?", missing_codes=(-1.0,)),
            replace(TIME, missing_codes=(-1.0,)),
        ),
    ],
)
def test_columns_are_united_widened_and_may_be_missing(one: Any, other: Any, both: Any) -> None:
    schema = _merged(one, other)
    assert both in (*schema.features, *schema.targets)
    assert _merged(one) == _schema(one)


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        (AGE, replace(AGE, unit="months"), "its unit differs ('a' in 0.json, 'months' in 1.json)"),
        (AGE, Categorical("age", ("old",)), "'numeric' in 0.json, 'categorical' in 1.json"),
        (replace(WARD, other="a"), replace(WARD, other="b"), "its other differs"),
        (DEAD, replace(DEAD, event="no"), "its event differs"),
        (DEAD, replace(DEAD, levels=("maybe", "yes")), "more than two levels"),
        (DEAD, Classes("dead", ("no", "yes", "?")), "'binary' in 0.json, 'classes' in 1.json"),
        (STAY, DEAD, "1.json does not have it as a target"),
        (VISITS, replace(VISITS, exposure=None), "its exposure differs"),
        (TIME, replace(TIME, horizon=30), "its horizon differs"),
        (TIME, replace(TIME, happened="yes", censored="no"), "its happened differs"),
        (
            replace(WARD, may_be_missing=True, missing_codes=("9",)),
            replace(WARD, levels=("9", "a")),
            "'9' is both a level and a missing code",
        ),
    ],
)
def test_conflicts_are_named(one: Any, other: Any, says: str) -> None:
    with pytest.raises(SchemasDiffer) as raised:
        _merged(one, other)
    assert says in str(raised.value)
    assert repr(one.name) in str(raised.value)


def test_all_conflicts_are_named_together() -> None:
    schemas = {
        "a": Schema((AGE, WARD), (STAY,), patient="id"),
        "b": Schema((replace(AGE, unit="m"), Numeric("ward", "1")), (replace(STAY, unit="h"),)),
    }
    with pytest.raises(SchemasDiffer) as raised:
        merge_schemas(schemas, drop=["note"])
    for said in ("'age': its unit", "'ward': its kind", "'stay': its unit", "patient", "'note'"):
        assert said in str(raised.value)
    assert str(raised.value).count("\n") == 5


def test_a_column_that_one_site_lacks_is_kept_and_may_be_missing_unless_it_is_dropped() -> None:
    schemas = {"a": Schema((AGE, WARD), (STAY,)), "b": Schema((AGE,), (STAY,))}
    merged = merge_schemas(schemas)
    assert merged.schema.features == (AGE, replace(WARD, may_be_missing=True))
    assert any("'ward': b does not have it; it is kept" in said for said in merged.advice)
    assert merge_schemas(schemas, drop=["ward"]).schema.features == (AGE,)


def test_bounds_that_are_still_open_somewhere_are_named() -> None:
    merged = merge_schemas({"a": _schema(AGE), "b": _schema(replace(AGE, lower=None))})
    assert "column 'age': lower is open, as it is in b" in merged.advice


def test_units_that_no_site_has_written_are_named() -> None:
    nobody, target = replace(AGE, unit="?"), replace(STAY, unit="?")
    height = Numeric("height", "cm")
    schemas = {
        "a": Schema((nobody, height), (target,)),
        "b": Schema((nobody, replace(height, unit="?")), (target,)),
    }
    (said,) = merge_schemas(schemas).advice
    assert said.startswith("no site has written the unit of 'age', 'stay': write it")
    written = {**schemas, "c": Schema((AGE, height), (STAY,))}
    assert merge_schemas(written).advice == (), "one site's unit counts for all"


def test_drafts_of_tables_are_merged_in_any_order() -> None:
    tables = [
        {"ward": ["a", "b"] * 20, "ca": [1.5, None] * 20, "y": [0, 1] * 20},
        {"ward": ["b", "c"] * 20, "ca": [None] * 40, "y": [1, 0] * 20},
    ]
    drafts = [draft(table, targets=["y"], drop=[]).schema for table in tables]
    one = merge_schemas({"a": drafts[0], "b": drafts[1]}).schema
    other = merge_schemas({"b": drafts[1], "a": drafts[0]}).schema
    assert {*one.features} == {*other.features}
    assert one.categorical[0].levels == ("a", "b", "c")


def test_nothing_is_not_merged() -> None:
    with pytest.raises(SchemasDiffer, match="no schemas"):
        merge_schemas({})
