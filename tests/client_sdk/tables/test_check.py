"""`check_table`: what a table has, column by column, for the site's own eyes."""

import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from client_sdk import check_table
from client_sdk.errors import ClientError
from client_sdk.tables.reading import read_site
from kernels.errors import KernelsError
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import Binary, Count, Target, TimeToEvent
from tests.dealing import DEALING

ROWS = 300
RANDOM = np.random.default_rng(1)
TABLE: dict[str, list[Any]] = {
    "age": RANDOM.integers(30, 80, ROWS).tolist(),
    "chol": [0 if row % 5 == 0 else 150 + (row * 37) % 211 for row in range(ROWS)],
    "ward": [
        ("medical", "surgical", "eye")[(row % 40 == 7) + (row % 3 == 0)] for row in range(ROWS)
    ],
    "dead": [None if row == 9 else int(row % 7 < 2) for row in range(ROWS)],
    "stay": RANDOM.exponential(5, ROWS).tolist(),
}
SCHEMA = Schema(
    (
        Numeric("age", "a", 0, 120),
        Numeric("chol", "mg/dl", 50, 600, may_be_missing=True, missing_codes=(0.0,)),
        Categorical("ward", ("medical", "surgical", "eye"), may_be_missing=True),
    ),
    (Binary("dead", ("0", "1"), event="1"), Target("stay", "d", lower=0)),
)


def _doubts(cells: Any, name: str = "x", kind: Any = None, **table: Any) -> str:
    """Return what is said about a further feature."""
    column = kind or Numeric(name, "1", may_be_missing=True)
    schema = Schema((*SCHEMA.features, column), SCHEMA.targets)
    report = check_table({**TABLE, **table, name: cells}, schema)
    assert report.fits, report.misfits
    return "; ".join(report.column(name).doubts)


def test_the_report_has_kind_rows_missing_levels_and_range_of_each_column() -> None:
    report = check_table({**TABLE, "note": ["x"] * ROWS}, SCHEMA)
    assert report.fits
    assert (report.rows, report.without_target, report.ignored) == (ROWS, 1, ("note",))
    chol, ward, dead = (report.column(name) for name in ("chol", "ward", "dead"))
    assert (chol.role, chol.kind, chol.unit, chol.rows) == ("feature", "numeric", "mg/dl", ROWS)
    assert (chol.missing, chol.coded, chol.missing_rate) == (60, 60, 0.2)
    assert (chol.least, chol.most, chol.lower, chol.upper) == (150, 360, 50, 600)
    assert [*ward.levels] == ["medical", "surgical", "eye"]
    assert sum(ward.levels.values()) == ROWS
    assert ward.rare_levels == {"eye": TABLE["ward"].count("eye")}
    assert (dead.role, dead.kind, dead.missing, dead.coded) == ("target", "binary", 1, 0)
    assert report.fewest_level_rows == TABLE["ward"].count("eye")
    assert [own.name for own in report.outcomes] == ["dead"]
    assert [own.name for own in report.columns] == ["age", "chol", "ward", "dead", "stay"]
    assert all(not own.doubts for own in report.columns)


def test_the_report_is_the_same_for_every_form_of_a_table(tmp_path: Path) -> None:
    frame = pd.DataFrame(TABLE)
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    expected = check_table(TABLE, SCHEMA).columns
    for data in (frame, pa.table(TABLE), tmp_path / "t.csv.gz"):
        assert check_table(data, SCHEMA.to_json()).columns == expected


def test_columns_of_counts_times_and_patients_are_reported() -> None:
    schema = Schema(
        SCHEMA.features[:1],
        (Count("visits", "visits", 50, "years"), TimeToEvent("t", "d", "died", horizon=9)),
        patient="id",
    )
    columns = {"visits": [1] * ROWS, "years": [2.0] * ROWS, "t": TABLE["stay"]}
    report = check_table(
        {**TABLE, **columns, "died": TABLE["dead"], "id": [*map(str, range(ROWS))]}, schema
    )
    assert [(own.name, own.role, own.kind) for own in report.columns] == [
        ("age", "feature", "numeric"),
        ("visits", "target", "count"),
        ("years", "target", "count"),
        ("t", "target", "time_to_event"),
        ("died", "target", "time_to_event"),
        ("id", "patient", "patient"),
    ]
    assert report.column("died").levels == {
        "0": TABLE["dead"].count(0),
        "1": TABLE["dead"].count(1),
    }


