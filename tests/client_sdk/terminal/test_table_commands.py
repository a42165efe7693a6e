"""`veilgp schema draft` and `veilgp check`, as a hospital's data scientist types them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from client_sdk.errors import DraftError
from client_sdk.tables.draft import draft
from client_sdk.terminal.command import application
from kernels.tables.schema import Schema
from kernels.tables.targets import Binary, Classes, Count, Target, TimeToEvent, kind_of


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
    assert "    '51' (row 11); '52' (row 12)" in outcome.stderr
    assert "does not fit" in outcome.stdout
    assert "fits the schema" not in outcome.stdout


def test_what_cannot_be_read_is_said_without_a_traceback(table: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"version": 1, "features": []}')
    for arguments, says in (
        (("check", tmp_path / "no.csv", "--schema", wrong), "targets"),
        (("check", table, "--schema", tmp_path / "no.json"), "cannot read a schema"),
        (("schema", "draft", tmp_path / "no.csv", "--target", "stay"), "does not exist"),
        (("schema", "draft", table, "--target", "Stay"), "no column 'Stay'"),
        (("schema", "draft", table, "--target", "note"), "not numbers"),
        (("schema", "draft", table, "--target", "admitted"), "not numbers"),
    ):
        outcome = veilgp(*arguments)
        assert outcome.exit_code == 1
        assert says in outcome.stderr
        assert "Traceback" not in outcome.output
    assert veilgp("schema", "draft", table).exit_code == 2


def test_columns_can_be_dropped_from_a_draft_and_unknown_ones_are_named(table: Path) -> None:
    arguments = ("schema", "draft", table, "--target", "stay", "--patient", "pid")
    drafted = veilgp(*arguments, "--drop", "ward", "--drop", "note", "--drop", "admitted")
    schema = json.loads(drafted.stdout)
    assert [each["name"] for each in schema["features"]] == ["age", "sex"]
    assert "'note'" not in drafted.stderr
    for dropped, says in (
        ("Ward", "no column 'Ward'"),
        ("stay", "'stay' cannot be dropped: a target reads it"),
        ("pid", "'pid' cannot be dropped: it is the patient column"),
    ):
        refused = veilgp(*arguments, "--drop", dropped)
        assert refused.exit_code == 1
        assert says in refused.stderr


def test_drafts_are_merged_or_their_conflicts_named(table: Path, tmp_path: Path) -> None:
    drafted = veilgp("schema", "draft", table, "--target", "stay", "--patient", "pid").stdout
    north, south = tmp_path / "north.json", tmp_path / "south.json"
    north.write_text(drafted)
    south.write_text(drafted.replace('"m"', '"x"'))
    merged = veilgp("schema", "merge", north, south, "--drop", "ward")
    assert merged.exit_code == 0, merged.stderr
    schema = Schema.from_json(merged.stdout)
    assert [column.name for column in schema.features] == ["age", "sex"]
    assert schema.categorical[0].levels == ("f", "m", "x")
    south.write_text(drafted.replace('"pid"', "null").replace('"sex"', '"gender"'))
    refused = veilgp("schema", "merge", north, south)
    assert refused.exit_code == 1
    assert "the patient column differs" in refused.stderr
    assert "north.json" in refused.stderr
    assert veilgp("schema", "merge", north, tmp_path / "no.json").exit_code == 1


def test_check_shows_each_column_what_is_suspicious_and_rows_without_a_target(
    tmp_path: Path,
) -> None:
    lines = [
        f"{'' if row == 3 else row % 2},{row % 2},north,{0 if row % 4 else 120 + row % 50},{row}.0"
        for row in range(200)
    ]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["y,leak,site,chol,[b]row_id", *lines]))
    schema = tmp_path / "schema.json"
    drafted = veilgp("schema", "draft", path, "--target", "y").stdout.replace('"?"', '"1"')
    schema.write_text(drafted)
    shown = veilgp("check", path, "--schema", schema)
    assert shown.exit_code == 0, shown.stderr
    for said in ("'north' 200", "0 to 168 ", "[b]row_id", "binary", "look at it", "0.5 % (1)"):
        assert said in shown.stdout
    assert "1 of 200 rows have no target" in shown.stdout
    assert "fits the schema: 199 rows" in shown.stdout
    for said in (
        "'leak': it is nearly a copy of the target's column 'y'",
        "'site': all cells that are there are 'north'",
        "'chol': 0 occurs 150 times, and the nearest other number is 120: if it means missing",
        "'[b]row_id': its cells are nearly all different",
    ):
        assert said in shown.stderr


@pytest.fixture
def outcomes(tmp_path: Path) -> Path:
    path = tmp_path / "outcomes.csv"
    lines = [
        f"{40 + i % 50},{'yes' if i % 9 == 4 else 'no'},{'A' if i % 5 else 'B'},{1 + i % 3},"
        f"{'abc'[i % 3]},{max(0, i % 7 - 3)},{0.5 + i % 2},{i % 110},{int(i % 4 == 1)},{i / 7}"
        for i in range(200)
    ]
    header = "age,readmitted,arm,stage,cause,visits,years,days,died,stay"
    path.write_text("\n".join([header, *lines]))
    return path


EVERY_KIND = (
    *("--target", "stay", "--target", "readmitted", "--target", "arm", "--target", "stage"),
    *("--target", "cause", "--target", "visits", "--exposure", "visits:years"),
    *("--time-to-event", "days:died", "--horizon", "90"),
)


def test_a_draft_recognises_the_kinds_of_targets_and_says_what_it_guessed(outcomes: Path) -> None:
    drafted = veilgp("schema", "draft", outcomes, *EVERY_KIND)
    assert drafted.exit_code == 0, drafted.stderr
    schema = Schema.from_json(drafted.stdout)
    assert schema.targets == (
        Target("stay", "?"),
        Binary("readmitted", ("no", "yes"), event="yes"),
        Binary("arm", ("A", "B"), event="B"),
        Classes("stage", ("1", "2", "3")),
        Classes("cause", ("a", "b", "c")),
        Count("visits", "?", exposure="years"),
        TimeToEvent("days", "?", "died", horizon=90.0, happened="1", censored="0"),
    )
    assert [column.name for column in schema.features] == ["age"]
    for said in (
        "target 'readmitted': it has two levels, so its kind is binary; the event is 'yes', by its",
        "target 'arm': it has two levels, so its kind is binary; the event is 'B', the rarer level",
        "target 'stage': it has 3 distinct whole numbers, so its kind is classes: if it is a",
        "target 'cause': it is text with 3 labels, so its kind is classes",
        "target 'visits': 'upper' is 1000, set it to the largest count that is possible",
        "target 'days': the event is '1' in 'died', by its name, and '0' is the end of observation",
    ):
        assert said in drafted.stderr
    assert "109" not in drafted.output, "the longest time is one patient's"


def test_numbers_become_counts_or_classes_only_if_that_is_clear() -> None:
    def kind(*cells: float) -> str:
        rows = [*cells] * 20
        table = {"age": [40 + i % 50 for i in range(len(rows))], "y": rows}
        return kind_of(draft(table, targets=["y"]).schema.targets[0])

    assert kind(0, 0, 0, 1, 2) == "count"
    assert kind(*[0] * 20, *range(40)) == "count"
    assert kind(0, 1) == "binary"
    assert kind(1, 2, 3, 4) == "classes"
    assert kind(*range(3, 33)) == "real"
    assert kind(*range(1, 13)) == "real", "whole days"
    assert kind(0, 0, 0.5, 1) == "real"
    assert kind(0, 0, -1, 1) == "real"
    assert kind(0.5, 1.5) == "real"
    assert kind_of(draft({"a": [1, 2, 3], "y": [1, 2, 3]}, targets=["y"]).schema.targets[0]) == (
        "real"
    ), "too few rows to tell"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--time-to-event", "days:died"), 1, "needs a horizon"),
        (("--target", "stay", "--horizon", "90"), 1, "no time to an event"),
        (("--time-to-event", "days", "--horizon", "90"), 2, "colon between them"),
        (("--time-to-event", "days:cause", "--horizon", "90"), 1, "must have two labels"),
        (("--time-to-event", "cause:died", "--horizon", "90"), 1, "are not numbers"),
        (("--time-to-event", "days:died", "--horizon", "-3"), 1, "horizon must be a number"),
        (("--target", "stay", "--exposure", "visits:years"), 1, "name them as targets"),
        (("--target", "stay", "--exposure", "stay:years"), 1, "not counts"),
        (("--target", "visits", "--exposure", "visits:cause"), 1, "'cause' has cells that are not"),
        (("--target", "visits", "--exposure", "visits:Years"), 1, "no column 'Years'"),
    ],
)
def test_what_was_named_wrongly_is_said(
    outcomes: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    outcome = veilgp("schema", "draft", outcomes, *arguments)
    assert outcome.exit_code == code
    assert says in " ".join(outcome.stderr.replace("│", " ").split())


def test_check_shows_how_outcomes_are_read_and_what_is_odd(outcomes: Path, tmp_path: Path) -> None:
    drafted = veilgp("schema", "draft", outcomes, *EVERY_KIND)
    path = tmp_path / "schema.json"
    path.write_text(drafted.stdout)
    assert veilgp("check", outcomes, "--schema", path).stderr.count("its unit is still '?'") == 4
    path.write_text(drafted.stdout.replace('"?"', '"u"').replace('"c"', '"c", "gunshot"'))
    shown = veilgp("check", outcomes, "--schema", path)
    assert shown.exit_code == 0, shown.stderr
    for said in (
        "200 rows; the rarest level has 22 rows",
        "readmitted: 22 events ('yes'), 11 % of all rows",
        "arm: 40 events ('B'), 20 % of all rows",
        "stage: '1' 67, '2' 67, '3' 66",
        "cause: 'a' 67, 'b' 67, 'c' 66, 'gunshot' 0",
        "visits: 0.84 u per row, at most 3, 58 % of all rows have 0; 0.84 per unit of 'years'",
        "days: 50 events (25 % of all rows), 5 of them after 90 u; 150 rows without an event, 14",
    ):
        assert said in shown.stdout
    assert "target 'cause': no row here has 'gunshot': is the spelling right?" in shown.stderr


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


def test_check_of_a_table_alone_prints_its_size_as_a_session_states_it(table: Path) -> None:
    shown = veilgp("check", table)
    assert shown.exit_code == 0, shown.stderr
    assert "60 rows. Tell the session's admin: 32 (from 32 to 63 rows)" in shown.stdout


def test_a_table_is_tried_on_a_proposed_session_with_what_to_ask_for(
    outcomes: Path, tmp_path: Path
) -> None:
    drafted = veilgp("schema", "draft", outcomes, "--target", "stay")
    schema, session, home = (tmp_path / name for name in ("schema.json", "session.json", "home"))
    schema.write_text(drafted.stdout.replace('"?"', '"1"'))

    def checked(*options: object) -> Result:
        proposed = veilgp("session", "draft", schema, *options)
        assert proposed.exit_code == 0, proposed.output
        session.write_text(proposed.stdout)
        return veilgp("check", session, outcomes, "--home", home)

    small = checked("--smallest-table", 128)
    assert small.exit_code == 0, small.output
    assert "meets everything that the policy asks" in small.stderr
    large = checked("--smallest-table", 16384)
    assert large.exit_code == 1
    said = " ".join(large.stderr.split())
    assert "training rows this site allows at most" in said
    assert "the program has 800, of two kernels that it may mix" in said
    assert said.index("Ask for a session with at most") < said.index("To allow it all the same")
    assert not home.exists(), "nothing is kept"
    assert veilgp("check", session, session, outcomes).exit_code == 2
    session.write_text("{}")
    assert "[source.draft]" in veilgp("check", session, outcomes, "--home", home).stderr
