"""The shell: predictions for a file, a card, named errors, and a quick start."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from client_sdk import GlobalModel, PersonalModel
from client_sdk.home.home import Home
from client_sdk.terminal.command import application
from tests.kernels.rounds import every_kind, tables
from tests.kernels.rounds.artifacts import PLAIN, STUDENTS, artifact

MODEL = GlobalModel(artifact())
ROWS = pd.DataFrame(tables.table(50, seed=9))


def run(*arguments: object) -> Result:
    """Run a command; models here are not signed, test_verify has those that are."""
    told = [str(each) for each in arguments]
    if told[0] == "predict":
        told.append("--uncertified")
    return CliRunner().invoke(application(), told)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    MODEL.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture(params=["csv", "parquet"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"rows.{request.param}"
    if request.param == "csv":
        ROWS.to_csv(path, index=False)
    else:
        ROWS.to_parquet(path, row_group_size=7)
    return path


def test_a_file_is_predicted_as_its_table_is(saved: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    outcome = run("predict", saved, table, "--out", out, "--interval", "0.8")
    assert outcome.exit_code == 0, outcome.output
    written = pd.read_csv(out)
    predictions = MODEL.predict(ROWS)
    expected = predictions.to_dict() | predictions.intervals(0.8).to_dict()
    assert list(written.columns) == list(expected)
    for name, column in expected.items():
        assert np.allclose(written[name], column, rtol=1e-12), name


def test_predictions_can_be_printed(saved: Path, table: Path) -> None:
    outcome = run("predict", saved, table)
    lines = list(csv.reader(io.StringIO(outcome.output)))
    assert len(lines) == 51
    assert lines[0][0] == "stay.mean"


def test_outcomes_are_written_with_the_columns_of_their_kind(tmp_path: Path, table: Path) -> None:
    GlobalModel(every_kind.artifact()).save(tmp_path / "every")
    out = tmp_path / "out.csv"
    outcome = run("predict", tmp_path / "every", table, "--out", out)
    assert outcome.exit_code == 0, outcome.output
    written, expected = pd.read_csv(out), GlobalModel(every_kind.artifact()).predict(ROWS).to_dict()
    assert list(written.columns) == list(expected)
    assert {"stay.mean", "readmitted.p.yes", "days.survival.40"} <= set(expected)
    for name, column in expected.items():
        assert np.allclose(written[name], column, rtol=1e-9), name
    GlobalModel(every_kind.artifact(every_kind.READMITTED)).save(tmp_path / "one")
    assert run("predict", tmp_path / "one", table, "--out", out).exit_code == 0
    refused = run("predict", tmp_path / "one", table, "--out", out, "--interval", "0.9")
    assert refused.exit_code == 1
    assert "none of which is a real number" in refused.stderr


def test_a_bad_file_is_named_without_its_cells_and_writes_nothing(
    saved: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    out.write_text("former")
    files = {
        "number.csv": "age,lactate,ward\n61,2,medical\nsecret-61,,medical\n",
        "level.csv": "age,lactate,ward\n61,2,secret-ward\n",
        "column.csv": "age,ward\n61,medical\n",
        "ragged.csv": "age,lactate,ward\n61,2,medical\n61,secret-2\n",
        "foreign.csv": "secret\n1\n",
        "twice.csv": "age,age,lactate,ward\n61,secret,2,medical\n",
        "empty.csv": "age,lactate,ward\n",
        "nothing.csv": "",
        "no.parquet": "secret",
        "rows.xlsx": "secret",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        outcome = run("predict", saved, tmp_path / name, "--out", out)
        assert outcome.exit_code == 1, name
        assert outcome.stderr.startswith("veilgp: "), name
        assert "secret" not in outcome.output, name
        assert out.read_text() == "former"
    assert run("predict", saved, tmp_path / "absent.csv").exit_code == 1
    assert not list(tmp_path.glob("*.tmp")) + list(tmp_path.glob(".*.tmp"))


def test_a_personal_model_is_made_in_the_shell_and_predicts_there(
    saved: Path, tmp_path: Path
) -> None:
    home, out, folder = tmp_path / "home", tmp_path / "out.csv", tmp_path / "mine"
    Home(home).identity()
    own = tmp_path / "own.csv"
    pd.DataFrame(tables.table(80, seed=3)).to_csv(own, index=False)
    made = run("personal", saved, own, "--out", folder, "--home", home, "--uncertified")
    assert made.exit_code == 0, made.output
    assert "What the personal model gives this hospital" in made.output
    assert "must not leave the hospital" in made.output
    outcome = run("predict", folder, own, "--out", out, "--interval", "0.9")
    assert outcome.exit_code == 0, outcome.output
    expected = PersonalModel.load(folder).predict(own).to_dict()
    assert np.allclose(pd.read_csv(out)["stay.mean"], expected["stay.mean"])
    assert run("card", folder).output == repr(PersonalModel.load(folder)) + "\n"
    assert json.loads(run("card", folder, "--json").output)["format"] == "veilgp personal model"
    (folder / "personal.json").chmod(0o644)
    refused = run("predict", folder, own)
    assert refused.exit_code == 1
    assert "[personal.exposed]" in refused.stderr


def test_rows_are_counted_from_the_start_of_the_file(saved: Path, tmp_path: Path) -> None:
    bad = ROWS.copy()
    bad.loc[45, "ward"] = "unknown"
    bad.to_parquet(tmp_path / "rows.parquet", row_group_size=20)
    outcome = run("predict", saved, tmp_path / "rows.parquet", "--out", tmp_path / "out.csv")
    assert "row 45" in outcome.stderr


def test_an_interval_that_the_model_cannot_give_is_named(tmp_path: Path, table: Path) -> None:
    GlobalModel(artifact(PLAIN)).save(tmp_path / "plain")
    outcome = run("predict", tmp_path / "plain", table, "--interval", "0.9")
    assert outcome.exit_code == 1
    assert "[model.not_fitted]" in outcome.stderr


def test_a_method_is_chosen_by_name_and_one_that_is_not_there_is_refused(
    saved: Path, table: Path, tmp_path: Path
) -> None:
    model = GlobalModel(artifact(STUDENTS))
    model.save(tmp_path / "students")
    out = tmp_path / "out.csv"
    asked = (table, "--method", "mixture", "--interval", "0.8")
    outcome = run("predict", tmp_path / "students", *asked, "--out", out)
    assert outcome.exit_code == 0, outcome.output
    predictions = model.predict(ROWS, method="mixture")
    expected = predictions.to_dict() | predictions.intervals(0.8, kind="gaussian").to_dict()
    written = pd.read_csv(out)
    assert list(written.columns) == list(expected)
    for name, column in expected.items():
        assert np.allclose(written[name], column, rtol=1e-12), name
    refused = run("predict", saved, *asked)
    assert refused.exit_code == 1
    assert "[prediction.unknown_method]" in refused.stderr
    assert "its methods are: fedbnr" in refused.stderr
    assert "mixture (distilled)" in run("card", tmp_path / "students").output


def test_a_card_is_shown_as_text_or_json(saved: Path, tmp_path: Path) -> None:
    assert "Global model" in run("card", saved).output
    assert json.loads(run("card", saved, "--json").stdout) == MODEL.artifact.card.to_plain()
    outcome = run("card", tmp_path / "nowhere")
    assert outcome.exit_code == 1
    assert "[global_model.not_found]" in outcome.stderr


def test_the_version_is_printed_without_loading_torch() -> None:
    program = (
        "import sys; from client_sdk.terminal.command import application; "
        "application()(['--version'], standalone_mode=False); "
        "sys.exit('torch' in sys.modules)"
    )
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


def test_a_row_band_is_chosen_by_somebody_with_a_name(tmp_path: Path) -> None:
    home = tmp_path / "home"
    chosen = run("row-band", 16384, "--by", "Dr Ada", "--home", home, "--source", "wards")
    assert chosen.exit_code == 0, chosen.output
    assert "row_band = 16384" in chosen.output
    store = Home(home).read()
    assert (store.row_band("wards"), store.row_band("table")) == (16384, None)
    store.close()
    assert run("row-band", 5000, "--by", "Dr Ada", "--home", home).exit_code != 0
    assert run("row-band", 4096, "--by", " ", "--home", home).exit_code != 0
    assert run("row-band", 4096, "--home", home).exit_code == 2
