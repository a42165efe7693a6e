"""`veilgp session draft`: what it prints makes the session that the coordinator makes by itself."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from client_sdk.errors import DraftError, SchemaNotRead
from client_sdk.session_draft import draft_session
from client_sdk.tables.schema_of import schema_of
from client_sdk.terminal.command import application
from kernels.tables.schema import Schema
from tests.service.coordinator import Coordinator

FEATURES: list[dict[str, Any]] = [
    {"kind": "numeric", "name": "age", "unit": "a", "lower": 0, "upper": 120},
    {"kind": "categorical", "name": "ward", "levels": ["medical", "surgical"]},
]
STAY = {"name": "stay", "unit": "d", "lower": 0, "upper": 100}
DIED = {"kind": "binary", "name": "died", "levels": ["no", "yes"], "event": "yes"}
TARGETS = {"number": [STAY], "outcome": [DIED], "both": [STAY, DIED]}


def veilgp(*arguments: object) -> Result:
    return CliRunner().invoke(application(), [str(each) for each in arguments])


def file_of(folder: Path, *targets: Any, **more: Any) -> Path:
    path = folder / "schema.json"
    path.write_text(json.dumps({"version": 1, "features": FEATURES, "targets": targets, **more}))
    return path


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    with Coordinator(tmp_path / "data") as opened:
        yield opened


def made(coordinator: Coordinator, body: object) -> Any:
    answer = coordinator.admin("POST", "/sessions", body)
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--members", "3"),
        ("--members-only", "--members", "8"),
        ("--private",),
        ("--private", "--epsilon", "3", "--delta", "1e-6", "--members", "30"),
    ],
    ids=" ".join,
)
def test_a_draft_that_is_sent_makes_the_session_that_states_no_stages(
    tmp_path: Path, coordinator: Coordinator, targets: list[Any], options: tuple[str, ...]
) -> None:
    printed = veilgp("session", "draft", file_of(tmp_path, *targets), *options)
    assert printed.exit_code == 0, printed.stderr
    drafted = json.loads(printed.stdout)
    long = made(coordinator, drafted)
    stated = ("schema", "members", "privacy", "model")
    short = made(coordinator, {"name": "Short", **{field: drafted[field] for field in stated}})
    assert long["program"] == short["program"]
    assert long["in_words"] == short["in_words"]
    assert printed.stderr.splitlines() == [f"- {said}" for said in long["in_words"]]


def test_a_private_draft_of_patients_can_be_sent(tmp_path: Path, coordinator: Coordinator) -> None:
    path = file_of(tmp_path, STAY, patient="pid")
    body = json.loads(veilgp("session", "draft", path, "--private", "--quiet").stdout)
    assert body["privacy"]["max_rows_per_patient"] == 1
    assert made(coordinator, body)["budget"]["epsilon"] == 1.0


def test_only_the_json_is_printed_if_asked(tmp_path: Path) -> None:
    printed = veilgp("session", "draft", file_of(tmp_path, STAY, DIED), "--quiet")
    assert printed.stderr == ""
    assert json.loads(printed.stdout)["name"] == "stay and died"


def test_units_that_nobody_has_written_are_said(tmp_path: Path) -> None:
    printed = veilgp("session", "draft", file_of(tmp_path, {**STAY, "unit": "?"}))
    assert "- column 'stay': its unit is still '?'" in printed.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--epsilon", "1"), "--private"),
        (("--private", "--members-only"), "the model must be served"),
        (("--members", "2"), "members must be at least 3, not 2"),
        (("--private", "--epsilon", "0"), "ε must be a number"),
    ],
    ids=" ".join,
)
def test_what_no_session_can_be_is_refused(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    refused = veilgp("session", "draft", file_of(tmp_path, STAY), *options)
    assert refused.exit_code != 0
    assert said in refused.stderr


def test_noise_needs_bounds_and_says_so(tmp_path: Path) -> None:
    refused = veilgp(
        "session", "draft", file_of(tmp_path, {"name": "stay", "unit": "d"}), "--private"
    )
    assert refused.exit_code == 1
    assert "the columns 'stay' must have lower and upper" in refused.stderr


def test_a_name_fits_into_an_address() -> None:
    plain = {"features": FEATURES, "targets": [{"name": "µg/L", "unit": "µg/L"}]}
    assert draft_session(schema_of(plain), members=5).body["name"] == "µg per L"
    long = {"features": FEATURES, "targets": [{"name": "ü" * 150, "unit": "d"}]}
    assert draft_session(schema_of(long), members=5).body["name"] == "ü" * 100


def test_a_schema_is_read_from_whatever_holds_one(tmp_path: Path) -> None:
    path = file_of(tmp_path, STAY)
    schema = Schema.from_json(path.read_text())
    for held in (schema, path, str(path), path.read_text(), json.loads(path.read_text())):
        assert schema_of(held) == schema
    for wrong in (7, tmp_path / "none.json", {"features": {1, 2}}):
        with pytest.raises(SchemaNotRead):
            schema_of(wrong)


def test_a_private_model_for_members_only_is_refused() -> None:
    schema = schema_of({"features": FEATURES, "targets": [STAY]})
    with pytest.raises(DraftError):
        draft_session(schema, members=5, budget=(1.0, 1e-5), members_only=True)
