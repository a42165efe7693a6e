"""Eighteen sets that nothing is tuned for, all cut into ten members by their first column.

Twelve have a real number to predict, in the last column of their file; their schema is what a draft
gives, numbers without bounds. The traps are those of the files: −200 in the air's inputs means that
an instrument gave nothing. Six are those of `benchmarks.outcomes.sets` with their own outcome and
their public bounds, but cut as the others are. Patients with several rows are cut by the mean of
their rows, so that all of them are at one member.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.outcomes.dataset import MEMBERS, Column, Dataset, Real, Split, size, take
from benchmarks.outcomes.members import sorted_into
from benchmarks.outcomes.sets import flchain, heart, medpar, rwm5yr, stroke, wdbc
from benchmarks.outcomes.sets.files import read
from kernels.tables.schema import Numeric

MISSING: Mapping[str, float] = {"airquality": -200.0}
"""The number that means a missing cell, by set."""


def load_real(name: str, folder: Path) -> Dataset:
    """Return a set whose last column is a real number to predict."""
    table = read(folder, name)
    *names, target = table
    for each in names if name in MISSING else ():
        table[each] = np.where(table[each] == MISSING[name], np.nan, table[each])
    inputs = tuple(
        Numeric(each, "1", may_be_missing=bool(np.isnan(table[each]).any())) for each in names
    )
    return _cut(Dataset(name, inputs, Real(target), table))


def _load_outcome(name: str, load: Callable[[Path], Dataset], folder: Path) -> Dataset:
    return _cut(replace(load(folder), name=name))


REGRESSION = (
    "skillcraft",
    "sml",
    "parkinsons",
    "bike_seoul",
    "ccpp",
    "airquality",
    "bike_day",
    "bike_hour",
    "wine_red",
    "real_estate",
    "forest_fires",
    "diabetes",
)
_OUTCOMES: Mapping[str, Callable[[Path], Dataset]] = {
    "heart_disease": heart.load,
    "ist_stroke": stroke.load,
    "breast_cancer_wdbc": wdbc.load,
    "flchain": flchain.load,
    "medpar": medpar.load,
    "rwm5yr": rwm5yr.load,
}
LOADERS: Mapping[str, Callable[[Path], Dataset]] = {
    **{name: partial(load_real, name) for name in REGRESSION},
    **{name: partial(_load_outcome, name, load) for name, load in _OUTCOMES.items()},
}


def _cut(dataset: Dataset) -> Dataset:
    """Cut a set into members by its first column, a patient by the mean of all rows."""
    values = dataset.table[dataset.inputs[0].name].astype(np.float64)
    if dataset.patient is None:
        return replace(dataset, hospitals=sorted_into(values, MEMBERS))
    _, of_row = np.unique(dataset.table[dataset.patient], return_inverse=True)
    means = np.bincount(of_row, weights=values) / np.bincount(of_row)
    return replace(dataset, hospitals=sorted_into(means, MEMBERS)[of_row])


def order(split: Split) -> Column:
    """Return the order, drawn by the seed, in which the pooled training rows are taken."""
    return np.random.default_rng([split.seed, 2026]).permutation(size(split.pooled))


def first_rows(split: Split, rows: int) -> Split:
    """Return the split with so many training rows in all; with 0, or too few, with all of them."""
    taken = order(split)
    if not 0 < rows < len(taken):
        return split
    kept = np.zeros(len(taken), dtype=np.bool_)
    kept[taken[:rows]] = True
    ends = np.cumsum([size(member) for member in split.members])[:-1]
    members = [
        take(member, np.flatnonzero(own))
        for member, own in zip(split.members, np.split(kept, ends), strict=True)
        if own.any()
    ]
    return replace(split, members=tuple(members))
