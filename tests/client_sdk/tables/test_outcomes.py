"""Outcomes in every type of table are read alike, and summarised for the site's own eyes."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from client_sdk.tables.outcome_summary import CountSummary, LevelsSummary, TimeSummary
from client_sdk.tables.reading import read_site
from client_sdk.tables.summary import summarise
from kernels.errors import TableRefused
from kernels.rounds.site.site import Site
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Binary, Classes, Count, Target, TimeToEvent
from tests.dealing import DEALING

READMITTED = Binary("readmitted", ("yes", "no"), event="yes")
STAGE = Classes("stage", ("01", "02", "3"))
VISITS = Count("visits", "visits", upper=50, exposure="years")
DEATH = TimeToEvent("days", "d", event="died", edges=(10.0, 20.0))
SCHEMA = Schema(
    (Numeric("age", "a", 0, 120),), (READMITTED, STAGE, Target("stay", "d"), VISITS, DEATH), "id"
)
COLUMNS: dict[str, list[Any]] = {
    "age": [61, 50, 80, 47, 33],
    "readmitted": ["yes", "no", "no", "yes", "no"],
    "stage": ["01", "02", "01", "3", "01"],
    "stay": [3.5, 1.0, 7.0, 2.25, 1.0],
    "visits": [0, 2, 0, 5, 1],
    "years": [1.0, 0.5, 2.0, 1.0, 1.5],
    "days": [0.0, 5.0, 25.0, 15.0, 30.0],
    "died": [1, 0, 1, 1, 0],
    "id": ["a", "b", "a", "c", "d"],
}


def _site(data: object, schema: Schema = SCHEMA) -> Site:
    return read_site(data, schema, held_out=0.0, dealing=DEALING)


def test_outcomes_of_every_type_of_table_are_read_alike(tmp_path: Path) -> None:
    expected = Site.of_table(SCHEMA, COLUMNS, held_out=0.0, dealing=DEALING).digest
    frame = pd.DataFrame(COLUMNS)
    frame.to_csv(tmp_path / "t.csv", index=False)
    pq.write_table(pa.table(COLUMNS), tmp_path / "t.parquet", row_group_size=2)
    for data in (
        COLUMNS,
        frame,
        frame.convert_dtypes(dtype_backend="pyarrow"),
        frame.assign(died=frame["died"].astype(float), stage=pd.Categorical(frame["stage"])),
        pl.DataFrame(COLUMNS),
        pa.table({**COLUMNS, "visits": pa.array(COLUMNS["visits"], pa.decimal128(5, 0))}),
        {**COLUMNS, "visits": np.array(COLUMNS["visits"], np.uint8)},
        tmp_path / "t.csv",
        tmp_path / "t.parquet",
    ):
        assert _site(data).digest == expected


def test_booleans_are_events_in_files_as_in_memory(tmp_path: Path) -> None:
    schema = Schema(
        SCHEMA.features,
        (TimeToEvent("days", "d", "died", horizon=20, happened="true", censored="false"),),
    )
    flags = {**COLUMNS, "died": [bool(each) for each in COLUMNS["died"]]}
    pq.write_table(pa.table(flags), tmp_path / "t.parquet")
    lower = {**COLUMNS, "died": [str(each).lower() for each in flags["died"]]}
    pd.DataFrame(lower).to_csv(tmp_path / "t.csv", index=False)
    digests = {_site(data, schema).digest for data in (flags, tmp_path / "t.parquet", lower)}
    assert digests == {_site(tmp_path / "t.csv", schema).digest}


def test_words_for_missing_are_missing_counts_and_times_and_never_missing_labels(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.csv"
    frame = pd.DataFrame(COLUMNS).astype({"visits": object, "days": object})
    frame.loc[1, ["visits", "days"]] = ["NA", ""]
    frame.to_csv(path, index=False)
    assert _site(path).without_target == 1
    frame.loc[2, ["readmitted"]] = ["NA"]
    frame.to_csv(path, index=False)
    with pytest.raises(TableRefused, match="'readmitted': 1 of 5 cells are none of the levels"):
        _site(path)


def test_a_summary_shows_events_classes_counts_and_times() -> None:
    summary = summarise(_site(COLUMNS))
    assert summary.outcomes == (
        LevelsSummary(READMITTED, rows=(2, 3)),
        LevelsSummary(STAGE, rows=(3, 1, 1)),
        CountSummary(VISITS, rows=5, total=8.0, largest=5.0, zeros=2, exposure=6.0),
        TimeSummary(DEATH, events=3, censored=2, at_zero=1, late=1, unknown=1),
    )
    assert summary.level_rows == {
        "readmitted": {"yes": 2, "no": 3},
        "stage": {"01": 3, "02": 1, "3": 1},
        "died": {"1": 3, "0": 2},
    }
    assert summary.ranges == {
        "age": (33.0, 80.0),
        "stay": (1.0, 7.0),
        "visits": (0.0, 5.0),
        "years": (0.5, 2.0),
        "days": (0.0, 30.0),
    }


def test_outcomes_are_summarised_over_all_parts_and_in_any_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = {name: cells * 40 for name, cells in COLUMNS.items()}
    many["id"] = [f"p{row}" for row in range(200)]
    whole = summarise(_site(many))
    monkeypatch.setattr("client_sdk.tables.summary.CHUNK_ROWS", 7)
    dealt = summarise(read_site(many, SCHEMA, held_out=0.5, dealing=DEALING))
    assert dealt.outcomes == whole.outcomes
    assert sum(dealt.level_rows["died"].values()) == dealt.training_rows < 200


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"readmitted": ["no"] * 5}, "all rows here have 'no'"),
        ({"stage": ["01", "02"] * 2 + ["01"]}, "no row here has '3'"),
        ({"visits": [0] * 5}, "all counts here are 0"),
        ({"died": [0] * 5}, "no event here"),
        ({"died": [1] * 5}, "every row here has the event"),
        ({}, "1 events are at time 0"),
        ({"days": [90.0] * 5}, "most events are after the last edge"),
        ({"days": [0.1] * 5, "died": [0, 0, 0, 0, 1]}, "observed for less than one interval"),
    ],
)
def test_what_is_odd_about_outcomes_is_said(changes: dict[str, Any], says: str) -> None:
    summary = summarise(_site({**COLUMNS, **changes}))
    assert says in " ".join(text for own in summary.outcomes for text in own.doubts())
