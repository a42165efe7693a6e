"""Every type of table is read alike, or refused with a named error that quotes no cell."""

import datetime
import decimal
import math
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from client_sdk.errors import (
    ClientError,
    DifferentColumns,
    DuplicateColumns,
    EmptySource,
    FileNotThere,
    NotATable,
    TableSourceError,
    UnknownSuffix,
    UnreadableFile,
)
from client_sdk.tables.opening import open_table
from client_sdk.tables.reading import read_site
from client_sdk.tables.summary import summarise
from kernels.errors import KernelsError, NotALabel, NotNumeric, TableRefused
from kernels.rounds.site.site import Part, Site
from kernels.tables.records import Records
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import Target
from tests.dealing import DEALING

SCHEMA = Schema(
    (
        Numeric("age", "a", 0, 120, may_be_missing=True),
        Categorical("ward", ("1", "2"), may_be_missing=True),
        Categorical("smokes", ("false", "true"), may_be_missing=True),
    ),
    (Target("stay", "d", lower=0),),
    patient="id",
)
COLUMNS: dict[str, list[Any]] = {
    "age": [61, None, 80, 47],
    "ward": [1, 2, None, 1],
    "smokes": [True, None, False, True],
    "stay": [3.5, 1.0, 7.0, 2.25],
    "id": ["a", "b", "a", "c"],
    "note": ["SECRET", "SECRET", None, ""],
}
CSV = """age,ward,smokes,stay,id,note
61,1,true,3.5,a,SECRET
,2,,1.0,b,SECRET
 80 ,,false,7,a,
4.7e1,1,true,2.25,c,"SECRET, indeed
with a line"
"""


def records(data: object, schema: Schema = SCHEMA) -> Records:
    site = read_site(data, schema, held_out=0.0, dealing=DEALING)
    return site.records[Part.TRAINING]


def refusal(data: object, schema: Schema = SCHEMA) -> str:
    with pytest.raises((ClientError, KernelsError)) as raised:
        records(data, schema)
    told = "".join(traceback.format_exception(raised.value))
    assert "SECRET" not in told
    return str(raised.value)


def frame(**changes: Any) -> pd.DataFrame:
    return pd.DataFrame({**COLUMNS, **changes})


def structured() -> np.ndarray[Any, Any]:
    kinds = [("age", "f8"), ("ward", "O"), ("smokes", "O"), ("stay", "f4"), ("id", "U1")]
    cells = [*zip(*(COLUMNS[name] for name, _ in kinds), strict=True)]
    return np.array([tuple(math.nan if c is None else c for c in row) for row in cells], kinds)


def matrix() -> tuple[np.ndarray[Any, Any], list[str]]:
    return np.array([*COLUMNS.values()], dtype=object).T, [*COLUMNS]


KINDS: dict[str, Callable[[], object]] = {
    "a mapping of lists": lambda: COLUMNS,
    "a mapping of series": lambda: {
        "age": pd.Series([61, pd.NA, 80, 47], dtype="Int64"),
        "ward": pl.Series([1, 2, None, 1]),
        "smokes": pa.array([True, None, False, True]),
        "stay": np.array([3.5, 1, 7, 2.25]),
        "id": pa.chunked_array([["a", "b"], ["a", "c"]]),
    },
    "pandas' marks in lists": lambda: {**COLUMNS, "age": [61, pd.NA, 80, 47]},
    "a structured array": structured,
    "an array with names": matrix,
    "pandas": frame,
    "pandas with its nullable types": lambda: frame().convert_dtypes(),
    "pandas on arrow": lambda: frame().convert_dtypes(dtype_backend="pyarrow"),
    "pandas with categories": lambda: frame(ward=pd.Categorical(["1", "2", None, "1"])),
    "pandas with mixed objects": lambda: frame(ward=["1", 2, pd.NaT, 1.0]),
    "pandas with decimals": lambda: frame(
        age=[decimal.Decimal(61), None, decimal.Decimal("80.0"), decimal.Decimal(47)]
    ),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "polars with categories": lambda: pl.DataFrame(
        {**COLUMNS, "ward": pl.Series(["1", "2", None, "1"], dtype=pl.Categorical)}
    ),
    "polars with enumerations": lambda: pl.DataFrame(
        {**COLUMNS, "ward": pl.Series(["1", "2", None, "1"], dtype=pl.Enum(["2", "1"]))}
    ),
    "arrow": lambda: pa.table(COLUMNS),
    "an arrow batch": lambda: pa.RecordBatch.from_pydict(COLUMNS),
    "arrow with dictionaries": lambda: pa.table(
        {
            **COLUMNS,
            "ward": pa.chunked_array(
                [
                    pa.array(["1", "2"]).dictionary_encode(),
                    pa.array([None, "1"]).dictionary_encode(),
                ]
            ),
            "id": pa.array(COLUMNS["id"]).dictionary_encode(),
        }
    ),
    "arrow with decimals": lambda: pa.table(
        {
            **COLUMNS,
            "age": pa.array([61, None, 80, 47], pa.decimal128(9, 2)),
            "ward": pa.array([1, 2, None, 1], pa.decimal128(4, 0)),
        }
    ),
    "arrow with small types": lambda: pa.table(
        {
            **COLUMNS,
            "age": pa.array([61, None, 80, 47], pa.uint8()),
            "stay": pa.array(COLUMNS["stay"], pa.float32()),
            "ward": pa.array([1.0, 2.0, None, 1.0], pa.float32()),
            "id": pa.array(COLUMNS["id"], pa.large_string()),
        }
    ),
}


