"""Which member a row belongs to: hospitals as they are, small ones together, or dealt."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[Any]


def small_together(hospital: Labels, *, least: int) -> Labels:
    """Return hospitals as texts; those with fewer than `least` rows are one, "others".

    >>> small_together(np.array([7, 7, 8, 9]), least=2).tolist()
    ['7', '7', 'others', 'others']
    """
    return np.where(_rows_of_own(hospital) >= least, _text(hospital), "others")


def by_hospital_or_country(
    hospital: Labels, country: Labels, *, least: int, least_country: int
) -> Labels:
    """Return hospitals with `least` rows or more; the others' rows as one member per country.

    Countries that are left with fewer than `least_country` rows are one member, "others".
    """
    large = _rows_of_own(hospital) >= least
    labels = np.empty(len(hospital), dtype=object)
    labels[large] = [f"hospital {each}" for each in _text(hospital[large])]
    left = small_together(country[~large], least=least_country)
    labels[~large] = [each if each == "others" else f"country {each}" for each in left]
    return labels.astype(np.str_)


def sorted_into(values: NDArray[Any], count: int) -> Labels:
    """Sort by a column, cut into `count` members of almost equal size; ties stay in row order.

    >>> sorted_into(np.array([50.0, 90.0, 60.0, 70.0]), 2).tolist()
    [0, 1, 0, 1]
    """
    labels = np.empty(len(values), dtype=np.int64)
    for label, rows in enumerate(np.array_split(np.argsort(values, kind="stable"), count)):
        labels[rows] = label
    return labels


def dealt(patients: NDArray[Any], count: int, random: np.random.Generator) -> Labels:
    """Deal patients, with all of their rows, to `count` members of almost equal size."""
    distinct, of_row = np.unique(patients, return_inverse=True)
    labels = random.permutation(np.arange(len(distinct)) % count)
    return np.asarray(labels[of_row])


def _rows_of_own(hospital: Labels) -> NDArray[np.int64]:
    """Return for each row how many rows its hospital has."""
    _, of_row, counts = np.unique(hospital, return_inverse=True, return_counts=True)
    return np.asarray(counts[of_row], dtype=np.int64)


def _text(labels: Labels) -> Labels:
    return np.array([f"{each:g}" if isinstance(each, float) else str(each) for each in labels])
