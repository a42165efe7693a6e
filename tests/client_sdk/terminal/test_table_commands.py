"""`veilgp schema draft` and `veilgp check`, as a hospital's data scientist types them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from client_sdk.errors import DraftError
from client_sdk.tables import draft
from client_sdk.terminal.command import application
from kernels.tables.schema import Schema


def veilgp(*arguments: object) -> Result:
    return CliRunner().invoke(application(), [str(each) for each in arguments])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "stays.csv"
    lines = [
        f"{40 + i},{'f' if i % 3 else 'm'},{i % 2},,2024-01-{1 + i % 28:02},{i / 7},note {i},p{i}"
        for i in range(60)
    ]
    lines[3] = "NA,,1,,2024-01-04,1.5,note,p3"
    header = "age,sex,ward,nothing,admitted,stay,note,pid"
    path.write_text("\n".join([header, *lines]))
    return path


def test_a_draft_is_a_schema_that_check_accepts_once_its_units_are_written(
    table: Path, tmp_path: Path
) -> None:
    drafted = veilgp("schema", "draft", table, "--target", "stay", "--patient", "pid")
    assert drafted.exit_code == 0
    schema = json.loads(drafted.stdout)
    assert [(each["name"], each["kind"]) for each in schema["features"]] == [
        ("age", "numeric"),
        ("sex", "categorical"),
        ("ward", "numeric"),
    ]
    assert schema["features"][1]["levels"] == ["f", "m"]
    assert [each["may_be_missing"] for each in schema["features"]] == [True, True, False]
    assert {each.get("lower") for each in schema["features"] + schema["targets"]} == {None}
    for said in ("'admitted': left out: it has dates", "'note': left out", "'nothing': left out"):
        assert said in drafted.stderr
    assert "'ward': it has few distinct numbers" in drafted.stderr

    path = tmp_path / "schema.json"
    path.write_text(drafted.stdout)
    unedited = veilgp("check", table, "--schema", path)
    assert unedited.exit_code == 1
    assert unedited.stderr.count("its unit is still '?'") == 3

    path.write_text(drafted.stdout.replace('"?"', '"1"'))
    fits = veilgp("check", table, "--schema", path)
    assert fits.exit_code == 0, fits.stderr
    assert "60 rows; the rarest level has" in fits.stdout


def test_check_lists_all_problems_at_once(table: Path, tmp_path: Path) -> None:
    schema = draft(table, targets=["stay"], patient="pid").schema.to_json()
    plain = json.loads(schema)
    plain["features"][0] |= {"upper": 50, "may_be_missing": False}
    plain["features"].append({"kind": "numeric", "name": "height", "unit": "cm"})
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(plain))
    outcome = veilgp("check", table, "--schema", path)
    assert outcome.exit_code == 1
    for said in (
        "'age': its unit",
        "'height': it is not in the table",
        "'age': 1 of 60 cells",
        "[0, 50",
    ):
        assert said in outcome.stderr.replace("(−∞, 50", "[0, 50")
    assert outcome.stdout == ""


def test_what_cannot_be_read_is_said_without_a_traceback(table: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"version": 1, "features": []}')
    for arguments, says in (
        (("check", tmp_path / "no.csv", "--schema", wrong), "targets"),
        (("check", table, "--schema", tmp_path / "no.json"), "cannot read a schema"),
        (("schema", "draft", tmp_path / "no.csv", "--target", "stay"), "does not exist"),
        (("schema", "draft", table, "--target", "Stay"), "no column 'Stay'"),
        (("schema", "draft", table, "--target", "sex"), "not numbers"),
    ):
        outcome = veilgp(*arguments)
        assert outcome.exit_code == 1
        assert says in outcome.stderr
        assert "Traceback" not in outcome.output
    assert veilgp("schema", "draft", table).exit_code == 2


def test_a_draft_needs_something_to_learn_from() -> None:
    with pytest.raises(DraftError, match="no usable feature columns"):
        draft({"stay": [1.0, 2.0], "note": [None, None]}, targets=["stay"])


def test_a_draft_of_a_frame_reads_types_rather_than_text() -> None:
    drafted = draft(
        {"flag": [True, False, True], "code": ["1", "2", "1"], "stay": [1, 2, 3]}, targets=["stay"]
    )
    assert isinstance(drafted.schema, Schema)
    assert [column.levels for column in drafted.schema.categorical] == [
        ("false", "true"),
        ("1", "2"),
    ]


def test_the_version_does_not_wait_for_torch() -> None:
    code = (
        "import sys; from client_sdk.terminal.command import application; application();"
        "sys.exit(any(name in sys.modules for name in ('torch', 'pyarrow', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
