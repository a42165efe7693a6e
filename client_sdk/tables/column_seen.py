"""What a table shows of one column, from which schemas and data dictionaries are drafted."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from client_sdk.tables.draft_limits import FEW_NUMBERS, FEW_ROWS, MOST_LEVELS, UNKNOWN
from kernels.tables.arrow_cells import Column, as_labels, as_numbers
from kernels.tables.cells import are_dates, read_labels, read_numbers
from kernels.tables.schema import Categorical, Feature, Numeric

_CODE = re.compile(r"0\d+")
"""Text with a leading zero is a code; of numbers the label has none."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T].*)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}( .*)?")


@dataclass
class ColumnSeen:
    """What has been read of a column so far.

    missing_codes: cells that mean "missing".
    """

    missing_codes: tuple[float | str, ...] = ()
    rows: int = 0
    missing_numbers: int = 0
    missing_labels: int = 0
    numeric: bool = True
    whole: bool = True
    """Whether all numbers are 0, 1, 2, …."""
    zeros: int = 0
    largest: float = 0.0
    dates: bool = False
    labels: Counter[str] | None = field(default_factory=Counter)
    """Rows per label; None once there are too many labels, or cells that are not labels."""

    def look(self, column: Column, *, text: bool) -> None:
        """Read the cells of a batch."""
        codes = self.missing_codes
        cells = as_numbers(column, text=text, missing_codes=codes)
        values, no_number = read_numbers(cells, codes)
        self.rows += len(values)
        self.numeric &= not bool(no_number.any())
        self.missing_numbers += int((np.isnan(values) & ~no_number).sum())
        present = values[np.isfinite(values)]
        self.whole &= bool(((present >= 0) & (present == np.floor(present))).all())
        self.zeros += int((present == 0).sum())
        self.largest = max(self.largest, float(present.max(initial=0.0)))
        labels, own = read_labels(as_labels(column), codes)
        self.dates |= are_dates(cells) or (text and _look_like_dates(labels))
        self.numeric &= not any(label and _CODE.fullmatch(label) for label in labels)
        counts = np.bincount(own, minlength=len(labels)).tolist()
        found = Counter[str]()
        for label, count in zip(labels, counts, strict=True):
            if label is None and count:
                self.labels = None
            elif label:
                found[label] += count
            elif label == "":
                self.missing_labels += count
        if self.labels is not None:
            self.labels += found
            if len(self.labels) > MOST_LEVELS:
                self.labels = None

    @property
    def missing(self) -> int:
        """Missing cells; in CSV more texts mean a missing number than a missing label."""
        return self.missing_numbers if self.numeric else self.missing_labels

    @property
    def rare_labels(self) -> str:
        """The labels that few rows have, in quotes; empty if there are none."""
        labels = self.labels or Counter()
        return ", ".join(repr(label) for label in sorted(labels) if labels[label] < FEW_ROWS)

    def feature(self, name: str) -> Feature | None:
        """Return the feature that this column becomes, or None."""
        may_be_missing = self.missing > 0
        if self.dates or self.missing == self.rows:
            return None
        if self.numeric:
            return Numeric(name, UNKNOWN, may_be_missing=may_be_missing)
        if not self.labels:
            return None
        return Categorical(name, tuple(sorted(self.labels)), may_be_missing=may_be_missing)

    def advice(self, name: str) -> list[str]:
        """Return what a person must decide about the column."""
        if self.dates:
            return ["left out: it has dates; convert them to numbers, such as days, to use them"]
        if self.missing == self.rows:
            return ["left out: all its cells are missing"]
        found = []
        if name.lower().endswith("id"):
            found.append("if it identifies the patient, remove it and pass it with --patient")
        if self.numeric:
            if self.labels is not None and len(self.labels) <= FEW_NUMBERS:
                found.append("it has few distinct numbers; if they are codes, make it categorical")
            return found
        if not self.labels:
            return [*found, f"left out: it is text with more than {MOST_LEVELS} distinct labels"]
        if rare := self.rare_labels:
            found.append(
                f"fewer than {FEW_ROWS} rows have {rare}; merge these levels, or remove them and "
                "set 'other' to the level that replaces them"
            )
        return found


def _look_like_dates(labels: Sequence[str | None]) -> bool:
    texts = [label for label in labels if label]
    return bool(texts) and all(map(_DATE.fullmatch, texts))
