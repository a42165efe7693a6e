"""A schema object is valid and survives JSON; a wrong one is refused with all its problems."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.errors import (
    DuplicateName,
    NewerSchema,
    NothingToLearn,
    SchemaError,
    SchemaRefused,
    WrongBounds,
    WrongField,
    WrongLevels,
)
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import Target

AGE = Numeric("age", unit="a", lower=0, upper=120)
SEX = Categorical("sex", levels=("female", "male"), may_be_missing=True)
STAY = Target("stay", unit="d", lower=0)
SCHEMA = Schema((AGE, SEX), (STAY,), patient="id")


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    number = st.floats(-1e6, 1e6)
    names = draw(
        st.lists(st.text(min_size=1, max_size=6).filter(str.strip), min_size=4, unique=True)
    )

    def bounds() -> dict[str, float | None]:
        lower, upper = sorted(draw(st.tuples(number, number)))
        return {
            "lower": lower if draw(st.booleans()) else None,
            "upper": upper + 1 if draw(st.booleans()) else None,
        }

    features: list[Numeric | Categorical] = []
    for name in names[2:]:
        missing = draw(st.booleans())
        if draw(st.booleans()):
            features.append(Numeric(f"{name}#", "mg", may_be_missing=missing, **bounds()))
        else:
            levels = tuple(draw(st.lists(st.sampled_from("abcdé"), min_size=1, unique=True)))
            other = draw(st.sampled_from([None, *levels]))
            features.append(Categorical(f"{name}#", levels, other, missing))
    patient = draw(st.sampled_from([None, "patient"]))
    return Schema(tuple(features), (Target("y", "1", **bounds()), Target("z", "s")), patient)


def refused(*args: Any, **kwargs: Any) -> list[type[SchemaError]]:
    with pytest.raises(SchemaRefused) as raised:
        Schema(*args, **kwargs)
    return [type(problem) for problem in raised.value.problems]


def refused_document(document: object) -> list[SchemaError]:
    with pytest.raises(SchemaRefused) as raised:
        Schema.from_json(json.dumps(document))
    return list(raised.value.problems)


@settings(max_examples=60, deadline=None)
@given(schema=schemas())
def test_a_schema_survives_json(schema: Schema) -> None:
    again = Schema.from_json(schema.to_json())
    assert again == schema
    assert hash(again) == hash(schema)
    assert again.to_json() == schema.to_json()


def test_equal_schemas_give_equal_text() -> None:
    whole = Schema((Numeric("age", "a", 0, 120),), (STAY,))
    real = Schema((Numeric("age", "a", 0.0, 120.0),), (STAY,))
    assert whole == real
    assert whole.to_json() == real.to_json()


def test_fields_with_a_default_may_be_left_out() -> None:
    document = {
        "version": 1,
        "features": [{"kind": "numeric", "name": "age", "unit": "a"}],
        "targets": [{"name": "stay", "unit": "d"}],
    }
    assert Schema.from_json(json.dumps(document)) == Schema(
        (Numeric("age", "a"),), (Target("stay", "d"),)
    )


def test_features_are_named_in_schema_order() -> None:
    pressure = Numeric("pressure", "mmHg", may_be_missing=True)
    assert Schema((SEX, pressure, AGE), (STAY,)).feature_names == (
        "sex=female",
        "sex=male",
        "sex is missing",
        "pressure",
        "pressure is missing",
        "age",
    )


@pytest.mark.parametrize(
    ("features", "targets", "patient", "problems"),
    [
        ((AGE, AGE), (STAY,), None, [DuplicateName]),
        ((AGE,), (Target("age", "a"),), None, [DuplicateName]),
        ((AGE,), (STAY,), "age", [DuplicateName]),
        ((AGE,), (STAY,), "stay", [DuplicateName]),
        ((SEX, Numeric("sex=male", "1")), (STAY,), None, [DuplicateName]),
        ((), (STAY,), None, [NothingToLearn]),
        ((AGE,), (), None, [NothingToLearn]),
        ((Numeric("", "a"),), (STAY,), None, [WrongField]),
        ((Numeric("age", " "),), (STAY,), None, [WrongField]),
        ((AGE,), (STAY,), "", [WrongField]),
        ((Numeric("age", "a", 120, 0),), (STAY,), None, [WrongBounds]),
        ((Numeric("age", "a", 1, 1),), (STAY,), None, [WrongBounds]),
        ((Numeric("age", "a", math.nan),), (STAY,), None, [WrongBounds]),
        ((AGE,), (Target("stay", "d", upper=math.inf),), None, [WrongBounds]),
        ((AGE,), (Target("stay", "d", upper=10**400),), None, [WrongBounds]),
        ((AGE,), (Target("stay", "d", lower=True),), None, [WrongBounds]),
        ((Categorical("sex", ()),), (STAY,), None, [WrongLevels]),
        ((Categorical("sex", ("f", "")),), (STAY,), None, [WrongLevels]),
        ((Categorical("sex", ("f", "f")),), (STAY,), None, [WrongLevels]),
        ((Categorical("sex", ("f",), other="x"),), (STAY,), None, [WrongLevels]),
        (
            (Numeric("a", "", 2, 1), Categorical("a", ())),
            (),
            3,
            [WrongField, WrongBounds, WrongLevels, WrongField, DuplicateName, NothingToLearn],
        ),
    ],
)
def test_a_wrong_schema_is_refused_with_every_problem(
    features: Any, targets: Any, patient: Any, problems: list[type[SchemaError]]
) -> None:
    assert refused(features, targets, patient) == problems


@pytest.mark.parametrize(
    "columns", [([AGE], (STAY,)), (None, (STAY,)), ((STAY,), (STAY,)), ((AGE,), (AGE,))]
)
def test_columns_of_the_wrong_python_type_are_refused(columns: Any) -> None:
    assert refused(*columns) == [WrongField]


def test_a_refusal_prints_every_problem_with_its_column() -> None:
    with pytest.raises(SchemaRefused) as raised:
        Schema((Numeric("age", "a", 3, 1), Categorical("sex", ())), (STAY,))
    assert "'age': lower must be below upper, but they are 3 and 1" in str(raised.value)
    assert "'sex': levels" in str(raised.value)
    assert raised.value.code == "schema.refused"


def edited(*path: Any, value: Any) -> dict[str, Any]:
    """Return SCHEMA's document with the entry at `path` replaced."""
    document: Any = json.loads(SCHEMA.to_json())
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("document", "error", "mentions"),
    [
        ([], WrongField, "the schema must be an object"),
        ({}, WrongField, "lacks the field 'version'"),
        (edited("colour", value="red"), WrongField, "unknown field 'colour'"),
        (edited("version", value="1"), WrongField, "version must be 1"),
        (edited("version", value=True), WrongField, "version must be 1"),
        (edited("version", value=0), WrongField, "version must be 1"),
        (edited("features", value={}), WrongField, "features must be a list"),
        (edited("features", 0, value="age"), WrongField, "features[0] must be an object"),
        (edited("features", 0, "kind", value="image"), WrongField, "numeric, categorical"),
        (edited("features", 0, "kind", value=[]), WrongField, "numeric, categorical"),
        (edited("features", 0, "maximum", value=9), WrongField, "unknown field 'maximum'"),
        (edited("features", 0, "name", value={}), WrongField, "name must be text"),
        (edited("features", 0, "lower", value="0"), WrongBounds, "finite numbers"),
        (
            edited("features", 1, "levels", value="fm"),
            WrongLevels,
            "must be a list of at least one text",
        ),
        (
            edited("features", 1, "levels", value=[1, 2]),
            WrongLevels,
            "must be a list of at least one text",
        ),
        (edited("features", 1, "other", value={}), WrongLevels, "one of the levels"),
        (edited("features", 1, "may_be_missing", value=1), WrongField, "true or false"),
        (edited("targets", value=None), WrongField, "targets must be a list"),
        (
            edited("targets", 0, value={"name": "stay"}),
            WrongField,
            "targets[0] lacks the field 'unit'",
        ),
        (edited("targets", 0, "may_be_missing", value=True), WrongField, "unknown field"),
        (edited("patient", value=["id"]), WrongField, "patient must be the name"),
    ],
)
def test_a_wrong_document_is_refused_by_name(
    document: object, error: type[SchemaError], mentions: str
) -> None:
    assert any(type(p) is error and mentions in str(p) for p in refused_document(document))


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"version": 1, "version": 1}'])
def test_what_is_no_json_is_refused_by_name(text: str) -> None:
    with pytest.raises(SchemaRefused, match="is not valid JSON") as raised:
        Schema.from_json(text)
    assert [type(problem) for problem in raised.value.problems] == [WrongField]


def test_problems_of_fields_and_of_columns_are_reported_together() -> None:
    document = edited("features", 0, "colour", value="red")
    document["features"][1]["levels"] = []
    document["targets"][0]["unit"] = None
    assert [type(p) for p in refused_document(document)] == [WrongField, WrongLevels, WrongField]


def test_a_newer_schema_says_to_upgrade() -> None:
    with pytest.raises(NewerSchema, match="upgrade veilgp"):
        Schema.from_json('{"version": 2, "columns": "of a shape not thought of yet"}')


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(value=JSON, path=st.sampled_from(["version", "features", "targets", "patient", "column"]))
def test_no_document_fails_otherwise_than_by_name(value: Any, path: str) -> None:
    if path == "column":
        document = edited(
            "features", 1, value={"kind": "categorical", "name": value, "levels": value}
        )
    else:
        document = edited(path, value=value)
    try:
        schema = Schema.from_json(json.dumps(document))
    except SchemaError:
        return
    assert Schema.from_json(schema.to_json()) == schema
