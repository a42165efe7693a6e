"""Counts, sums and sums of squares of a table's columns: what hospitals add to standardise alike.

Sums are of u = (x − origin)/unit, not of x, because the variance Σu²/n − (Σu/n)² loses its digits
where the mean is large beside the deviation. With both bounds in the schema, origin is their middle
and unit half their distance, so that |u| ≤ 1, which also bounds what is summed. With one bound,
origin is that bound; without, 0; and unit is 1. A column that is far from 0 in its own unit, such
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
from kernels.tables.schema import Numeric, Schema, Target

RESOLUTION = 2.0**-34
"""What a variance of u must exceed, times Σu²/n where |u| has no bound, to be more than rounding:
that of the secure sum, whose fixed-point step it is, or that of the subtraction."""


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
    """(K,) Σu over the cells that are there."""
    squares: Tensor
    """(K,) Σu² over the cells that are there."""
    levels: Tensor
    """(L,) rows at each level, one categorical feature after the other."""
    target_sums: Tensor
    """(T,) Σu of each target."""
    target_squares: Tensor
    """(T,) Σu² of each target."""

    @classmethod
    def zero(cls, schema: Schema) -> "Moments":
        """Return the moments of no rows, neutral for `+`."""
        per_feature = torch.zeros(len(schema.numeric), dtype=torch.float64)
        per_target = torch.zeros(len(schema.targets), dtype=torch.float64)
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
        """Sum over rows that were read for training."""
        schema = records.schema
        if records.targets is None:
            raise WrongShape(
                "rows that were read for prediction have no targets; read them for training"
            )
        sums, squares = _sums(schema.numeric, records.numeric, records.missing)
        nowhere = torch.zeros_like(records.targets, dtype=torch.bool)
        target_sums, target_squares = _sums(schema.targets, records.targets, nowhere)
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
            raise WrongShape("moments of different schemas do not add; use one schema everywhere")
        return Moments(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Moments)))

    def check(self, schema: Schema) -> None:
        """Refuse moments that are not those of any table of `schema` with at least one row."""
        if self._shapes() != Moments.zero(schema)._shapes():
            raise WrongShape("these moments are of another schema; sum those of this one")
        for field in fields(self):
            sums = getattr(self, field.name)
            signed = field.name in ("sums", "target_sums")
            if not bool(sums.isfinite().all()) or not (signed or bool((sums >= 0).all())):
                raise StatisticsError(
                    f"the {field.name} of the moments are negative or not finite, which no table "
                    "gives; sum the moments again"
                )
        if self.rows < 1:
            raise EmptyTable("these are the moments of no rows; let at least one site contribute")
        if bool((self.missing > self.rows).any()) or bool((self.levels > self.rows).any()):
            raise StatisticsError(
                "the moments have more missing cells or more rows at a level than rows, which no "
                "table gives; sum the moments again"
            )

    def _shapes(self) -> list[torch.Size]:
        return [getattr(self, f.name).shape for f in fields(self)]


def mean_and_scale(
    column: Numeric | Target, *, count: float, total: float, squares: float
) -> tuple[float, float]:
    """Return mean and population standard deviation in the column's unit, from Σu and Σu².

    The scale of a column that does not vary is 1, or the least deviation that these sums can tell
    from none, if that is more: then bounds (or narrower ones) are needed to see whether the column
    varies, and a scale of 1 would clip it if it does. Without any cell the mean is the origin.
    """
    origin, unit = origin_and_unit(column)
    mean = total / count if count else 0.0
    square = squares / count if count else 0.0
    bounded = column.lower is not None and column.upper is not None
    rounding = RESOLUTION * (1.0 if bounded else square)
    variance = square - mean**2
    if variance > rounding:
        return origin + unit * mean, unit * math.sqrt(variance)
    return origin + unit * mean, max(1.0, unit * math.sqrt(rounding))


def _sums(
    columns: Sequence[Numeric | Target], values: Tensor, missing: Tensor
) -> tuple[Tensor, Tensor]:
    """Sum u and u² of each column of `values`, (n, len(columns)), over cells not `missing`."""
    references = [origin_and_unit(column) for column in columns]
    origin, unit = torch.tensor(references, dtype=torch.float64).reshape(-1, 2).unbind(1)
    reach = torch.tensor([_reach(column) for column in columns], dtype=torch.float64)
    u = ((values - origin) / unit).clamp(-reach, reach).masked_fill(missing, 0.0)
    sums, squares = u.sum(0), u.square().sum(0)
    for column, square in zip(columns, squares.tolist(), strict=True):
        if not math.isfinite(square):
            raise NotFinite(
                f"the squares of column {column.name!r} overflow float64; give it bounds in the "
                "schema, or a larger unit"
            )
    return sums, squares


def _reach(column: Numeric | Target) -> float:
    """Return how far u is from 0: a value at its bound must not be beyond 1 by a rounding."""
    return math.inf if column.lower is None or column.upper is None else 1.0


def origin_and_unit(column: Numeric | Target) -> tuple[float, float]:
    """Return what u = (x − origin)/unit of a column is made with."""
    lower, upper = column.lower, column.upper
    if lower is not None and upper is not None:
        return lower / 2 + upper / 2, upper / 2 - lower / 2
    bounds = [bound for bound in (lower, upper) if bound is not None]
    return float(bounds[0]) if bounds else 0.0, 1.0
