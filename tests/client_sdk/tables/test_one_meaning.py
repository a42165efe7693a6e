"""A cell means the same in every format: one table, one digest."""

import gzip
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.errors import UnreadableFile
from client_sdk.tables.draft import draft
from client_sdk.tables.opening import open_table
from client_sdk.tables.reading import read_site
from kernels.rounds.site.site import Part, Site
from kernels.tables.cells import read_label
from kernels.tables.labels import canonical_label
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import Binary, Target
from tests.dealing import DEALING

SCHEMA = Schema(
    (
        Numeric("chol", "mg/dl", 50, 700, may_be_missing=True, missing_codes=(0.0, "?")),
        Categorical("ward", ("1", "2"), may_be_missing=True, missing_codes=("9",)),
        Categorical("dose", ("0.5", "1", "1.25"), may_be_missing=True),
        Categorical("smokes", ("false", "true"), may_be_missing=True),
    ),
    (Target("stay", "d"), Binary("dead", ("0", "1"), event="1", missing_codes=("9",))),
    patient="id",
)
COLUMNS: dict[str, list[Any]] = {
    "chol": [200.5, 0.0, None, 233.0, 0.1 + 0.2 + 100],
    "ward": [1.0, 2.0, None, 9.0, 1.0],
    "dose": [0.5, 1.0, None, 1.25, 0.5],
    "smokes": [True, None, False, True, False],
    "stay": [3.0, None, 7.25, 2.0, 1.0],
    "dead": [0.0, 1.0, 9.0, 1.0, 0.0],
    "id": [101.0, 102.0, 103.0, 101.0, 104.0],
}


def _site(data: object, schema: Schema = SCHEMA) -> Site:
    return read_site(data, schema, held_out=0.0, dealing=DEALING)


def _written(write: Callable[[Path], object], name: str) -> Callable[[Path], Path]:
    def file(folder: Path) -> Path:
        write(folder / name)
        return folder / name

    return file


def _gzipped(path: Path) -> None:
    plain = path.with_suffix(".plain")
    pl.DataFrame(COLUMNS).write_csv(plain)
    path.write_bytes(
        gzip.compress(plain.read_bytes()[:40]) + gzip.compress(plain.read_bytes()[40:])
    )


