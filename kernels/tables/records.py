"""A table read and checked by its schema (`kernels.tables.checked_rows`), as tensors."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.tables.checked_rows import CheckedRows, check_in_pieces
from kernels.tables.checked_rows import exposure_columns as exposure_columns
from kernels.tables.chunks import chunks
from kernels.tables.problems import Problems
from kernels.tables.schema import Schema


@dataclass(frozen=True, eq=False, repr=False)
class Records:
    """n rows with K numeric and C categorical columns and T targets; the repr shows no cell.

    >>> from kernels.tables.schema import Numeric, Target
    >>> schema = Schema((Numeric("age", "a", upper=120),), (Target("stay", "d"),))
    >>> Records.for_training(schema, {"age": [61, 47], "stay": [3.5, 1], "ward": ["A", "B"]})
    Records(2 rows)
    >>> Records.for_prediction(schema, {"age": [61, 147]}).outside.tolist()
    [[False], [True]]
    >>> Records.for_training(schema, {"age": [None, 147]})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    kernels.errors.TableRefused: the table does not match its schema:
      - column 'stay': it is not in the table; add it, or correct its spelling
      - column 'age': 1 of 2 cells are missing (row 0, counted from 0); fill them in, ...
      - column 'age': 1 of 2 cells are not within (−∞, 120] a (row 1, counted from 0); ...
    """

    schema: Schema
    numeric: Tensor
    """(n, K) float64, raw; 0 where missing."""
    missing: Tensor
    """(n, K) bool: whether a cell of `numeric` is missing."""
    outside: Tensor
    """(n, K) bool: whether a cell of `numeric` is out of bounds; never in training."""
    levels: Tensor
    """(n, C) int64, the positions of levels in the schema; −1 where missing."""
    targets: Tensor | None
    """(n, T) float64, raw, of the targets that are real numbers; None if read for prediction."""
    outcomes: Tensor | None
    """(n, C) float64, the columns of the other targets (`kernels.tables.outcome_cells`); None if
    read for prediction."""
    patients: tuple[str, ...] | None
    """n labels, equal for the rows of one patient; None if the schema has no patient column, or if
    read for prediction."""
    exposures: Tensor | None = None
    """(n, E) float64, the columns `exposure_columns(schema)`, 1 where the table has none; None if
    read for training, where `outcomes` contains them."""

    @classmethod
    def for_training(cls, schema: Schema, table: Mapping[str, object]) -> "Records":
        """Read features, targets and the patient column; numbers out of bounds are refused.

        A body temperature of 370 must not influence a model, and the bounds later determine the
        size of the noise and of the encoding.
        """
        (records,) = read_in_pieces(schema, [table])
        return records

    @classmethod
    def for_prediction(cls, schema: Schema, table: Mapping[str, object]) -> "Records":
        """Read the features, and exposures if there are any; mark numbers out of bounds."""
        (records,) = read_in_pieces(schema, [table], training=False)
        return records

    @classmethod
    def of(cls, checked: CheckedRows) -> "Records":
        """Return rows as tensors that share their memory."""
        targets, outcomes, exposures = checked.targets, checked.outcomes, checked.exposures
        return cls(
            checked.schema,
            torch.from_numpy(checked.numeric),
            torch.from_numpy(checked.missing),
            torch.from_numpy(checked.outside),
            torch.from_numpy(checked.levels),
            None if targets is None else torch.from_numpy(targets),
            None if outcomes is None else torch.from_numpy(outcomes),
            checked.patients,
            None if exposures is None else torch.from_numpy(exposures),
        )

    @property
    def checked(self) -> CheckedRows:
        """The rows as arrays, which share the tensors' memory."""
        return CheckedRows(
            self.schema,
            self.numeric.numpy(),
            self.missing.numpy(),
            self.outside.numpy(),
            self.levels.numpy(),
            None if self.targets is None else self.targets.numpy(),
            None if self.outcomes is None else self.outcomes.numpy(),
            self.patients,
            None if self.exposures is None else self.exposures.numpy(),
        )

    @classmethod
    def none(cls, schema: Schema) -> "Records":
        """Return an empty table, as if read for training."""
        return cls.of(CheckedRows.none(schema))

    def take(self, chosen: Tensor) -> "Records":
        """Return the chosen rows, possibly none; `chosen` is a bool for each row."""
        patients = self.patients
        if patients is not None:
            patients = tuple(p for p, own in zip(patients, chosen.tolist(), strict=True) if own)
        return Records(
            self.schema,
            self.numeric[chosen],
            self.missing[chosen],
            self.outside[chosen],
            self.levels[chosen],
            None if self.targets is None else self.targets[chosen],
            None if self.outcomes is None else self.outcomes[chosen],
            patients,
            None if self.exposures is None else self.exposures[chosen],
        )

    def between(self, rows: slice) -> "Records":
        """Return a slice of rows, without copying cells."""
        if rows == slice(0, len(self)):
            return self
        return Records(
            self.schema,
            self.numeric[rows],
            self.missing[rows],
            self.outside[rows],
            self.levels[rows],
            None if self.targets is None else self.targets[rows],
            None if self.outcomes is None else self.outcomes[rows],
            None if self.patients is None else self.patients[rows],
            None if self.exposures is None else self.exposures[rows],
        )

    def in_pieces(self, rows: int) -> Iterator["Records"]:
        """Yield consecutive pieces of at most `rows` rows."""
        for piece in chunks(len(self), rows):
            yield self.between(piece)

    @classmethod
    def concatenate(cls, parts: Sequence["Records"]) -> "Records":
        """Return the rows of several records of one schema, one after another."""
        targets = [part.targets for part in parts if part.targets is not None]
        outcomes = [part.outcomes for part in parts if part.outcomes is not None]
        patients = [part.patients for part in parts if part.patients is not None]
        exposures = [part.exposures for part in parts if part.exposures is not None]
        return cls(
            parts[0].schema,
            torch.cat([part.numeric for part in parts]),
            torch.cat([part.missing for part in parts]),
            torch.cat([part.outside for part in parts]),
            torch.cat([part.levels for part in parts]),
            torch.cat(targets) if len(targets) == len(parts) else None,
            torch.cat(outcomes) if len(outcomes) == len(parts) else None,
            tuple(p for part in patients for p in part) if len(patients) == len(parts) else None,
            torch.cat(exposures) if len(exposures) == len(parts) else None,
        )

    def __len__(self) -> int:
        return len(self.numeric)

    def __repr__(self) -> str:
        return f"Records({len(self)} rows)"


def read_in_pieces(
    schema: Schema,
    pieces: Iterable[Mapping[str, object]],
    *,
    training: bool = True,
    problems: Problems | None = None,
) -> Iterator[Records]:
    """Yield the records of each piece of a table, as `check_in_pieces` yields its rows."""
    checked = check_in_pieces(schema, pieces, training=training, problems=problems)
    return map(Records.of, checked)
