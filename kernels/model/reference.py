"""A public reference sample: made-up rows over which a model's predictions are averaged.

The rows follow from the model's schema and standardiser, and from nothing else: no table is read,
and everyone with the model has the same rows. **Columns are drawn independently of each other**, so
some rows combine cells that no patient has.

    numeric       N(mean, scale²), truncated to mean ± 2.5 scales and to the schema's bounds; of a
                  column with a curve its normal scores are N(0, 1), truncated likewise
    categorical   each level in its share of the rows
    missing       never: a standardiser does not say how often a cell is missing

A numeric column has one cell in each of n intervals of equal probability, and a categorical one has
every level as often as n rows allow. Only the order of a column's cells is drawn (a Latin
hypercube, from the column's name), so an average over the rows has no error of chance for a
function that is a sum of functions of single columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.features.seeded_random import uniforms
from kernels.tables.curves import Curve
from kernels.tables.records import Records
from kernels.tables.schema import Categorical, Feature, Numeric, Schema
from kernels.tables.standardiser import Scale, Shares, Standardiser

REACH = 2.5
"""How far a numeric column's range goes to both sides of its mean at most, in scales."""
POINTS = 17
"""The number of points of a numeric column's range."""
_SEED = 0

Cell = float | str | None
"""A number, a level, or None if the cell is missing."""


@dataclass(frozen=True, eq=False)
class Axis:
    """The cells at which the effect of one column is computed.

    weights: (G,), the share of reference rows near each; they add up to 1. A missing cell, if there
    may be any, is the last one, and its weight is 0. features: (G, width), as the kernel reads
    them. where: the places of these features in a row.
    """

    column: Feature
    cells: tuple[Cell, ...]
    weights: Tensor
    features: Tensor
    where: slice

    def coarser(self, step: int) -> "Axis":
        """Return an axis with every `step`-th point of a numeric column, without a missing cell."""
        kept = torch.arange(len(self.cells))[self.weights > 0]
        kept = kept[::step] if isinstance(self.column, Numeric) else kept
        weights = self.weights[kept]
        cells = tuple(self.cells[int(i)] for i in kept)
        return Axis(self.column, cells, weights / weights.sum(), self.features[kept], self.where)


def reference_rows(schema: Schema, standardiser: Standardiser, count: int) -> Tensor:
    """Return `count` standardised rows (count, p), a function of the arguments alone."""
    numeric = [law.quantiles(_shuffled(name, count)) for name, law in _laws(schema, standardiser)]
    levels = [_levels(shares, _shuffled(shares.name, count)) for shares in standardiser.categorical]
    return standardiser.apply(_records(schema, numeric, levels, count)).features


def axes(schema: Schema, standardiser: Standardiser) -> tuple[Axis, ...]:
    """Return the axis of every feature column, in the order of the schema."""
    laws = dict(_laws(schema, standardiser))
    shares = {own.name: own for own in standardiser.categorical}
    cells = [
        laws[column.name].cells(laws[column.name].points).tolist()
        if isinstance(column, Numeric)
        else list(range(len(column.levels)))
        for column in schema.features
    ]
    features = _features_of(schema, standardiser, cells)
    found, first = [], 0
    for column, own in zip(schema.features, cells, strict=True):
        where = slice(first, first := first + len(column.feature_names))
        if isinstance(column, Numeric):
            named: tuple[Cell, ...] = tuple(own)
            weights = laws[column.name].weights
        else:
            named = column.levels
            weights = torch.tensor(shares[column.name].shares, dtype=torch.float64)
        if column.may_be_missing:
            named, weights = (*named, None), torch.cat([weights, weights.new_zeros(1)])
        rows = [*range(len(own)), *([len(features) - 1] if column.may_be_missing else [])]
        found.append(Axis(column, named, weights / weights.sum(), features[rows][:, where], where))
    return tuple(found)


def _features_of(
    schema: Schema, standardiser: Standardiser, cells: Sequence[Sequence[float]]
) -> Tensor:
    """Return the features of every column's cells, row by row, and a last row of missing cells.

    Columns with fewer cells than others repeat their last one.
    """
    most = max(map(len, cells))
    padded = [
        torch.tensor([*own, *[own[-1]] * (most - len(own) + 1)], dtype=torch.float64)
        for own in cells
    ]
    pairs = list(zip(schema.features, padded, strict=True))
    numeric = [own for column, own in pairs if isinstance(column, Numeric)]
    levels = [own.long() for column, own in pairs if isinstance(column, Categorical)]
    records = _records(schema, numeric, levels, most + 1)
    for index, column in enumerate(schema.numeric):
        records.missing[-1, index] = column.may_be_missing
    for index, labels in enumerate(schema.categorical):
        if labels.may_be_missing:
            records.levels[-1, index] = -1
    return standardiser.apply(records).features