FRAME = pd.DataFrame(COLUMNS)
FORMS: dict[str, Callable[[Path], object]] = {
    "lists": lambda _: COLUMNS,
    "numpy": lambda _: (np.array([*COLUMNS.values()], dtype=object).T, [*COLUMNS]),
    "pandas": lambda _: FRAME,
    "pandas with its nullable types": lambda _: FRAME.convert_dtypes(),
    "pandas with texts": lambda _: FRAME.assign(
        ward=["1.0", "2", None, "9.0", "1"], chol=[200.5, "?", None, 233, 0.1 + 0.2 + 100]
    ),
    "pandas with single precision": lambda _: FRAME.astype({"dose": np.float32, "dead": np.int8}),
    "polars": lambda _: pl.DataFrame(COLUMNS),
    "arrow": lambda _: pa.table(COLUMNS),
    "arrow with decimals": lambda _: pa.table(
        {**COLUMNS, "ward": pa.array([1, 2, None, 9, 1], pa.decimal128(12, 3))}
    ),
    "CSV by pandas": _written(lambda path: FRAME.to_csv(path, index=False), "t.csv"),
    "CSV by polars": _written(lambda path: pl.DataFrame(COLUMNS).write_csv(path), "t.csv"),
    "CSV by arrow": _written(lambda path: pa.csv.write_csv(pa.table(COLUMNS), path), "t.csv"),
    "CSV.gz by pandas": _written(lambda path: FRAME.to_csv(path, index=False), "t.csv.gz"),
    "CSV.gz in two members": _written(_gzipped, "T.CSV.GZ"),
    "Parquet": _written(lambda path: pq.write_table(pa.table(COLUMNS), path), "t.parquet"),
    "Parquet by pandas": _written(lambda path: FRAME.to_parquet(path), "t.pq"),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_format_gives_the_same_table_and_the_same_digest(form: str, tmp_path: Path) -> None:
    expected = _site(COLUMNS)
    site = _site(FORMS[form](tmp_path))
    assert site.digest == expected.digest
    assert site.without_target == expected.without_target == 2
    records = site.records[Part.TRAINING]
    assert records.levels.tolist() == [[0, 0, 1], [-1, 2, 1], [0, 0, 0]]
    assert records.patients == ("101", "101", "104")


def test_levels_as_software_writes_them_are_the_same_levels(tmp_path: Path) -> None:
    written = Schema(
        (
            Categorical("ward", ("1.0", "2.0"), other="2.0"),
            Categorical("smokes", ("False", "True")),
        ),
        (Target("stay", "d"),),
    )
    columns = {"ward": [1, 2, 7], "smokes": [True, False, True], "stay": [1, 2, 3]}
    pd.DataFrame(columns).to_csv(tmp_path / "w.csv", index=False)
    for data in (columns, tmp_path / "w.csv", pd.DataFrame(columns).astype({"ward": float})):
        assert _site(data, written).records[Part.TRAINING].levels.tolist() == [
            [0, 1],
            [1, 0],
            [1, 1],
        ]


def test_drafts_of_every_format_are_the_same(tmp_path: Path) -> None:
    rows = {"ward": [1.0, 2.0, None] * 20, "code": ["007", "7", "NA"] * 20, "y": [0.5, 1, 2] * 20}
    pd.DataFrame(rows).to_csv(tmp_path / "t.csv.gz", index=False)
    frames = (tmp_path / "t.csv.gz", pd.DataFrame(rows), pl.DataFrame(rows), pa.table(rows))
    assert len({draft(data, targets=["y"]) for data in frames}) == 1


@given(
    st.one_of(
        st.floats(),
        st.integers(-(10**20), 10**20),
        st.booleans(),
        st.floats(width=32).map(np.float32),
    )
)
@settings(max_examples=200)
def test_a_number_and_what_software_writes_for_it_are_one_label(cell: Any) -> None:
    for text in (str(cell), repr(float(cell)) if isinstance(cell, float) else str(cell)):
        if not (isinstance(cell, float) and math.isnan(cell)):
            assert read_label(text) == read_label(cell)
    label = read_label(cell)
    assert label is not None
    assert canonical_label(label) == label


@given(st.text(max_size=6))
def test_other_text_is_its_own_label(text: str) -> None:
    assert canonical_label(canonical_label(text)) == canonical_label(text)
    if not any(letter.isdigit() for letter in text) and text.lower() not in (
        "true",
        "false",
        "nan",
    ):
        assert canonical_label(text) == text


def test_decimals_are_numbers_by_their_digits() -> None:
    digits = ["0.1", "2.675", "1234567890123456.7", "-0.000001"]
    table = {"x": pa.array([*map(Decimal, digits)], pa.decimal128(30, 8))}
    schema = Schema((Numeric("x", "1"),), (Target("y", "1"),))
    read = _site({**table, "y": [1, 2, 3, 4]}, schema).records[Part.TRAINING]
    assert read.numeric[:, 0].tolist() == [*map(float, digits)]


def test_damaged_compressed_files_are_refused_by_name(tmp_path: Path) -> None:
    whole = gzip.compress(b"age,stay\n" + b"61,SECRET\n" * 100_000)
    schema = Schema((Numeric("age", "a"),), (Target("stay", "d"),))
    for content, says in (
        (b"age,stay\n1,2\n", "not compressed with gzip"),
        (whole[:12], "line 1 is not a header"),
        (whole[:-200], "the compressed file is damaged or incomplete"),
        (whole[:300] + bytes(40) + whole[340:], "the compressed file is damaged or incomplete"),
    ):
        path = tmp_path / "t.csv.gz"
        path.write_bytes(content)
        with pytest.raises(UnreadableFile, match=says) as raised:
            _site(path, schema)
        assert str(path) in str(raised.value)
        assert "SECRET" not in str(raised.value)


def test_a_line_without_an_end_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a" * (1 << 24)))
    with pytest.raises(UnreadableFile, match="line 1 is not a header"):
        open_table(path)
