"""Reads `NAME.csv.gz` of the `--data` folder: a header, numbers, empty where a cell is missing."""

import csv
import gzip
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def read(folder: Path, name: str, *, texts: tuple[str, ...] = ()) -> dict[str, NDArray[Any]]:
    """Return the columns by name, numbers but for `texts`."""
    path = present(folder / f"{name}.csv.gz")
    with gzip.open(path, "rt", newline="") as file:
        reader = csv.reader(file)
        header = next(reader)
        columns = zip(*reader, strict=True)
        return {
            column: np.array(cells)
            if column in texts
            else np.array([float(cell) if cell else np.nan for cell in cells])
            for column, cells in zip(header, columns, strict=True)
        }


def present(path: Path) -> Path:
    """Return a path to a file; if it is missing, the run ends with a message."""
    if not path.exists():
        sys.exit(f"{path} is not there: docs/results.md says where the sets come from (--data)")
    return path


def levels(codes: NDArray[Any], names: Mapping[float, str]) -> NDArray[Any]:
    """Return numeric codes as texts, and None where a code is missing."""
    return np.array([None if np.isnan(code) else names[code] for code in codes], dtype=object)
