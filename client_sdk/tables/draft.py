"""A draft schema for a table, to be edited: only what the table shows, nothing guessed.

The table shows the columns' types, their levels and whether cells are missing. It does not show
units: they are UNKNOWN until someone writes them, and `veilgp check` requires them. Bounds are left
open: they must come from what is medically possible, because the extreme values of a table belong
to two patients.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from client_sdk.errors import DraftError
from client_sdk.tables.opening import open_table
from kernels.tables.arrow_cells import Column, as_labels, as_numbers
from kernels.tables.cells import are_dates, read_labels, read_numbers
from kernels.tables.schema import Categorical, Feature, Numeric, Schema
from kernels.tables.targets import Target

UNKNOWN = "?"
"""The unit of a number in a draft."""

MOST_LEVELS = 30
"""A text column with more distinct labels is not treated as categorical."""

FEW_ROWS = 10
"""A level with fewer rows should be merged with others."""

_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T].*)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}( .*)?")


@dataclass(frozen=True)
class Draft:
    """A schema with unknown units, and advice on what to decide before it is used."""

    schema: Schema
    advice: tuple[str, ...]

    def to_json(self) -> str:
        """Return the schema as indented JSON, for editing."""
        return json.dumps(json.loads(self.schema.to_json()), indent=2, ensure_ascii=False)


def unfinished(schema: Schema) -> list[str]:
    """Return a sentence for each column whose unit is still unknown."""
    columns: tuple[Numeric | Target, ...] = (*schema.numeric, *schema.real)
    return [
        f"column {column.name!r}: its unit is still {UNKNOWN!r}: write the unit, or '1' if it has "
        "none"
        for column in columns
        if column.unit.strip() == UNKNOWN
    ]


def draft(data: object, *, targets: Sequence[str], patient: str | None = None) -> Draft:
    """Read all rows of a table, and return a draft schema with these targets."""
    source = open_table(data)
    named = [*targets, *([] if patient is None else [patient])]
    absent = [repr(name) for name in named if name not in source.columns]
    if absent:
        raise DraftError(f"{source.name} has no column {', '.join(absent)}: correct the names")
    seen = {name: ColumnSeen() for name in source.columns if name != patient}
    for batch in source.batches([*seen]):
        for name, column in batch.items():
            seen[name].look(column, text=source.numbers_are_text)
    features: list[Feature] = []
    advice: list[str] = []
    for name, column in seen.items():
        if name in targets:
            if not column.numeric:
                raise DraftError(
                    f"the target {name!r} has cells that are not numbers: correct them, or choose "
                    "another target"
                )
            continue
        feature = column.feature(name)
        if feature is not None:
            features.append(feature)
        advice += [f"column {name!r}: {sentence}" for sentence in column.advice(name)]
    if not features:
        raise DraftError(f"{source.name} has no usable feature columns besides the targets")
    schema = Schema(tuple(features), tuple(Target(name, UNKNOWN) for name in targets), patient)
    if schema.numeric or schema.real:
        advice.append(
            f"write the unit of every number in place of {UNKNOWN!r}, and bounds that are "
            "medically possible, not those of this table: its extreme values belong to single "
            "patients"
        )
    return Draft(schema, tuple(advice))


@dataclass
class ColumnSeen:
    """What has been read of a column so far."""

    rows: int = 0
    missing_numbers: int = 0
    missing_labels: int = 0
    numeric: bool = True
    dates: bool = False
    labels: Counter[str] | None = field(default_factory=Counter)
    """Rows per label; None once there are too many labels, or cells that are not labels."""

    def look(self, column: Column, *, text: bool) -> None:
        """Read the cells of a batch."""
        cells = as_numbers(column, text=text)
        values, no_number = read_numbers(cells)
        self.rows += len(values)
        self.numeric &= not bool(no_number.any())
        self.missing_numbers += int((np.isnan(values) & ~no_number).sum())
        labels, own = read_labels(as_labels(column))
        self.dates |= are_dates(cells) or (text and _look_like_dates(labels))
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
            if self.labels is not None and len(self.labels) <= FEW_ROWS:
                found.append("it has few distinct numbers; if they are codes, make it categorical")
            return found
        if not self.labels:
            return [*found, f"left out: it is text with more than {MOST_LEVELS} distinct labels"]
        rare = [repr(label) for label in sorted(self.labels) if self.labels[label] < FEW_ROWS]
        if rare:
            found.append(
                f"fewer than {FEW_ROWS} rows have {', '.join(rare)}; merge these levels, or remove "
                "them and set 'other' to the level that replaces them"
            )
        return found


def _look_like_dates(labels: Sequence[str | None]) -> bool:
    texts = [label for label in labels if label]
    return bool(texts) and all(map(_DATE.fullmatch, texts))
