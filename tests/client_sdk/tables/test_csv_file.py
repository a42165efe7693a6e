"""CSV files: which lines are refused, and what Arrow's threads get."""

import gzip
from pathlib import Path
from typing import Any

import pyarrow.csv
import pytest

from client_sdk.errors import UnreadableFile
from client_sdk.tables.csv_file import CsvFile


def test_lines_with_too_many_or_too_few_cells_are_named_together(tmp_path: Path) -> None:
    lines = ["a;b", "1;2", '"two\nlines";3', "4", "", "5;6;7", *["8;9"] * 3]
    path = tmp_path / "uneven.csv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    with pytest.raises(UnreadableFile, match=r"2 lines .* 2 \(line 5, 7; the header is line 1\)"):
        [*CsvFile(path).batches(["a", "b"])]


def test_arrows_threads_hold_nothing_of_python_when_the_interpreter_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that drops a handler while the interpreter ends aborts the process, now and then."""
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,2\n")
    parsing: list[pyarrow.csv.ParseOptions] = []
    reading = pyarrow.csv.open_csv

    def noting(*given: Any, **options: Any) -> Any:
        parsing.append(options["parse_options"])
        return reading(*given, **options)

    monkeypatch.setattr(pyarrow.csv, "open_csv", noting)
    assert len([*CsvFile(path).batches(["a"])]) == 1
    assert [own.invalid_row_handler for own in parsing] == [None]
