"""Inputs as a matrix: standardised, one column per level, the mean and a mark for missing cells.

Means, deviations and components are of the training rows. Federated methods are given those of all
members, which a sum would tell them; a hospital alone has its own.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.outcomes.dataset import Dataset, Table, size
from kernels.tables.schema import Numeric

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Design:
    """What was learnt of training rows; `of` turns rows into columns.

    first_level: whether a column of levels has a column for its first one. Without a penalty that
    one must go: the others and the intercept tell it.
    """

    dataset: Dataset
    mean: Matrix
    scale: Matrix
    directions: Matrix | None
    first_level: bool = True

    @classmethod
    def fit(cls, dataset: Dataset, training: Table, *, first_level: bool = True) -> "Design":
        """Learn from training rows; a column that is constant there becomes zero."""
        raw = _raw(dataset, training, first_level=first_level)
        known = ~np.isnan(raw)
        mean = np.where(known, raw, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        centred = np.where(known, raw - mean, 0)
        if dataset.components is None:
            deviation = np.sqrt((centred**2).sum(axis=0) / np.maximum(known.sum(axis=0), 1))
            return cls(dataset, mean, _inverse(deviation), None, first_level)
        _, vectors = np.linalg.eigh(centred.T @ centred)
        directions = vectors[:, : -dataset.components - 1 : -1]
        typical = np.sqrt(np.mean((centred @ directions) ** 2))
        return cls(dataset, mean, np.full(len(mean), 1 / typical), directions, first_level)

    def of(self, rows: Table) -> Matrix:
        """Return rows as columns, (rows, columns)."""
        raw = _raw(self.dataset, rows, first_level=self.first_level)
        x = np.where(np.isnan(raw), 0, raw - self.mean) * self.scale
        return x if self.directions is None else np.asarray(x @ self.directions)


def trees(dataset: Dataset, rows: Table) -> tuple[Matrix, list[bool]]:
    """Return rows as trees take them, and which columns are of levels: codes, NaN for missing."""
    columns, categorical = [], []
    for column in dataset.inputs:
        cells = rows[column.name]
        if isinstance(column, Numeric):
            columns.append(cells.astype(np.float64))
        else:
            codes = [np.nan if cell is None else column.positions[cell] for cell in cells]
            columns.append(np.array(codes, dtype=np.float64))
        categorical.append(not isinstance(column, Numeric))
    return np.stack(columns, axis=1), categorical


def _raw(dataset: Dataset, rows: Table, *, first_level: bool) -> Matrix:
    columns: list[Matrix] = []
    for column in dataset.inputs:
        cells = rows[column.name]
        if isinstance(column, Numeric):
            columns.append(cells.astype(np.float64))
            missing = np.isnan(columns[-1])
        else:
            own = column.levels if first_level else column.levels[1:]
            columns += [(cells == level).astype(np.float64) for level in own]
            missing = cells == None  # noqa: E711 - element by element
        if column.may_be_missing:
            columns.append(missing.astype(np.float64))
    return np.stack(columns, axis=1) if columns else np.zeros((size(rows), 0))


def _inverse(deviation: Matrix) -> Matrix:
    return np.where(deviation > 1e-9, 1 / np.where(deviation > 1e-9, deviation, 1), 0)
