"""A CSV file, streamed; compressed with gzip if its name ends in .csv.gz.

The file must be UTF-8 with a header. The separator is the comma, semicolon or tab that gives the
header the most columns. Every cell is read as text: the schema, not the first rows, decides what it
means. Lines with too many or too few cells are counted over the whole file and refused together.
"""

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader, TextIOWrapper
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from client_sdk.errors import EmptySource, UnreadableFile
from client_sdk.tables.source import check_names
from kernels.tables.arrow_cells import Column

_BLOCK = 1 << 22
_LONGEST_HEADER = 1 << 22
"""In bytes: a compressed file could unfold to a line without an end."""
_SEPARATORS = (",", ";", "\t")
_LINES_SHOWN = 3
_DAMAGED = (OSError, EOFError, zlib.error)  # what reading a damaged gzip file raises


class CsvFile:
    """A CSV file; only the requested columns are read, in blocks of a few megabytes."""

    numbers_are_text = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._compressed = path.suffix.lower() == ".gz"
        self.name = str(path)
        names, self._separator, self._has_rows = self._header()
        check_names(self.name, names)
        self.columns = tuple(names)

    def batches(self, columns: Sequence[str]) -> Iterator[Mapping[str, Column]]:
        """Yield blocks; refuse the file at a line that has too many or too few cells.

        Arrow gets no `invalid_row_handler`: the thread that reads ahead drops the last reference to
        it, sometimes when the interpreter is ending already, and then the process is aborted
        (apache/arrow#43604; about 1 in 80 on a busy machine).
        """
        if not self._has_rows:
            return
        try:
            with pa.input_stream(
                str(self._path), compression="gzip" if self._compressed else None
            ) as file:
                blocks = pyarrow.csv.open_csv(
                    file,
                    read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK),
                    parse_options=pyarrow.csv.ParseOptions(
                        delimiter=self._separator,
                        newlines_in_values=True,
                    ),
                    convert_options=pyarrow.csv.ConvertOptions(
                        column_types=dict.fromkeys(columns, pa.string()),
                        include_columns=[*columns],
                        null_values=[""],
                        strings_can_be_null=True,
                    ),
                )
                for block in blocks:
                    yield {name: block.column(name) for name in columns}
        except (pa.ArrowException, OSError):
            # Arrow's own message may quote cells.
            wrong = self._uneven()
            if not wrong:
                raise UnreadableFile(
                    f"{self.name}: {self._place()}: save the file as CSV in UTF-8, and close every "
                    "quotation mark in the cell where it opens"
                ) from None
            shown = ", ".join(map(str, wrong[:_LINES_SHOWN]))
            more = " …" if len(wrong) > _LINES_SHOWN else ""
            raise UnreadableFile(
                f"{self.name}: {len(wrong)} lines have more or fewer cells than the header's "
                f"{len(self.columns)} (line {shown}{more}; the header is line 1): correct them, or "
                "quote cells that contain the separator"
            ) from None

    def _header(self) -> tuple[list[str], str, bool]:
        """Return the column names, the separator, and whether anything follows the header."""
        try:
            with self._opened() as file:
                line = file.readline(_LONGEST_HEADER).decode("utf-8-sig")
                has_rows = bool(file.read(1))
            headers = {each: next(csv.reader([line], delimiter=each), []) for each in _SEPARATORS}
        except PermissionError:
            raise UnreadableFile(
                f"{self.name}: permission denied: give this user permission to read it"
            ) from None
        except gzip.BadGzipFile:
            raise UnreadableFile(
                f"{self.name} is not compressed with gzip: correct the end of its name"
            ) from None
        except (UnicodeDecodeError, csv.Error, *_DAMAGED):
            raise UnreadableFile(
                f"{self.name}: line 1 is not a header in UTF-8: save the file as CSV in UTF-8"
            ) from None
        separator = max(headers, key=lambda each: len(headers[each]))
        names = headers[separator]
        if not any(names):
            raise EmptySource(f"{self.name} has no header: its first line must name the columns")
        return names, separator, has_rows

    def _opened(self) -> gzip.GzipFile | BufferedReader:
        return gzip.open(self._path) if self._compressed else self._path.open("rb")

    def _uneven(self) -> list[int]:
        """Return the lines with more or fewer cells than the header; none if not all can be read.

        A cell may go over several lines; then it is the line in which the row ends.
        """
        try:
            with self._opened() as file:
                text = TextIOWrapper(file, encoding="utf-8-sig", newline="")
                rows = csv.reader(text, delimiter=self._separator)
                return [rows.line_num for row in rows if row and len(row) != len(self.columns)]
        except (UnicodeDecodeError, csv.Error, *_DAMAGED):
            return []

    def _place(self) -> str:
        """Return which line is not in UTF-8, if that is the problem."""
        try:
            with self._opened() as file:
                for number, line in enumerate(file, 1):
                    try:
                        line.decode()
                    except UnicodeDecodeError:
                        return f"line {number} is not in UTF-8"
        except _DAMAGED:
            return "the compressed file is damaged or incomplete"
        return "a line is damaged"
