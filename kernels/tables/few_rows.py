"""A fast path for a few rows in plain lists, read and standardised cell by cell.

`Records` and `Standardiser` process a table column by column. For one row, which is what most
callers of `/predict` send, that is about sixty operations on arrays of one cell, which take longer
than the prediction. Here the same arithmetic is done on Python floats, with bit-identical results.
Only valid tables are read; for all others `Records` finds the problems and reports them.
"""

from collections.abc import Mapping
from math import inf, isinf, isnan
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from kernels.tables.cells import read_label, read_number
from kernels.tables.curves import Curve
from kernels.tables.labels import canonical_label
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.standardiser import CLIP, Scale, Shares, Standardiser, features_of_levels

FEW = 16
"""The largest number of rows read here: for more than about a dozen, arrays are faster."""


class _Cell(NamedTuple):
    """The features of one cell, and whether it is out of bounds."""

    features: tuple[float, ...]
    outside: bool = False


class _Column(Protocol):
    def read(self, cell: object) -> _Cell | None:
        """Return the features of a cell; None if the cell is invalid."""


class _Number:
    def __init__(self, column: Numeric, scale: Scale, curve: Curve | None) -> None:
        self._mean, self._scale, self._curve = scale.mean, scale.scale, curve
        self._lower = -inf if column.lower is None else column.lower
        self._upper = inf if column.upper is None else column.upper
        self._indicator = (0.0,) if column.may_be_missing else ()
        self._missing = _Cell((0.0, 1.0)) if column.may_be_missing else None
        self._codes = frozenset(column.missing_codes)

    def read(self, cell: object) -> _Cell | None:
        number = read_number(cell, self._codes)
        if number is None or isinf(number):
            return None
        if isnan(number):
            return self._missing
        z = (number - self._mean) / self._scale
        if self._curve is not None:
            z = self._curve.of(z)
        z = min(max(z, -CLIP), CLIP)
        outside = number < self._lower or number > self._upper
        return _Cell((z, *self._indicator), outside)


class _Label:
    def __init__(self, column: Categorical, shares: Shares) -> None:
        *levels, missing = features_of_levels(shares).tolist()
        if not column.may_be_missing:
            levels = [each[:-1] for each in levels]
        self._levels = {
            canonical_label(level): _Cell(tuple(features))
            for level, features in zip(column.levels, levels, strict=True)
        }
        self._other = None if column.other is None else self._levels[canonical_label(column.other)]
        self._missing = _Cell(tuple(missing)) if column.may_be_missing else None
        self._codes = frozenset(map(canonical_label, column.missing_codes))

    def read(self, cell: object) -> _Cell | None:
        label = read_label(cell, self._codes)
        if label is None:
            return None
        return self._levels.get(label, self._other) if label else self._missing


class Read(NamedTuple):
    """The input of the kernel for n rows."""

    features: Tensor
    """(n, p) float64, as in `Rows`."""
    extrapolates: Tensor
    """(n,) bool: whether a numeric cell of the row is outside the schema's bounds."""


class FewRows:
    """A reader of tables of at most `FEW` rows, for the schema and standardiser of one model.

    >>> from kernels.tables.schema import Target
    >>> schema = Schema((Numeric("age", "a", 0, 120),), (Target("stay", "d"),))
    >>> rows = FewRows(schema, Standardiser((Scale("age", 50, 10),), (), (Scale("stay", 4, 3),)))
    >>> rows.read({"age": [45, 121]})
    Read(features=tensor([[-0.5000],
            [ 5.0000]], dtype=torch.float64), extrapolates=tensor([False,  True]))
    >>> rows.read({"age": ["45"]}) is None
    True
    """

    def __init__(self, schema: Schema, standardiser: Standardiser) -> None:
        standardiser.check(schema)
        curves = {curve.name: curve for curve in standardiser.curves}
        numeric, categorical = iter(standardiser.numeric), iter(standardiser.categorical)
        self._columns: list[tuple[str, _Column]] = [
            (
                column.name,
                _Number(column, next(numeric), curves.get(column.name))
                if isinstance(column, Numeric)
                else _Label(column, next(categorical)),
            )
            for column in schema.features
        ]

    def read(self, table: Mapping[str, object]) -> Read | None:
        """Return the rows of a table of plain lists; None if it is larger than `FEW` or invalid."""
        rows: list[list[float]] | None = None
        outside: list[bool] = []
        for name, column in self._columns:
            cells = table.get(name)
            if type(cells) is not list:
                return None
            if rows is None:
                rows, outside = [[] for _ in cells], [False] * len(cells)
            if not 0 < len(cells) == len(rows) <= FEW:
                return None
            for position, cell in enumerate(cells):
                found = column.read(cell)
                if found is None:
                    return None
                rows[position] += found.features
                outside[position] |= found.outside
        return Read(torch.tensor(rows, dtype=torch.float64), torch.tensor(outside))