def _records(
    schema: Schema, numeric: Sequence[Tensor], levels: Sequence[Tensor], count: int
) -> Records:
    def table(columns: Sequence[Tensor], kind: torch.dtype) -> Tensor:
        return torch.stack(list(columns), 1) if columns else torch.zeros(count, 0, dtype=kind)

    nowhere = torch.zeros(count, len(numeric), dtype=torch.bool)
    return Records(
        schema,
        numeric=table(numeric, torch.float64),
        missing=nowhere.clone(),
        outside=nowhere,
        levels=table(levels, torch.int64),
        targets=None,
        outcomes=None,
        patients=None,
    )


@dataclass(frozen=True)
class _Law:
    """The law of a numeric column: its scores, as the kernel reads them, are normal."""

    column: Numeric
    scale: Scale
    curve: Curve | None

    def _score(self, cell: float | None, otherwise: float) -> float:
        if cell is None:
            return otherwise
        z = (cell - self.scale.mean) / self.scale.scale
        return z if self.curve is None else self.curve.of(z)

    @property
    def ends(self) -> tuple[float, float]:
        """The scores within ±2.5 and within the bounds, or the nearest that the bounds allow."""
        lower = self._score(self.column.lower, -torch.inf)
        upper = self._score(self.column.upper, torch.inf)
        if max(lower, -REACH) < min(upper, REACH):
            return max(lower, -REACH), min(upper, REACH)
        # A mean outside the bounds, as noise can make it.
        if lower > 0:
            return lower, min(upper, lower + REACH)
        return max(lower, upper - REACH), upper

    @property
    def points(self) -> Tensor:
        """Scores at equal distances, (POINTS,)."""
        return torch.linspace(*self.ends, POINTS, dtype=torch.float64)

    @property
    def weights(self) -> Tensor:
        """The probability of the scores that are nearest to each point, not normalised."""
        at = self.points
        edges = torch.cat([at[:1], (at[1:] + at[:-1]) / 2, at[-1:]])
        weights: Tensor = torch.special.ndtr(edges).diff()
        return weights if float(weights.sum()) > _LEAST else edges.diff()

    def quantiles(self, shares: Tensor) -> Tensor:
        """Return the cells below which these shares of the column's cells are."""
        low, high = self.ends
        below = torch.special.ndtr(torch.tensor([low, high], dtype=torch.float64))
        if float(below[1] - below[0]) <= _LEAST:
            return self.cells(low + shares * (high - low))
        return self.cells(torch.special.ndtri(below[0] + shares * (below[1] - below[0])))

    def cells(self, scores: Tensor) -> Tensor:
        """Return the cells with these scores, within the bounds."""
        z = scores
        if self.curve is not None:
            z = Curve(self.curve.name, self.curve.to, self.curve.at).apply(scores)
        cells = self.scale.mean + self.scale.scale * z
        return cells.clamp(self.column.lower, self.column.upper) if self._bounded else cells

    @property
    def _bounded(self) -> bool:
        return self.column.lower is not None or self.column.upper is not None


def _laws(schema: Schema, standardiser: Standardiser) -> list[tuple[str, _Law]]:
    """Return the law of each numeric column by its name."""
    curves = {curve.name: curve for curve in standardiser.curves}
    return [
        (column.name, _Law(column, scale, curves.get(column.name)))
        for column, scale in zip(schema.numeric, standardiser.numeric, strict=True)
    ]


def _levels(shares: Shares, at: Tensor) -> Tensor:
    """Return positions of levels, each in its share of the rows."""
    ends = torch.tensor(shares.shares, dtype=torch.float64).cumsum(0)
    return torch.searchsorted(ends / ends[-1], at).clamp_max(len(shares.shares) - 1)


def _shuffled(name: str, count: int) -> Tensor:
    """Return the middles of `count` equal parts of (0, 1), in an order drawn from the name."""
    order = uniforms(_SEED, f"reference/{name}", count).argsort(stable=True)
    return (order.double() + 0.5) / count


_LEAST = 1e-9
"""A normal law with less than this in a range is as good as flat there."""