def test_cells_that_do_not_fit_are_shown_here_and_in_no_exception(tmp_path: Path) -> None:
    bad = {name: [*cells] for name, cells in TABLE.items()}
    bad["age"][3:6] = ["SECRET", "SECRET", 470]
    bad["ward"][7] = "SECRET\x1b[2J"
    frame = pd.DataFrame(bad)
    frame.to_csv(tmp_path / "t.csv", index=False)
    for data, number in ((frame, "470"), (tmp_path / "t.csv", "'470'"), (bad, "470")):
        report = check_table(data, SCHEMA)
        assert not report.fits
        assert report.outcomes == ()
        assert [(own.column, [*map(str, own.cells)]) for own in report.misfits] == [
            ("age", ["'SECRET' (row 3, 2 times)"]),
            ("age", [f"{number} (row 5)"]),
            ("ward", ["'SECRET\\x1b[2J' (row 7)"]),
        ]
        assert all("SECRET" not in own.sentence for own in report.misfits)
        with pytest.raises((ClientError, KernelsError)) as raised:
            read_site(data, SCHEMA, held_out=0.0, dealing=DEALING)
        assert "SECRET" not in "".join(traceback.format_exception(raised.value))


def test_cells_are_found_in_any_piece_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("client_sdk.tables.frames.BATCH_ROWS", 64)
    ages = [*TABLE["age"]]
    ages[70], ages[299] = 999, -5
    (misfit,) = check_table(pd.DataFrame({**TABLE, "age": ages}), SCHEMA).misfits
    assert sorted(map(str, misfit.cells)) == ["-5 (row 299)", "999 (row 70)"]


def test_a_missing_column_and_columns_of_another_length_are_misfits() -> None:
    without = {name: cells for name, cells in TABLE.items() if name != "age"}
    report = check_table(without, SCHEMA)
    assert [own.column for own in report.misfits] == ["age"]
    assert report.column("age").rows == 0
    assert not check_table({**TABLE, "age": [1, None]}, SCHEMA).fits
    assert not check_table({name: [] for name in TABLE}, SCHEMA).fits


COPIES: dict[str, Any] = {
    "itself": lambda: TABLE["dead"],
    "its opposite": lambda: [None if own is None else 1 - own for own in TABLE["dead"]],
    "missing where nobody died": lambda: [
        row / 7 if TABLE["dead"][row] else None for row in range(ROWS)
    ],
    "far apart": lambda: [row + 1000 * (TABLE["dead"][row] or 0) + 0.5 for row in range(ROWS)],
    "other units": lambda: [24 * own for own in TABLE["stay"]],
    "logarithms": lambda: np.log(TABLE["stay"]).tolist(),
    "nearly": lambda: [own + (row == 4) * 0.01 for row, own in enumerate(TABLE["stay"])],
}


@pytest.mark.parametrize("what", COPIES)
def test_a_column_that_is_nearly_a_target_is_doubted(what: str) -> None:
    name = "dead" if what in [*COPIES][:4] else "stay"
    assert f"nearly a copy of the target's column '{name}'" in _doubts(COPIES[what]())


def test_a_categorical_copy_of_a_target_is_doubted() -> None:
    kind = Categorical("x", ("alive", "deceased"), may_be_missing=True)
    cells = [None if own is None else ("alive", "deceased")[own] for own in TABLE["dead"]]
    assert "copy of the target's column 'dead'" in _doubts(cells, kind=kind)


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ([None] * ROWS, "all its cells are missing"),
        ([None] * 290 + [1.5, 2.5] * 5, "97 % of its cells are missing"),
        ([0] * ROWS, "all cells that are there are 0"),
        (RANDOM.permutation(100_000)[:ROWS].tolist(), "nearly all different"),
        ([-9 if row % 9 == 0 else 100 + row % 50 for row in range(ROWS)], "-9 occurs 34 times"),
        ([999 if row == 5 else 5 + row % 50 for row in range(ROWS)], "999 occurs once"),
    ],
)
def test_what_is_odd_about_numbers_is_said(cells: list[Any], says: str) -> None:
    assert says in _doubts(cells)


@pytest.mark.parametrize("name", ["site", "hospital_name", "Centre", "patient_id", "id", "MRN"])
def test_names_of_sites_and_identifiers_are_doubted(name: str) -> None:
    kind = Categorical(name, ("a", "b", "c"))
    assert "by its name it" in _doubts(["a", "b", "c"] * 100, name, kind)


@pytest.mark.parametrize("name", ["opposite", "outside", "fluid", "node", "sitosterol", "period"])
def test_innocent_names_and_measurements_are_not_doubted(name: str) -> None:
    assert _doubts(RANDOM.normal(size=ROWS).tolist(), name) == ""


def test_nothing_is_said_about_copies_in_a_few_rows() -> None:
    schema = Schema((Numeric("x", "1"),), (Target("y", "1"),))
    assert check_table({"x": [1, 2, 4], "y": [1, 2, 4]}, schema).columns[0].doubts == ()