@pytest.fixture(scope="module")
def expected() -> Site:
    return Site.of_table(SCHEMA, COLUMNS, held_out=0.0, dealing=DEALING)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table_is_read_alike(kind: str, expected: Site) -> None:
    read = read_site(KINDS[kind](), SCHEMA, held_out=0.0, dealing=DEALING)
    assert read.digest == expected.digest
    assert read.records[Part.TRAINING].patients == ("a", "b", "a", "c")


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("kind", ["a mapping of series", "pandas", "polars", "arrow"])
def test_tables_in_memory_are_read_in_pieces(
    kind: str, rows: int, expected: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("arrays", "frames"):
        monkeypatch.setattr(f"client_sdk.tables.{module}.BATCH_ROWS", rows)
    pieces: list[int] = []
    read = read_site(KINDS[kind](), SCHEMA, held_out=0.0, dealing=DEALING, watch=pieces.append)
    assert read.digest == expected.digest
    assert len(pieces) == math.ceil(4 / rows)


def written(folder: Path) -> dict[str, Path]:
    """The same table as files of every format."""
    paths = {name: folder / name for name in ("t.csv", "semicolons.csv", "bom.CSV", "t.parquet")}
    paths["t.csv"].write_text(CSV)
    simple = [",".join(line.split(",")[:6]) for line in CSV.splitlines()[:5]]
    paths["semicolons.csv"].write_text("\r\n".join(simple).replace(",", ";").replace('"', ""))
    paths["bom.CSV"].write_text(CSV, encoding="utf-8-sig")
    pq.write_table(pa.table(COLUMNS), paths["t.parquet"], row_group_size=3)
    for name in ("csv", "parquet"):
        paths[name] = folder / f"{name} files"
        paths[name].mkdir()
        (paths[name] / "_SUCCESS").touch()
    lines = CSV.splitlines(keepends=True)
    (paths["csv"] / "1.csv").write_text("".join(lines[:2]))
    (paths["csv"] / "2.csv").write_text("".join(lines[:1] + lines[2:]))
    (paths["csv"] / "3.csv").write_text(lines[0])
    table = pa.table(COLUMNS)
    pq.write_table(table[:3], paths["parquet"] / "1.parquet")
    turned = table[3:].select([*reversed(table.column_names)])
    pq.write_table(turned, paths["parquet"] / "2.pq")
    return paths


def test_files_and_folders_are_read_like_tables_in_memory(tmp_path: Path, expected: Site) -> None:
    for path in written(tmp_path).values():
        for data in (path, str(path)):
            assert (
                read_site(data, SCHEMA, held_out=0.0, dealing=DEALING).digest == expected.digest
            ), path


def test_codes_in_csv_keep_their_zeros(tmp_path: Path) -> None:
    schema = Schema((Categorical("code", ("007", "7")),), (Target("y", "1"),), patient="id")
    path = tmp_path / "codes.csv"
    path.write_text("code,id,y\n007,01,1\n7,1,2\n")
    read = records(path, schema)
    assert read.levels.tolist() == [[0], [1]]
    assert read.patients == ("01", "1")


def test_words_for_missing_are_missing_numbers_and_never_missing_labels(tmp_path: Path) -> None:
    schema = Schema(
        (Numeric("age", "a", may_be_missing=True), Categorical("code", ("NA", "b"))),
        (Target("y", "1"),),
    )
    path = tmp_path / "t.csv"
    path.write_text("age,code,y\nNA,NA,1\nNULL,b,2\nnan,b,3\n5,b,4\n")
    read = records(path, schema)
    assert read.missing[:, 0].tolist() == [True, True, True, False]
    assert read.levels[:, 0].tolist() == [0, 1, 1, 1]


def many_rows(path: Path, rows: int) -> None:
    lines = [f"{40 + i % 30},{1 + i % 2},true,{i % 9},p{i},SECRET" for i in range(rows)]
    lines[700] = "SECRET,1,true,3,p,SECRET"
    lines[rows - 5] = "7.125.000,SECRET,true,SECRET,,SECRET"
    path.write_text("\n".join(["age,ward,smokes,stay,id,note", *lines]))


def test_a_streamed_file_and_a_frame_in_memory_tell_the_same_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    many_rows(path, 2000)
    whole = refusal(path)
    assert "'age': 2 of 2000 cells are not numbers (rows 700, 1995, counted from 0)" in whole
    assert "'stay': 1 of 2000 cells are not numbers (row 1995" in whole
    assert "'ward': 1 of 2000 cells match none of the levels '1', '2' (row 1995" in whole
    assert "'id': 1 of 2000 cells are missing (row 1995" in whole
    monkeypatch.setattr("client_sdk.tables.csv_file._BLOCK", 5000)
    assert refusal(path) == whole
    cells = [line.split(",") for line in path.read_text().splitlines()]
    columns: dict[str, list[Any]] = dict(
        zip(cells[0], map(list, zip(*cells[1:], strict=True)), strict=True)
    )
    for name in ("age", "stay"):
        columns[name] = [float(c) if c.isdigit() else c for c in columns[name]]
    assert refusal(pd.DataFrame(columns)) == whole
    monkeypatch.setattr("client_sdk.tables.frames.BATCH_ROWS", 300)
    assert refusal(pd.DataFrame(columns)) == whole


def test_dates_are_refused_with_what_to_do() -> None:
    day = datetime.date(2024, 2, 29)
    for dates in (
        [day] * 4,
        pd.to_datetime(["2024-02-29", None, "2024-02-29", "2024-03-01"]),
        pa.array([day, None, day, day]),
        pa.array([datetime.timedelta(1)] * 4),
    ):
        with pytest.raises(TableRefused, match=r"dates or times.*days since admission") as raised:
            records({**COLUMNS, "age": dates} if isinstance(dates, pa.Array) else frame(age=dates))
        assert type(raised.value.problems[0]) is NotNumeric
    with pytest.raises(TableRefused, match="dates or times") as raised:
        records(frame(ward=[day] * 4))
    assert type(raised.value.problems[0]) is NotALabel
    # A column that the schema does not read may contain anything.
    records(frame(note=[day] * 4))


def test_types_without_a_meaning_are_refused_by_column() -> None:
    for cells in ([[1]] * 4, [b"SECRET"] * 4, [{"SECRET": 1}] * 4):
        for name in ("age", "ward", "id"):
            assert f"column {name!r}" in refusal(pa.table({**COLUMNS, name: cells}))
            assert f"column {name!r}" in refusal(frame(**{name: cells}))


def test_booleans_and_text_are_no_numbers_outside_csv() -> None:
    for cells in (["61", None, "80", "47"], [True, None, False, True]):
        for table in (frame(age=cells), pl.DataFrame({**COLUMNS, "age": cells})):
            assert "'age': 3 of 4 cells are not numbers (rows 0, 2, 3" in refusal(table)


@pytest.mark.parametrize(
    ("data", "kind", "says"),
    [
        (3, NotATable, "int is not a supported table"),
        ([1, 2], NotATable, "list is not a supported table"),
        (pl.LazyFrame(COLUMNS), NotATable, "collect"),
        (np.ones((3, 2)), NotATable, "array, names"),
        ((np.ones((3, 2)), ["age"]), NotATable, "1 column names"),
        ((np.ones((3, 2)), ["age", "age"]), DuplicateColumns, "'age'"),
        (pd.DataFrame([[1, 2]], columns=["age", "age"]), DuplicateColumns, "'age'"),
        (pa.table([[1], [2]], names=["age", "age"]), DuplicateColumns, "'age'"),
        ("/nowhere/table.csv", FileNotThere, "/nowhere/table.csv"),
        (Path("/nowhere"), FileNotThere, "/nowhere does not exist"),
    ],
)
def test_what_is_no_table_is_refused_by_name(
    data: object, kind: type[TableSourceError], says: str
) -> None:
    with pytest.raises(kind, match=says):
        open_table(data)


def test_files_that_are_no_tables_are_refused_by_name(tmp_path: Path) -> None:
    cases: list[tuple[str, bytes, type[TableSourceError], str]] = [
        ("t.xlsx", b"", UnknownSuffix, "must end in .csv, .csv.gz, .parquet"),
        ("empty.csv", b"", EmptySource, "no header"),
        ("twice.csv", b"age,stay,age\n1,2,3\n", DuplicateColumns, "'age'"),
        ("latin.csv", "alter,größe\n1,2\n".encode("latin-1"), UnreadableFile, "line 1"),
        ("no.parquet", b"age,stay\nSECRET,2\n", UnreadableFile, "not a Parquet file"),
        ("empty.parquet", b"", UnreadableFile, "not a Parquet file"),
    ]
    for name, content, kind, says in cases:
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(kind, match=says) as raised:
            open_table(path)
        assert name in str(raised.value)


def test_lines_of_another_length_are_counted_and_numbered(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = CSV.splitlines()[:4]
    path.write_text("\n".join([*lines, "SECRET,1", *lines[1:], "1,2,3,4,5,6,SECRET"]))
    told = refusal(path)
    assert f"{path}: 2 lines" in told
    assert "(line 5, 9; the header is line 1)" in told


def test_damaged_files_are_named_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(CSV.encode() + b"61,\xff,true,3.5,a,SECRET\n")
    assert f"{path}: line 7 is not in UTF-8" in refusal(path)
    path = tmp_path / "t.parquet"
    big = pa.table({name: cells * 300 for name, cells in COLUMNS.items()})
    pq.write_table(big, path, row_group_size=400, compression="zstd", use_dictionary=False)
    content = bytearray(path.read_bytes())
    place = pq.ParquetFile(path).metadata.row_group(1).column(3).data_page_offset
    content[place : place + 60] = bytes(60)
    path.write_bytes(content)
    assert f"{path}: row group 1" in refusal(path)


def test_a_folder_is_one_table_or_refused(tmp_path: Path) -> None:
    with pytest.raises(EmptySource, match="no CSV or Parquet"):
        open_table(tmp_path)
    (tmp_path / "1.csv").write_text("age,stay\n1,2\n")
    (tmp_path / "2.csv").write_text("age,Stay\n1,2\n")
    with pytest.raises(DifferentColumns, match=r"2\.csv.*'Stay', 'stay'"):
        open_table(tmp_path)
    (tmp_path / "2.csv").unlink()
    pq.write_table(pa.table({"age": [1], "stay": [2]}), tmp_path / "2.parquet")
    with pytest.raises(DifferentColumns, match="both CSV and Parquet"):
        open_table(tmp_path)
    (tmp_path / "2.parquet").unlink()
    (tmp_path / "half.xlsx").touch()
    with pytest.raises(UnknownSuffix, match=r"half\.xlsx"):
        open_table(tmp_path)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_without_rows_or_without_any_column_of_the_schema(
    tmp_path: Path, suffix: str
) -> None:
    def file(columns: dict[str, list[Any]]) -> Path:
        path = tmp_path / f"t.{suffix}"
        if suffix == "csv":
            pd.DataFrame(columns).to_csv(path, index=False)
        else:
            pq.write_table(pa.table(columns), path)
        return path

    empty = refusal(file({name: [] for name in COLUMNS}))
    assert empty == refusal(frame()[:0]) == refusal({name: [] for name in COLUMNS})
    assert "no rows" in empty
    strange = refusal(file({"other": [1, 2]}))
    assert strange == refusal({"other": [1, 2]})
    assert strange.count("it is not in the table") == 5


def test_a_column_with_a_point_in_its_name_is_read(tmp_path: Path) -> None:
    schema = Schema((Numeric("blood.pressure", "mmHg"),), (Target("y", "1"),))
    pq.write_table(pa.table({"blood.pressure": [120, 80], "y": [1, 2]}), tmp_path / "t.parquet")
    assert records(tmp_path / "t.parquet", schema).numeric.tolist() == [[120], [80]]


def test_a_table_that_is_open_stays_so(tmp_path: Path) -> None:
    for data in (COLUMNS, frame(), structured(), *written(tmp_path).values()):
        opened = open_table(data)
        assert open_table(opened) is opened


def test_a_summary_has_the_counts_that_a_policy_asks_for() -> None:
    n = 200
    table = {
        "age": [50] * n,
        "ward": ["1"] * 190 + [None] * 10,
        "smokes": [True] * 40 + [False] * 160,
        "stay": [1.0] * n,
        "id": [f"p{i}" for i in range(n)],
    }
    whole = summarise(read_site(table, SCHEMA, held_out=0.0, dealing=DEALING))
    assert (whole.rows, whole.training_rows) == (n, n)
    assert whole.level_rows == {"ward": {"1": 190}, "smokes": {"true": 40, "false": 160}}
    assert whole.fewest_level_rows == 40
    dealt = summarise(read_site(table, SCHEMA, held_out=0.5, dealing=DEALING))
    assert dealt.rows == n
    assert 70 < dealt.training_rows < 130
    assert sum(dealt.level_rows["smokes"].values()) == dealt.training_rows
