"""Counts, sums and sums of squares of a table's columns, for the same standardisation at all sites.

Sums are of u = (x − origin)/unit, not of x, because the variance Σu²/n − (Σu/n)² loses digits if
the mean is large compared with the deviation. If the schema has both bounds, origin is their middle
and unit half their distance, so that |u| ≤ 1, which also bounds the sums. With one bound, origin is
that bound; with none, it is 0; in both cases unit is 1. A column whose values are far from 0, such
as a year, should have bounds. A deviation of 10⁻ᵏ of the distance between the bounds (or of the
distance from the origin) is known to about 16 − 2k digits, so bounds need not be tight.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from kernels.errors import EmptyTable, NotFinite, StatisticsError, WrongShape
from kernels.tables.records import Records
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target

RESOLUTION = 2.0**-34
"""The smallest variance of u that is more than rounding, if |u| is bounded; otherwise it is
multiplied by Σu²/n. The rounding is that of the secure sum, whose fixed-point step this is, or that
of the subtraction."""


_NOTHING_KNOWN = 2.0**40
"""The scale, in units, of a column without a cell in training."""
_LARGEST_SCALE = 2.0**1000


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over rows; float64; `+` adds the rows of another table.

    For K numeric features, L levels of all the categorical ones together, and T targets.
    """

    rows: Tensor
    """() number of rows n."""
    missing: Tensor
    """(K,) missing cells of each numeric feature."""
    sums: Tensor
    """(K,) Σu over the cells that are not missing."""
    squares: Tensor
    """(K,) Σu² over the cells that are not missing."""
    levels: Tensor
    """(L,) number of rows at each level, one categorical feature after another."""
    target_sums: Tensor
    """(T,) Σu of each target."""
    target_squares: Tensor
    """(T,) Σu² of each target."""

    @classmethod
    def zero(cls, schema: Schema) -> "Moments":
        """Return the moments of an empty table, the neutral element of `+`."""
        per_feature = torch.zeros(len(schema.numeric), dtype=torch.float64)
        per_target = torch.zeros(len(schema.real), dtype=torch.float64)
        levels = sum(len(column.levels) for column in schema.categorical)
        return cls(
            rows=torch.zeros((), dtype=torch.float64),
            missing=per_feature,
            sums=per_feature,
            squares=per_feature,
            levels=torch.zeros(levels, dtype=torch.float64),
            target_sums=per_target,
            target_squares=per_target,
        )

    @classmethod
    def of(cls, records: Records) -> "Moments":
        """Return the sums over rows that were read for training."""
        schema = records.schema
        if records.targets is None:
            raise WrongShape(
                "these rows were read for prediction and have no targets; read them with "
                "Records.for_training"
            )
        sums, squares = _sums(schema.numeric, records.numeric, records.missing)
        nowhere = torch.zeros_like(records.targets, dtype=torch.bool)
        target_sums, target_squares = _sums(schema.real, records.targets, nowhere)
        levels = [
            torch.bincount(codes[codes >= 0], minlength=len(column.levels))
            for column, codes in zip(schema.categorical, records.levels.unbind(1), strict=True)
        ]
        return cls(
            rows=torch.tensor(len(records), dtype=torch.float64),
            missing=records.missing.sum(0).to(torch.float64),
            sums=sums,
            squares=squares,
            levels=torch.cat([torch.zeros(0, dtype=torch.int64), *levels]).to(torch.float64),
            target_sums=target_sums,
            target_squares=target_squares,
        )

    def __add__(self, other: "Moments") -> "Moments":
        if self._shapes() != other._shapes():
            raise WrongShape(
                "moments of different schemas cannot be added; use the same schema at all sites"
            )
        return Moments(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Moments)))

    def check(self, schema: Schema) -> None:
        """Refuse moments that no table of `schema` with at least one row can have."""
        if self._shapes() != Moments.zero(schema)._shapes():
            raise WrongShape("these moments belong to another schema; use those of this schema")
        for field in fields(self):
            sums = getattr(self, field.name)
            signed = field.name in ("sums", "target_sums")
            if not bool(sums.isfinite().all()) or not (signed or bool((sums >= 0).all())):
                raise StatisticsError(
                    f"moments.{field.name} contains negative, NaN or infinite values, which no "
                    "table can produce; compute and sum the moments again"
                )
        if self.rows < 1:
            raise EmptyTable("these moments are of 0 rows; at least one site must contribute rows")
        if bool((self.missing > self.rows).any()) or bool((self.levels > self.rows).any()):
            raise StatisticsError(
                "the moments count more missing cells, or more rows at a level, than rows, which "
                "no table can produce; compute and sum the moments again"
            )

    def _shapes(self) -> list[torch.Size]:
        return [getattr(self, f.name).shape for f in fields(self)]


def mean_and_scale(
    column: Numeric | Target, *, count: float, total: float, squares: float
) -> tuple[float, float]:
    """Return mean and population standard deviation in the column's unit, from Σu and Σu².

    The scale of a column that does not vary is 1, or the smallest deviation that these sums can
    distinguish from 0, if that is larger: in that case (narrower) bounds are needed to see whether
    the column varies, and a scale of 1 would clip a column that does. If all cells are missing, the
    mean is the origin, and the scale so large that every later cell counts as the mean: nothing is
    known of what a value of this column means.
    """
    origin, unit = origin_and_unit(column)
    if not count:
        return origin, min(_NOTHING_KNOWN * max(1.0, unit), _LARGEST_SCALE)
    mean = total / count
    square = squares / count
    bounded = column.lower is not None and column.upper is not None
    rounding = RESOLUTION * (1.0 if bounded else square)
    variance = square - mean**2
    if variance > rounding:
        return origin + unit * mean, unit * math.sqrt(variance)
    return origin + unit * mean, max(1.0, unit * math.sqrt(rounding))


def _sums(
    columns: Sequence[Numeric | Target], values: Tensor, missing: Tensor
) -> tuple[Tensor, Tensor]:
    """Return Σu and Σu² of each column of `values`, (n, len(columns)), over non-missing cells."""
    references = [origin_and_unit(column) for column in columns]
    origin, unit = torch.tensor(references, dtype=torch.float64).reshape(-1, 2).unbind(1)
    reach = torch.tensor([_reach(column) for column in columns], dtype=torch.float64)
    u = ((values - origin) / unit).clamp(-reach, reach).masked_fill(missing, 0.0)
    sums, squares = u.sum(0), u.square().sum(0)
    for column, square in zip(columns, squares.tolist(), strict=True):
        if not math.isfinite(square):
            raise NotFinite(
                f"the sum of squares of column {column.name!r} overflows float64; set bounds for "
                "the column in the schema, or use a larger unit"
            )
    return sums, squares


def _reach(column: Numeric | Target) -> float:
    """Return the largest |u|: rounding must not move a value at its bound beyond 1."""
    return math.inf if column.lower is None or column.upper is None else 1.0


def origin_and_unit(column: Numeric | Target) -> tuple[float, float]:
    """Return origin and unit of a column, for u = (x − origin)/unit."""
    lower, upper = column.lower, column.upper
    if lower is not None and upper is not None:
        return lower / 2 + upper / 2, upper / 2 - lower / 2
    bounds = [bound for bound in (lower, upper) if bound is not None]
    return float(bounds[0]) if bounds else 0.0, 1.0
