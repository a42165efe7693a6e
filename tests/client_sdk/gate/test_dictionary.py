"""The site's own data dictionary: drafted from a table, and contained by every schema."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from client_sdk.errors import DictionaryMismatch, PolicyFileError, PolicyRefused
from client_sdk.gate.dictionary import Dictionary, Entry
from client_sdk.gate.dictionary_draft import text_of
from client_sdk.gate.policy import Policy
from client_sdk.tables.dictionary_draft import draft_dictionary
from client_sdk.tables.hospital_table import site_of
from client_sdk.terminal.command import application
from kernels.errors import TableRefused
from kernels.rounds.program import Program
from kernels.tables.records import Records
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import Binary, Classes, Count, Target, TimeToEvent
from tests.client_sdk.hospitals import permissive
from tests.dealing import DEALING
from tests.kernels.rounds.tables import SCHEMA as AGREED
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
    codes = {"chol": (0.0, "?"), "ward": ("9",), "age": (50.0,)}
    table = {
        "chol": [0, "?", *(85 + row for row in range(198))],
        "ward": ["a", "9"] * 100,
        "age": [*range(20, 60)] * 5,
    }
    drafted = draft_dictionary(table, units={"chol": "mg/dl", "age": "a"}, missing_codes=codes)
    own = Dictionary.of(tomllib.loads(text_of(drafted))).entries
    assert own["chol"].missing_codes == (0.0, "?")
    assert own["chol"].lower is not None
    assert 0 < own["chol"].lower <= 85
    assert own["ward"] == Entry(levels=("a",), missing_codes=("9",))
    assert own["age"].missing_codes == ()
    assert any("'age': the missing codes 50.0 lie among its values" in s for s in drafted.advice)


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


def test_a_drafted_dictionary_contains_the_table_and_no_value_of_a_single_patient() -> None:
    data = _patients()
    drafted = draft_dictionary(data, patient="who", units={"age": "a"})
    columns = {column.name: column for column in drafted.columns}
    assert (columns["age"].lower, columns["age"].upper) == (20.0, 100.0)
    assert (columns["temperature"].lower, columns["temperature"].upper) == (35.5, 42.0)
    assert columns["ward"].levels == ("medical", "surgical")
    assert columns["ward"].rare == 1
    assert columns["who"].patient
    stay = columns["stay"]
    assert stay.lower is not None
    assert stay.upper is not None
    assert stay.lower <= 4.0 <= stay.upper
    text = text_of(drafted)
    for single in ("97", "41.7", "isolation", "p17"):
        assert single not in text
    with pytest.raises(PolicyFileError, match="still"):
        Dictionary.of({"stay": {"unit": drafted.unit("stay")}})


def test_codes_that_a_schema_reads_as_labels_are_drafted_as_levels(tmp_path: Path) -> None:
    schema = replace(SCHEMA, targets=OUTCOMES)
    lines = ["who,age,ward,readmitted,stage,visits,years,days,died"]
    lines += [
        f"p{i},{30 + i},{('medical', 'surgical')[i % 2]},{('no', 'yes')[i % 2]},{1 + i % 3},"
        f"{i % 5},{1 + i % 2},{i},{int(i % 3 == 0)}"
        for i in range(60)
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    (tmp_path / "schema.json").write_text(schema.to_json())
    shown = CliRunner().invoke(
        application(),
        ["dictionary", "draft", str(tmp_path / "t.csv"), "--schema",
         str(tmp_path / "schema.json")],
    )  # fmt: skip
    assert shown.exit_code == 0, shown.output
    plain = tomllib.loads(shown.stdout)
    assert plain["died"] == {"levels": ["0", "1"]}
    assert plain["stage"] == {"levels": ["1", "2", "3"]}
    assert plain["visits"]["unit"] == "visits"
    assert plain["years"]["unit"] == "?", "a schema does not say it"
    plain["years"]["unit"] = "a"
    assert _problems(schema, Dictionary.of(plain)) == []


def test_a_dictionary_is_drafted_by_a_command_with_the_units_of_a_schema(tmp_path: Path) -> None:
    data = table(60)
    names = [*data]
    lines = [",".join(names)]
    lines += [",".join(str(data[name][row]) for name in names) for row in range(60)]
    (tmp_path / "table.csv").write_text("\n".join(lines).replace("nan", ""))
    (tmp_path / "schema.json").write_text(AGREED.to_json())
    shown = CliRunner().invoke(
        application(),
        ["dictionary", "draft", str(tmp_path / "table.csv"), "--schema",
         str(tmp_path / "schema.json")],
    )  # fmt: skip
    assert shown.exit_code == 0, shown.output
    (tmp_path / "own.toml").write_text(shown.stdout)
    own = Dictionary.read(tmp_path / "own.toml")
    assert own.entries["age"].unit == json.loads(AGREED.to_json())["features"][0]["unit"]
    wide = replace(
        AGREED,
        features=tuple(
            replace(column, lower=None, upper=None) if isinstance(column, Numeric) else column
            for column in AGREED.features
        ),
        targets=tuple(replace(column, lower=None, upper=None) for column in AGREED.targets),
    )
    assert [*own.problems(wide)] == []
