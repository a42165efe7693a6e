"""The site's own data dictionary: drafted from a table, and contained by every schema."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import DictionaryMismatch, PolicyFileError, PolicyRefused
from client_sdk.gate.dictionary import Dictionary, Entry
from client_sdk.gate.dictionary_draft import draft_dictionary
from client_sdk.gate.policy import Policy
from client_sdk.tables.hospital_table import site_of
from kernels.errors import TableRefused
from kernels.rounds.program import Program
from kernels.tables.records import Records
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import Binary, Classes, Count, Target, TimeToEvent
from tests.client_sdk.hospitals import permissive
from tests.dealing import DEALING
from tests.kernels.rounds.tables import table

SCHEMA = Schema(
    (Numeric("age", "a", 0, 120), Categorical("ward", ("medical", "surgical"))),
    (Target("stay", "d", 0, 60),),
    patient="who",
)
OWN = Dictionary.containing(SCHEMA)


OUTCOMES = (
    Binary("readmitted", ("yes", "no"), event="yes"),
    Classes("stage", ("1", "2", "3")),
    Count("visits", "visits", upper=50, exposure="years"),
    TimeToEvent("days", "d", event="died", horizon=90),
)


def _problems(schema: Schema, own: Dictionary = OWN) -> list[str]:
    return [problem.code for problem in own.problems(schema)]


def _with(**changes: Any) -> Schema:
    age, ward = SCHEMA.features
    return replace(SCHEMA, features=(replace(age, **changes), ward))


def test_a_schema_that_equals_or_contains_the_dictionary_is_accepted() -> None:
    wider = Categorical("ward", ("surgical", "other", "medical"), other="other")
    for schema in (
        SCHEMA,
        _with(lower=-5, upper=None),
        replace(SCHEMA, features=(SCHEMA.features[0], wider)),
        replace(SCHEMA, features=SCHEMA.features[:1], patient=None),
    ):
        assert _problems(schema) == []


@pytest.mark.parametrize(
    "schema",
    [
        _with(lower=41.0),
        _with(upper=41.0),
        _with(unit="months"),
        replace(SCHEMA, features=(Categorical("ward", ("medical", "x"), other="x"),)),
        replace(SCHEMA, features=(*SCHEMA.features, Numeric("income", "EUR"))),
        replace(SCHEMA, features=(Numeric("ward", "1"),)),
        replace(SCHEMA, features=(Categorical("age", ("41", "42")),)),
        replace(SCHEMA, features=(Numeric("who", "1"),), patient=None),
        replace(SCHEMA, features=(Numeric("age", "a"),), patient="ward"),
        replace(SCHEMA, targets=(Target("stay", "d", 3, 4),)),
    ],
    ids=["lower", "upper", "unit", "levels", "new", "number", "labels", "who", "patient", "target"],
)
def test_a_schema_that_does_not_contain_the_dictionary_is_refused(schema: Schema) -> None:
    assert set(_problems(schema)) == {"policy.dictionary"}


def test_outcomes_that_equal_or_contain_the_dictionary_are_accepted() -> None:
    schema = replace(SCHEMA, targets=OUTCOMES)
    own = Dictionary.containing(schema)
    assert [*own.entries] == ["age", "ward", *(n for o in OUTCOMES for n in o.columns), "who"]
    assert Dictionary.of(tomllib.loads(own.to_toml())) == own
    readmitted, stage, visits, days = OUTCOMES
    for target in (
        *OUTCOMES,
        replace(readmitted, event="no"),
        replace(stage, levels=("0", "3", "2", "1")),
        replace(visits, upper=80),
        replace(days, horizon=20),
    ):
        assert _problems(replace(SCHEMA, targets=(target,)), own) == []


@pytest.mark.parametrize(
    "target",
    [
        Binary("stage", ("1", "2"), event="1"),
        Binary("readmitted", ("yes", "never"), event="yes"),
        Binary("days", ("1", "2"), event="1"),
        Classes("readmitted", ("yes", "x", "y")),
        Count("visits", "visits", upper=3),
        Count("visits", "days", upper=50),
        Count("temperature", "C"),
        Count("visits", "visits", upper=50, exposure="stage"),
        Count("visits", "visits", upper=50, exposure="age!"),
        Count("who", "visits"),
        TimeToEvent("days", "weeks", event="died", horizon=90),
        TimeToEvent("temperature", "C", event="died", horizon=90),
        TimeToEvent("days", "d", event="died", horizon=90, happened="2"),
        TimeToEvent("days", "d", event="visits", horizon=90),
    ],
    ids=str,
)
def test_outcomes_that_do_not_contain_the_dictionary_are_refused(target: Any) -> None:
    known = Dictionary.containing(replace(SCHEMA, targets=OUTCOMES)).entries
    own = Dictionary({**known, "temperature": Entry(unit="C", lower=-5, upper=45)})
    schema = Schema((Categorical("ward", ("medical", "surgical")),), (target,))
    assert set(_problems(schema, own)) == {"policy.dictionary"}


def _coded(codes: tuple[Any, ...], ward: tuple[str, ...] = (), **changes: Any) -> Schema:
    age, own = SCHEMA.features
    return replace(
        SCHEMA,
        features=(
            replace(age, may_be_missing=True, missing_codes=codes, **changes),
            replace(own, may_be_missing=True, missing_codes=ward),
        ),
    )


def test_a_schema_has_the_missing_codes_of_the_dictionary_and_no_further_possible_value() -> None:
    own = Dictionary.containing(_coded((-1.0,), ("9",)))
    assert Dictionary.of(tomllib.loads(own.to_toml())) == own
    for codes, ward in (((-1.0,), ("9",)), ((-1.0, 999.0, "?"), ("9.0",))):
        assert _problems(_coded(codes, ward), own) == []
    free = {"lower": None, "upper": None}
    for schema in (
        _coded((), ("9",)),
        _coded((999.0,), ("9",)),
        _coded((-1.0,)),
        _coded((-1.0,), ("9", "hospice")),
        _coded((-1.0, 41.0), ("9",), **free),
        _coded((-1.0, 120.0), ("9",), **free),
    ):
        assert _problems(schema, own) == ["policy.dictionary"]


def test_a_level_written_as_a_float_is_the_dictionarys_level() -> None:
    own = Dictionary({"ward": Entry(levels=("1", "2")), "stay": OWN.entries["stay"]})
    schema = Schema((Categorical("ward", ("1.0", "2.0")),), SCHEMA.targets)
    assert _problems(schema, own) == []


def test_codes_of_targets_events_and_exposures_are_compared_too() -> None:
    _, _, visits, days = OUTCOMES
    coded = (
        replace(visits, missing_codes=(-1.0,), exposure_missing_codes=(0.0,)),
        replace(days, missing_codes=(-1.0,), event_missing_codes=("9",)),
    )
    own = Dictionary.containing(replace(SCHEMA, targets=coded))
    assert _problems(replace(SCHEMA, targets=coded), own) == []
    assert len(_problems(replace(SCHEMA, targets=(visits, days)), own)) == 4
    plain = Dictionary.containing(replace(SCHEMA, targets=(visits, days)))
    # Negative counts and times are no values; an exposure of 0 and another label may be.
    assert len(_problems(replace(SCHEMA, targets=coded), plain)) == 2


def test_a_drafted_dictionary_takes_codes_from_the_schema_and_its_bounds_exclude_them() -> None:
    schema = Schema(
        (
            Numeric("chol", "mg/dl", may_be_missing=True, missing_codes=(0.0, "?")),
            Numeric("age", "a", may_be_missing=True, missing_codes=(50.0,)),
            Categorical("ward", ("a",), may_be_missing=True, missing_codes=("9",)),
        ),
        (Target("stay", "d"),),
    )
    table = {
        "chol": [0, "?", *(85 + row for row in range(198))],
        "ward": ["a", "9"] * 100,
        "age": [*range(20, 60)] * 5,
        "stay": [1.0] * 200,
    }
    drafted = draft_dictionary(schema, table)
    own = drafted.dictionary.entries
    assert own["chol"].missing_codes == (0.0, "?")
    assert own["chol"].lower is not None
    assert 0 < own["chol"].lower <= 85
    assert own["ward"] == Entry(levels=("a",), missing_codes=("9",))


def test_a_dictionary_without_bounds_is_contained_only_by_schemas_without_bounds() -> None:
    own = Dictionary({**OWN.entries, "age": Entry(unit="a")})
    assert _problems(SCHEMA, own) == ["policy.dictionary"]
    assert _problems(_with(lower=None, upper=None), own) == []


def test_an_empty_dictionary_allows_no_column(program: Program) -> None:
    with pytest.raises(PolicyRefused):
        Policy().check_dictionary(program)


def test_a_table_outside_the_dictionary_is_refused(program: Program) -> None:
    policy, own = permissive(program), site_of(program, table(40), DEALING)
    policy.check_table(program, own.summary)
    entry = Entry(unit="a", lower=0, upper=30)
    narrow = Dictionary({**policy.dictionary.entries, "age": entry})
    with pytest.raises(DictionaryMismatch):
        replace(policy, dictionary=narrow).check_table(program, own.summary)


def test_without_noise_nothing_is_clipped_to_the_bounds_of_a_schema() -> None:
    schema = Schema((Numeric("age", "a", 40, 42),), (Target("stay", "d"),))
    with pytest.raises(TableRefused):
        Records.for_training(schema, {"age": [41.0, 90.0], "stay": [1.0, 2.0]})


@pytest.mark.parametrize(
    "text",
    [
        "age = 3",
        "[age]\nupper = 3",
        '[age]\nunit = "?"',
        '[age]\nunit = ""',
        '[age]\nunit = "a"\nupper = "3"',
        '[age]\nunit = "a"\nlower = nan',
        '[age]\nunit = "a"\nlower = 3\nupper = 3',
        '[age]\nunit = "a"\nlevels = ["x"]',
        '[age]\nunit = "a"\nlower = 0\nmissing_codes = [3]',
        '[age]\nunit = "a"\nmissing_codes = 3',
        '[ward]\nlevels = ["a"]\nmissing_codes = ["a"]',
        '[ward]\nlevels = ["a"]\nmissing_codes = [9]',
        '[who]\npatient = true\nmissing_codes = ["x"]',
        "[ward]\nlevels = []",
        "[ward]\nlevels = [1]",
        "[who]\npatient = false",
        '[age]\nunit = "a"\nhighest = 3',
        "[age",
    ],
)
def test_a_dictionary_with_a_wrong_line_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(text)
    (tmp_path / "site.toml").write_text('dictionary = "own.toml"')
    with pytest.raises(PolicyFileError):
        Policy.read(tmp_path / "site.toml")


def test_a_dictionary_is_part_of_the_policy_or_a_file_beside_it(tmp_path: Path) -> None:
    inside = Policy.from_toml(OWN.to_toml("dictionary."))
    (tmp_path / "own.toml").write_text(OWN.to_toml())
    (tmp_path / "site.toml").write_text('dictionary = "own.toml"')
    assert inside.dictionary == Policy.read(tmp_path / "site.toml").dictionary == OWN
    with pytest.raises(PolicyFileError, match="relative"):
        Policy.from_toml('dictionary = "own.toml"')
    with pytest.raises(PolicyFileError):
        Policy.from_toml("dictionary = 3")


def _patients() -> dict[str, Any]:
    random = np.random.default_rng(5)
    age = np.append(np.round(random.normal(50, 12, 199), 1), 97.3)
    temperature = np.append(np.round(random.normal(37.2, 0.6, 199), 1), 41.7)
    ward = ["medical"] * 120 + ["surgical"] * 77 + ["isolation"] * 3
    return {
        "who": [f"p{i}" for i in range(200)],
        "age": age,
        "temperature": temperature,
        "ward": ward,
        "stay": np.full(200, 4.0),
    }


PATIENTS = Schema(
    (
        Numeric("age", "a"),
        Numeric("temperature", "°C", may_be_missing=True),
        Categorical("ward", ("medical", "surgical", "intensive")),
    ),
    (Target("stay", "d"),),
    patient="who",
)


def test_a_drafted_dictionary_contains_the_table_and_no_value_of_a_single_patient() -> None:
    data = _patients()
    drafted = draft_dictionary(PATIENTS, data)
    own = drafted.dictionary.entries
    assert (own["age"].lower, own["age"].upper) == (20.0, 100.0)
    assert (own["temperature"].lower, own["temperature"].upper) == (35.5, 42.0)
    assert (own["stay"].lower, own["stay"].upper) == (3.0, 5.0), "not its one value"
    assert own["ward"].levels == ("medical", "surgical", "intensive"), "those of the session"
    assert own["who"].patient
    assert drafted.doubts == {}
    text = drafted.to_toml()
    for single in ("97", "41.7", "isolation", "p17"):
        assert single not in text
    assert Dictionary.of(tomllib.loads(text)["dictionary"]).entries == own
    assert [*drafted.dictionary.problems(PATIENTS)] == []


@pytest.mark.parametrize("name", ["age", "visits", "days", "stay"])
@pytest.mark.parametrize("scale", [0.01, 1.0, 10.0])
def test_no_bound_is_an_extreme_value_of_the_table(name: str, scale: float) -> None:
    schema = replace(
        SCHEMA,
        features=(Numeric("age", "a"), SCHEMA.features[1]),
        targets=(Target("stay", "d"), Count("visits", "visits"), OUTCOMES[3]),
    )
    values = np.arange(20, 101, 5, dtype=float) * (1 if name == "visits" else scale)
    data: dict[str, Any] = {each: np.ones(17) for each in ("age", "visits", "days", "stay")}
    data |= {name: values, "ward": ["medical"] * 17, "died": ["1"] * 17, "who": ["p"] * 17}
    entry = draft_dictionary(schema, data).dictionary.entries[name]
    assert entry.lower is not None
    assert entry.upper is not None
    assert entry.lower < values.min()
    assert entry.upper > values.max()


def test_bounds_are_no_wider_than_those_of_a_session_that_contain_the_table() -> None:
    schema = _with(lower=18, upper=98)
    table = {**_patients(), "ward": ["medical"] * 200}
    entry = draft_dictionary(schema, table).dictionary.entries["age"]
    assert (entry.lower, entry.upper) == (20.0, 98.0)
    assert _problems(schema, draft_dictionary(schema, table).dictionary) == []


def test_a_common_level_that_a_session_merges_is_for_a_person_to_decide() -> None:
    merged = replace(
        SCHEMA, features=(SCHEMA.features[0], Categorical("ward", ("medical", "other"), "other"))
    )
    drafted = draft_dictionary(merged, _patients())
    assert drafted.dictionary.entries["ward"].levels == ("medical", "other", "surgical")
    assert "surgical" in drafted.doubts["ward"]
    assert "isolation" not in drafted.to_toml()
    assert _problems(merged, drafted.dictionary) == ["policy.dictionary"]


def test_outcomes_are_drafted_as_the_session_reads_them() -> None:
    schema = replace(SCHEMA, targets=OUTCOMES)
    data = {
        "who": [f"p{i}" for i in range(60)],
        "age": [30 + i for i in range(60)],
        "ward": [("medical", "surgical")[i % 2] for i in range(60)],
        "readmitted": [("no", "yes")[i % 2] for i in range(60)],
        "stage": [1 + i % 3 for i in range(60)],
        "visits": [i % 5 for i in range(60)],
        "years": [1 + i % 2 for i in range(60)],
        "days": [*range(60)],
        "died": [int(i % 3 == 0) for i in range(60)],
    }
    drafted = draft_dictionary(schema, data)
    own = drafted.dictionary.entries
    assert own["died"].levels == ("0", "1")
    assert own["stage"].levels == ("1", "2", "3")
    assert (own["visits"].unit, own["visits"].lower, own["visits"].upper) == ("visits", 0.0, 5.0)
    assert drafted.doubts == {}
    assert _problems(schema, drafted.dictionary) == []
