"""Targets of every kind: valid ones survive JSON, wrong ones are refused by name."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.errors import (
    DuplicateName,
    SchemaError,
    SchemaRefused,
    WrongBounds,
    WrongField,
    WrongLevels,
)
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import (
    LARGEST_COUNT,
    MOST_CLASSES,
    MOST_EDGES,
    TARGET_KINDS,
    TIMES,
    AnyTarget,
    Binary,
    Classes,
    Count,
    Target,
    TimeToEvent,
    kind_of,
)

ROOT = Path(__file__).parents[3]
AGE = Numeric("age", "a", 0, 120)
STAY = Target("stay", "d", 0, 60)
READMITTED = Binary("readmitted", ("no", "yes"), event="yes")
DIAGNOSIS = Classes("diagnosis", ("stroke", "sepsis", "other"))
VISITS = Count("visits", "visits", upper=50, exposure="years")
DEATH = TimeToEvent("days", "d", event="died", horizon=90)
EVERY_KIND = (STAY, READMITTED, DIAGNOSIS, VISITS, DEATH)


def _refused(target: AnyTarget) -> list[type[SchemaError]]:
    with pytest.raises(SchemaRefused) as raised:
        Schema((AGE,), (target,))
    assert all(repr(target.name) in str(problem) for problem in raised.value.problems)
    return [type(problem) for problem in raised.value.problems]


def test_a_schema_with_targets_of_every_kind_survives_json() -> None:
    schema = Schema((AGE,), EVERY_KIND, patient="who")
    again = Schema.from_json(schema.to_json())
    assert again == schema
    assert hash(again) == hash(schema)
    assert again.to_json() == schema.to_json()
    assert [kind_of(target) for target in schema.targets] == [*TARGET_KINDS]
    assert schema.real == (STAY,)
    assert schema.outcomes == EVERY_KIND[1:]


def test_the_columns_of_a_schema_include_exposures_and_events() -> None:
    schema = Schema((AGE,), EVERY_KIND, patient="who")
    named = ("age", "stay", "readmitted", "diagnosis", "visits", "years", "days", "died", "who")
    assert schema.columns == named


def test_a_target_without_a_kind_is_a_real_number() -> None:
    document = json.loads(Schema((AGE,), (STAY,)).to_json())
    del document["targets"][0]["kind"]
    assert Schema.from_json(json.dumps(document)).targets == (STAY,)


def test_the_documented_example_of_each_kind_is_valid() -> None:
    page = (ROOT / "docs" / "two-machines.md").read_text()
    (example,) = re.findall(r"```json\n(\[\{\"kind\".*?)```", page, re.DOTALL)
    document = json.loads(Schema((AGE,), (STAY,)).to_json())
    schema = Schema.from_json(json.dumps({**document, "targets": json.loads(example)}))
    assert [kind_of(target) for target in schema.targets] == [*TARGET_KINDS]


def test_a_kind_that_does_not_exist_and_fields_of_another_kind_are_refused() -> None:
    document = json.loads(Schema((AGE,), (STAY,)).to_json())
    for changes, says in (
        ({"kind": "ordinal"}, "targets[0] must be an object whose 'kind' is one of real, binary"),
        ({"kind": "binary"}, "targets[0] lacks the field 'levels'"),
        ({"event": "yes"}, "targets[0] has the unknown field 'event'"),
    ):
        changed = {**document, "targets": [{**document["targets"][0], **changes}]}
        with pytest.raises(SchemaRefused) as raised:
            Schema.from_json(json.dumps(changed))
        assert says in str(raised.value)


def test_whole_numbers_and_floats_are_the_same_schema() -> None:
    whole = TimeToEvent("days", "d", "died", edges=(30, 60), horizon=60)
    real = TimeToEvent("days", "d", "died", edges=(30.0, 60.0), horizon=60.0)
    texts = {Schema((AGE,), (target,)).to_json() for target in (whole, real)}
    assert len(texts) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"levels": ("no",)},
        {"levels": ("no", "yes", "perhaps")},
        {"levels": ("yes", "yes")},
        {"levels": ("", "yes")},
        {"levels": ["no", "yes"]},
        {"event": "Yes"},
        {"event": None},
    ],
)
def test_a_binary_target_has_two_levels_one_of_which_is_the_event(changes: Any) -> None:
    assert _refused(replace(READMITTED, **changes)) == [WrongLevels]


def test_classes_are_three_to_fifty_different_levels() -> None:
    most = tuple(map(str, range(MOST_CLASSES)))
    Schema((AGE,), (replace(DIAGNOSIS, levels=most),))
    for levels in (("a", "b"), ("a", "b", "a"), (*most, "more"), ("a", "b", " ")):
        assert _refused(replace(DIAGNOSIS, levels=levels)) == [WrongLevels]


@pytest.mark.parametrize("upper", [0, 0.5, -3, float("inf"), float("nan"), LARGEST_COUNT + 1, None])
def test_a_count_has_a_bound_from_one(upper: Any) -> None:
    assert _refused(replace(VISITS, upper=upper)) == [WrongBounds]
    Schema((AGE,), (replace(VISITS, upper=LARGEST_COUNT),))


def test_a_count_has_a_unit_and_perhaps_the_name_of_an_exposure() -> None:
    assert _refused(replace(VISITS, unit="")) == [WrongField]
    assert _refused(replace(VISITS, exposure=" ")) == [WrongField]
    assert Count("visits", "visits").columns == ("visits",)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"horizon": None}, WrongBounds),
        ({"horizon": 0}, WrongBounds),
        ({"horizon": float("inf")}, WrongBounds),
        ({"horizon": 1e300}, WrongBounds),
        ({"edges": (0.0, 90.0)}, WrongBounds),
        ({"edges": (60.0, 30.0, 90.0)}, WrongBounds),
        ({"edges": (30.0, 30.0, 90.0)}, WrongBounds),
        ({"edges": (30.0, float("nan"), 90.0)}, WrongBounds),
        ({"edges": [30.0, 90.0]}, WrongBounds),
        ({"edges": tuple(map(float, range(1, MOST_EDGES + 2)))}, WrongBounds),
        ({"edges": (30.0, 60.0)}, WrongBounds),
        ({"event": ""}, WrongField),
        ({"unit": ""}, WrongField),
        ({"happened": "0"}, WrongLevels),
        ({"censored": ""}, WrongLevels),
        ({"happened": 1}, WrongLevels),
    ],
)
def test_a_time_to_event_has_rising_edges_or_a_horizon_and_two_marks(
    changes: Any, kind: type[SchemaError]
) -> None:
    assert _refused(replace(DEATH, **changes)) == [kind]


def test_a_column_has_one_role_whatever_the_kind_of_its_target() -> None:
    for targets in (
        (replace(DEATH, event="days"),),
        (replace(VISITS, exposure="age"),),
        (READMITTED, replace(DEATH, event="readmitted")),
    ):
        with pytest.raises(SchemaRefused) as raised:
            Schema((AGE,), targets)
        assert [type(problem) for problem in raised.value.problems] == [DuplicateName]


@given(horizon=st.floats(*TIMES))
def test_a_horizon_alone_gives_ten_intervals_that_end_at_it(horizon: float) -> None:
    target = replace(DEATH, horizon=horizon)
    assert len(target.intervals) == 10
    assert target.intervals[-1] == target.risk_at == horizon
    assert target.intervals[0] > 0
    assert sorted(set(target.intervals)) == [*target.intervals]


def test_edges_are_the_intervals_and_the_last_one_is_the_horizon_unless_it_is_given() -> None:
    target = TimeToEvent("days", "d", "died", edges=(7.0, 30.0, 90.0))
    assert target.intervals == (7.0, 30.0, 90.0)
    assert target.risk_at == 90.0
    assert replace(target, horizon=45.0).risk_at == 45.0
