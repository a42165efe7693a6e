"""The cells of one column of a schema, counted, with a sample of the first rows.

Numbers and labels are read as the schema reads them, but whether they fit is not asked here: a
table that does not fit should be shown, too.
"""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from kernels.tables.arrow_cells import Column, as_labels, as_numbers
from kernels.tables.cells import read_labels, read_numbers

SAMPLE = 50_000
"""Of how many rows the cells are kept, to compare columns with each other."""
MOST_LABELS = 100_000
"""Of how many distinct labels the rows are counted."""

Codes = tuple[float | str, ...]


class Tally:
    """What has been read of a column so far.

    rows, missing: cells, and missing ones. coded: how many of these have a missing code.
    """

    def __init__(self, codes: Codes) -> None:
        self.rows = self.missing = self.coded = 0
        self._codes = codes
        self._kept: list[NDArray[np.float64]] = []
        self._sampled = 0

    def look(self, column: Column, *, text: bool) -> None:
        """Read the cells of a batch; `text`: numbers are written as text."""
        raise NotImplementedError

    @property
    def sample(self) -> NDArray[np.float64]:
        """The first cells, NaN where missing or unreadable; labels are numbered."""
        return np.concatenate([*self._kept, np.empty(0)])

    def _add(self, values: NDArray[np.float64], missing: int, plainly_missing: int) -> None:
        self.rows += len(values)
        self.missing += missing
        self.coded += missing - plainly_missing
        if self._sampled < SAMPLE:
            self._kept.append(values[: SAMPLE - self._sampled])
            self._sampled += len(self._kept[-1])


class NumberTally(Tally):
    """A column of numbers. least, most: the range of those that are finite."""

    def __init__(self, codes: Codes) -> None:
        super().__init__(codes)
        self.least, self.most = np.inf, -np.inf

    def look(self, column: Column, *, text: bool) -> None:
        """Read the cells of a batch."""
        values, missing = self._read(column, self._codes, text=text)
        plainly = self._read(column, (), text=text)[1] if self._codes else missing
        finite = values[np.isfinite(values)]
        self.least = min(self.least, float(finite.min(initial=np.inf)))
        self.most = max(self.most, float(finite.max(initial=-np.inf)))
        self._add(np.where(np.isfinite(values), values, np.nan), missing, plainly)

    @staticmethod
    def _read(column: Column, codes: Codes, *, text: bool) -> tuple[NDArray[np.float64], int]:
        cells = as_numbers(column, text=text, missing_codes=codes)
        values, no_number = read_numbers(cells, codes)
        return values, int((np.isnan(values) & ~no_number).sum())


class LabelTally(Tally):
    """A column of labels. labels: rows of each label, up to `MOST_LABELS` of them."""

    def __init__(self, codes: Codes) -> None:
        super().__init__(codes)
        self.labels: Counter[str] = Counter()
        self._numbers: dict[str, float] = {}

    def look(self, column: Column, *, text: bool) -> None:  # noqa: ARG002
        """Read the cells of a batch."""
        cells = as_labels(column)
        labels, own = read_labels(cells, self._codes)
        plain = read_labels(cells)[0] if self._codes else labels
        counts = np.bincount(own, minlength=len(labels)).tolist()
        missing = sum(count for label, count in zip(labels, counts, strict=True) if label == "")
        plainly = sum(count for label, count in zip(plain, counts, strict=True) if label == "")
        for label, count in zip(labels, counts, strict=True):
            if label and (label in self.labels or len(self.labels) < MOST_LABELS):
                self.labels[label] += count
        numbers = np.array([self._number(label) for label in labels], np.float64)
        self._add(numbers[own], missing, plainly)

    def _number(self, label: str | None) -> float:
        if not label:
            return np.nan
        return self._numbers.setdefault(label, float(len(self._numbers)))
