"""What each column does to a model's predictions, from the model alone; no row of a table is read.

The effect of a column at a cell is the model's mean prediction over the reference rows
(`kernels.model.reference`), each with this cell: partial dependence. With f(c, r) the prediction of
reference row r with the column's cell replaced by c, and w_c the share of rows near c,

    curve at c    f̄(c) = mean_r f(c, r)
    alone         Var_c f̄(c) / V             the share of the predictions' variance that follows
                                             from this column alone
    total         mean_r Var_c f(c, r) / V   that share together with all interactions of the
                                             column: by how much redrawing it moves predictions
    V             the variance of predictions over a larger reference sample

where means and variances over c have the weights w_c. alone ≤ total, and they are equal if the
column interacts with no other; shares of a sum of functions of single columns add up to 1. Of
classes, variances are summed over classes. A missing cell is a point of the curve and has no
weight.

What is predicted is what `/predict` calls the mean: a real target's mean, the probability of the
event or of each class, the expected count for an exposure of 1, the risk by the horizon.

`deviation` is that of f̄(c) under the posterior: how uncertain the model is about the average. It is
neither the spread of single rows' predictions nor that of patients, and it knows nothing of what
the model cannot represent. Of a real target, f̄ is linear in the weights, and the deviation is exact
(recalibrated as predictions are). Of other targets, predictions of two rows are taken to be as
correlated as their latent functions, linearised at each row.

**Limits.** Columns are correlated in patients, and are not in the reference rows: where cells of
two columns exclude each other, the model is asked about patients that do not exist, and two columns
that say the same share what they do. An effect is the model's, not a cause.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from kernels.errors import PredictionError
from kernels.model.averages import averaged
from kernels.model.model import Model, check_fitted, known
from kernels.model.reference import Axis, Cell, axes, reference_rows
from kernels.tables.schema import Feature
from kernels.tables.targets import AnyTarget, Classes

ROWS = 32
"""The reference rows of a curve."""
_ROWS_OF_V = 1024
_ROWS_TO_RANK = 16
_STEP_TO_RANK = 4
_NO_VARIANCE = 1e-12
"""Predictions whose deviation is a smaller share of their size than this differ by rounding."""


@dataclass(frozen=True, eq=False)
class TargetEffect:
    """What one column does to the predictions of one target.

    levels: those of classes, whose curves are K; otherwise empty, and K is 1. mean, deviation:
    (G, K) in the target's unit. alone, total: shares from 0 to 1.
    """

    target: AnyTarget
    levels: tuple[str, ...]
    mean: Tensor
    deviation: Tensor
    alone: float
    total: float


@dataclass(frozen=True, eq=False)
class ColumnEffect:
    """What one column does, at G cells of it: numbers in its unit, or levels; None is missing."""

    column: Feature
    cells: tuple[Cell, ...]
    targets: tuple[TargetEffect, ...]

    def of(self, name: str) -> TargetEffect:
        """Return the effect on the target of this name."""
        return next(own for own in self.targets if own.target.name == name)


def column_effects(model: Model, columns: Sequence[str] | None = None) -> tuple[ColumnEffect, ...]:
    """Return the effects of these columns on every target, by default of all columns."""
    study = _Study.of(model, ROWS)
    names = list(study.axes)
    wanted = names if columns is None else list(columns)
    for name in wanted:
        if name not in names:
            raise PredictionError(
                f"unknown column {name!r:.60}; the model reads {', '.join(names)}"
            )
    return tuple(study.effect(study.axes[name]) for name in wanted)


def most_important(model: Model, most: int) -> tuple[str, ...]:
    """Return the names of the columns with the largest totals for any target, at most `most`.

    With more columns than `most`, totals are compared from fewer rows and points: a column may be
    missed that is about as important as the last of those returned.
    """
    study = _Study.of(model, _ROWS_TO_RANK)
    names = list(study.axes)
    if len(names) <= most:
        return tuple(names)
    totals = {
        name: max(own.total for own in study.effect(axis.coarser(_STEP_TO_RANK)).targets)
        for name, axis in study.axes.items()
    }
    return tuple(sorted(names, key=lambda name: -totals[name])[:most])


@dataclass(frozen=True, eq=False)
class _Study:
    """A fitted model with its reference rows, the axes of its columns, and V of each target."""

    model: Model
    rows: Tensor
    axes: dict[str, Axis]
    variances: tuple[float, ...]

    @classmethod
    def of(cls, model: Model, count: int) -> "_Study":
        check_fitted(model)
        standardiser = known(model.standardiser, "moments")
        many = reference_rows(model.schema, standardiser, _ROWS_OF_V)
        variances = tuple(_variance(own.values) for own in averaged(model, many, 1))
        rows = reference_rows(model.schema, standardiser, count)
        found = {axis.column.name: axis for axis in axes(model.schema, standardiser)}
        return cls(model, rows, found, variances)

    def effect(self, axis: Axis) -> ColumnEffect:
        """Return the effects of one column on every target."""
        model, points, count = self.model, len(axis.cells), len(self.rows)
        x = self.rows.repeat(points, 1)
        x[:, axis.where] = axis.features.repeat_interleave(count, 0)
        found = []
        each = zip(model.schema.targets, averaged(model, x, points), self.variances, strict=True)
        for target, own, variance in each:
            values = own.values.reshape(points, count, -1)
            levels = target.levels if isinstance(target, Classes) else ()
            shares = _shares(values, axis.weights, variance)
            found.append(TargetEffect(target, levels, values.mean(1), own.deviation, *shares))
        return ColumnEffect(axis.column, axis.cells, tuple(found))


def _variance(values: Tensor) -> float:
    """Return V of predictions (n, K); 0 if they differ by rounding only."""
    variance = float(values.var(0, correction=0).sum())
    largest = float(values.abs().max())
    return variance if variance > (_NO_VARIANCE * largest) ** 2 else 0.0


def _shares(values: Tensor, weights: Tensor, variance: float) -> tuple[float, float]:
    """Return the shares of V, alone and total, from predictions (G, R, K) and weights (G,)."""
    if not variance:
        return 0.0, 0.0
    alone = float(_over(values.mean(1, keepdim=True), weights).sum())
    total = float(_over(values, weights).mean(0).sum())
    # V is from other rows, and so are shares above 1.
    return min(alone / variance, 1.0), min(total / variance, 1.0)


def _over(values: Tensor, weights: Tensor) -> Tensor:
    """Return the variance over the G cells of values (G, R, K), (R, K)."""
    share = weights[:, None, None]
    centred = values - (share * values).sum(0)
    return (share * centred.square()).sum(0)
