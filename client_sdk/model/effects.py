"""What each column does to a model's predictions, as numpy arrays; computed from the model alone.

The definitions and their limits are those of `kernels.model.effects`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_sdk.errors import UnknownTarget
from client_sdk.model.outcomes import Floats
from client_sdk.model.predictions import ColumnsByName
from client_sdk.plots import effects as effects_plot
from client_sdk.plots import importance as importance_plot
from kernels.errors import PredictionError
from kernels.model.effects import ColumnEffect, column_effects, most_important
from kernels.model.model import Model
from kernels.tables.schema import Numeric
from kernels.tables.targets import AnyTarget, Classes

MOST = 9
"""The number of columns whose effects are computed by default."""


@dataclass(frozen=True, eq=False, repr=False)
class Effects:
    """The curves of some columns for one target, the most important column first.

    `effects["age"]` has one column's cells, means and deviations; `effects.plot()` draws all.
    """

    target: AnyTarget
    each: tuple[ColumnEffect, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(own.column.name for own in self.each)

    def __getitem__(self, column: str) -> "Effect":
        for own in self.each:
            if own.column.name == column:
                return Effect.of(own, self.target.name)
        raise PredictionError(
            f"there is no effect of {column!r:.60} here; there are those of "
            f"{', '.join(self.columns)}: name the column in effects(columns=[…])"
        )

    def to_dict(self) -> ColumnsByName:
        """Return a row for every point of every curve, for `pandas.DataFrame`.

        value: of a numeric column, NaN if the cell is missing. level: of a categorical one. of: the
        class, of a target that is one of several. lower, upper: two deviations from the mean.
        """
        rows: dict[str, list[object]] = {name: [] for name in _NAMES}
        for own in self.each:
            effect = own.of(self.target.name)
            for of, mean, deviation in zip(
                effect.levels or ("",),
                effect.mean.T.tolist(),
                effect.deviation.T.tolist(),
                strict=True,
            ):
                for cell, middle, spread in zip(own.cells, mean, deviation, strict=True):
                    number = cell if isinstance(cell, float) else np.nan
                    label = "" if isinstance(cell, float) else cell or "missing"
                    ends = middle - 2 * spread, middle + 2 * spread
                    told = own.column.name, number, label, of, middle, spread, *ends
                    for name, value in zip(_NAMES, told, strict=True):
                        rows[name].append(value)
        texts = "column", "level", "of"
        return {
            name: np.array(values, dtype=object if name in texts else np.float64)
            for name, values in rows.items()
        }

    def to_pandas(self) -> Any:
        """Return `to_dict` as a pandas DataFrame; pandas must be installed."""
        import pandas

        return pandas.DataFrame(self.to_dict())

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the curves, each with its band, and return the Axes, one for each column.

        ax: the matplotlib Axes to draw a single column on.
        """
        return effects_plot.draw(self.each, self.target.name, ax=ax)

    def __repr__(self) -> str:
        return f"Effects(of {', '.join(self.columns)} on {self.target.name})"


_NAMES = "column", "value", "level", "of", "mean", "deviation", "lower", "upper"


@dataclass(frozen=True, eq=False)
class Effect:
    """The curve of one column: mean prediction at each cell, and how uncertain the model is of it.

    cells: (G,), numbers in the column's unit, with NaN for a missing cell, or levels, with None.
    mean, deviation: (G,) in the target's unit; of classes (G, K). alone, total: see `Importance`.
    """

    cells: NDArray[np.generic]
    mean: Floats
    deviation: Floats
    alone: float
    total: float

    @classmethod
    def of(cls, own: ColumnEffect, target: str) -> "Effect":
        """Return one column's effect on one target."""
        effect = own.of(target)
        several = isinstance(effect.target, Classes)
        cells: NDArray[np.generic] = np.array(own.cells, dtype=object)
        if isinstance(own.column, Numeric):
            cells = cells.astype(np.float64)
        mean, deviation = (
            values.numpy() if several else values[:, 0].numpy()
            for values in (effect.mean, effect.deviation)
        )
        return cls(cells, mean, deviation, effect.alone, effect.total)


@dataclass(frozen=True, eq=False, repr=False)
class Importance:
    """How much each column matters to the predictions of one target, the most important first.

    alone: the share of the variance of predictions, over public reference rows, that follows from
    the column alone. total: that share with all interactions of the column. Both are from 0 to 1.
    """

    target: AnyTarget
    columns: tuple[str, ...]
    alone: Floats
    total: Floats

    @classmethod
    def of(cls, each: Sequence[ColumnEffect], target: AnyTarget) -> "Importance":
        """Return the importance of these columns, sorted."""
        found = sorted_by_total(each, target.name)
        effects = [own.of(target.name) for own in found]
        return cls(
            target,
            tuple(own.column.name for own in found),
            np.array([own.alone for own in effects], np.float64),
            np.array([own.total for own in effects], np.float64),
        )

    def to_dict(self) -> ColumnsByName:
        """Return a row for each column, for `pandas.DataFrame`."""
        return {
            "column": np.array(self.columns, dtype=object),
            "alone": self.alone,
            "total": self.total,
        }

    def to_pandas(self) -> Any:
        """Return `to_dict` as a pandas DataFrame; pandas must be installed."""
        import pandas

        return pandas.DataFrame(self.to_dict())

    def plot(self, *, ax: Any = None) -> Any:
        """Draw a bar for each of the most important columns, and return the Axes."""
        return importance_plot.draw(
            self.columns, self.alone, self.total, target=self.target.name, ax=ax
        )

    def __len__(self) -> int:
        return len(self.columns)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name} {total:.0%}"
            for name, total in zip(self.columns[:5], self.total.tolist(), strict=False)
        )
        return f"Importance(for {self.target.name}: {shown}{', …' if len(self) > 5 else ''})"


def sorted_by_total(each: Sequence[ColumnEffect], target: str) -> tuple[ColumnEffect, ...]:
    """Return effects with the largest total for a target first, and otherwise as they are."""
    return tuple(sorted(each, key=lambda own: -own.of(target).total))


class ModelEffects:
    """The effects of one model's columns, each computed once."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._found: dict[str, ColumnEffect] = {}

    def effects(
        self, columns: Sequence[str] | None = None, *, target: str | None = None
    ) -> Effects:
        """Return the effects of these columns, by default of the most important ones."""
        names = most_important(self._model, MOST) if columns is None else columns
        about = self._target(target)
        return Effects(about, sorted_by_total(self._each(names), about.name))

    def importance(self, *, target: str | None = None) -> Importance:
        """Return the importance of every column."""
        names = [column.name for column in self._model.schema.features]
        return Importance.of(self._each(names), self._target(target))

    def _each(self, names: Sequence[str]) -> tuple[ColumnEffect, ...]:
        lacking = [name for name in dict.fromkeys(names) if name not in self._found]
        if lacking:
            found = column_effects(self._model, lacking)
            self._found |= dict(zip(lacking, found, strict=True))
        return tuple(self._found[name] for name in dict.fromkeys(names))

    def _target(self, name: str | None) -> AnyTarget:
        targets = self._model.schema.targets
        for target in targets:
            if name in (None, target.name):
                return target
        there = ", ".join(target.name for target in targets)
        raise UnknownTarget(f"unknown target {name!r:.60}; the model predicts {there}")
