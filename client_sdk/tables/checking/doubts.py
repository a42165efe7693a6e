"""Suspicious columns: constant, an identifier, the site's name, an undeclared code, a leak.

Each doubt is a sentence for the person who checks a table before a session. They are guesses from
one site's rows: nothing is refused because of them.

A feature is nearly a copy of a target if the ranks of the two correlate by at least RANKS, or if
who knows the feature's value errs about a target's level at most as often as ERRORS says: such a
feature is usually another name of the outcome, or was written down after it.
"""

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from client_sdk.tables.checking.tally import LabelTally, NumberTally, Tally
from client_sdk.tables.draft_limits import FEW_ROWS

ENOUGH = 30
"""Fewer rows than these say nothing about identifiers and copies."""
NEARLY_UNIQUE = 0.95
RANKS = 0.999
ERRORS = 0.01, 0.05
"""The share of wrong guesses: of all rows, and of the guesses without the feature."""
MANY_MISSING = 0.5

_IDENTIFIES = re.compile(
    r"(?:^|[_\W])(?:id|uuid|mrn|nr|ssn|identifier)$|^(?:patient|case|row|record)_?(?:id|no)$",
    re.IGNORECASE,
)
_NAMES_SITE = re.compile(
    r"(?:^|[_\W])(?:site|sites|hospital|centre|center|clinic|institution|facility|trust)"
    r"(?:$|[_\W])",
    re.I,
)
_USUAL_CODES = frozenset(
    [0.0, -1.0, -2.0, *(s * float(c) for s in (1, -1) for c in (8, 9, 88, 99, 888, 999, 9999))]
)
"""Numbers that people write for "missing"."""

Sample = NDArray[np.float64]


def doubts_about(name: str, tally: Tally) -> Iterator[str]:
    """Yield what is suspicious about a feature by itself."""
    if not tally.rows:
        return
    if tally.missing == tally.rows:
        yield "all its cells are missing"
        return
    if tally.missing >= MANY_MISSING * tally.rows:
        yield f"{100 * tally.missing / tally.rows:.0f} % of its cells are missing"
    constant = _constant(tally)
    if constant is not None:
        yield (
            f"all cells that are there are {constant}: it says nothing here, and may name the site "
            "or be a code for a missing cell"
        )
    elif _NAMES_SITE.search(name):
        yield "by its name it names the site: a model would learn who measured, not what"
    if _unique(tally):
        yield (
            "its cells are nearly all different, as an identifier's are: a model would learn "
            "single patients"
        )
    elif _IDENTIFIES.search(name) and constant is None:
        yield "by its name it is an identifier: remove it, or name it as the patient column"
    if isinstance(tally, NumberTally) and constant is None:
        yield from _codes(tally)


def _constant(tally: Tally) -> str | None:
    """Return the only value of a column, as text."""
    if isinstance(tally, LabelTally):
        return repr(next(iter(tally.labels))) if len(tally.labels) == 1 else None
    if isinstance(tally, NumberTally) and tally.least == tally.most:
        return f"{tally.least:g}"
    return None


def _unique(tally: Tally) -> bool:
    """Return whether nearly all labels or whole numbers differ; measurements always do."""
    there = tally.sample[~np.isnan(tally.sample)]
    if len(there) < ENOUGH or len(np.unique(there)) < NEARLY_UNIQUE * len(there):
        return False
    return isinstance(tally, LabelTally) or bool((there == np.floor(there)).all())


def _codes(tally: NumberTally) -> Iterator[str]:
    """Yield usual codes at an end of the range, far from all other numbers."""
    values, counts = np.unique(tally.sample[~np.isnan(tally.sample)], return_counts=True)
    if len(values) < FEW_ROWS:
        return
    for code, next_one, count in (
        (values[0], values[1], counts[0]),
        (values[-1], values[-2], counts[-1]),
    ):
        rest = values[values != code]
        spread = float(np.subtract(*np.percentile(rest, [90, 10])))
        if float(code) in _USUAL_CODES and abs(code - next_one) > spread / 2:
            often = "once" if count == 1 else f"{count} times"
            yield (
                f"{code:g} occurs {often}, and the nearest other number is {next_one:g}: if "
                "it means missing, list it in missing_codes"
            )


def copies(feature: Tally, target: Tally, name: str) -> Iterator[str]:
    """Yield a doubt if a feature equals a target's column of this name, or nearly does."""
    rows = min(len(feature.sample), len(target.sample))
    x, y = feature.sample[:rows], target.sample[:rows]
    x, y = x[~np.isnan(y)], y[~np.isnan(y)]
    if len(y) < ENOUGH or len(np.unique(y)) < 2:
        return
    if isinstance(target, LabelTally):
        found = _tells_levels(x, y, feature)
    else:
        found = _tells_numbers(x, y, feature)
    if found:
        yield f"it is nearly a copy of the target's column {name!r}: is it known beforehand?"


def _tells_levels(x: Sample, y: Sample, feature: Tally) -> bool:
    groups = _groups(x)
    if groups is not None:
        return _errors_small(groups, y)
    if _errors_small(np.isnan(x).astype(np.int64), y):
        return True
    there = ~np.isnan(x)
    x, y = x[there], y[there]
    if isinstance(feature, LabelTally) or len(y) < ENOUGH or len(np.unique(y)) != 2:
        return False
    event = y == y.max()
    events, others = int(event.sum()), int((~event).sum())
    if min(events, others) < FEW_ROWS:
        return False
    area = (_ranks(x)[event].sum() - events * (events + 1) / 2) / (events * others)
    return bool(max(area, 1 - area) >= 1 - ERRORS[0] / 2)


def _tells_numbers(x: Sample, y: Sample, feature: Tally) -> bool:
    if isinstance(feature, LabelTally):
        groups = _groups(x)
        if groups is None or y.var() == 0:
            return False
        rows = np.bincount(groups)
        means = np.bincount(groups, y) / np.maximum(rows, 1)
        return bool(((y - means[groups]) ** 2).mean() <= (1 - RANKS) * y.var())
    there = ~np.isnan(x)
    x, y = x[there], y[there]
    if len(y) < ENOUGH or len(np.unique(x)) < 2 or len(np.unique(y)) < 2:
        return False
    return bool(abs(np.corrcoef(_ranks(x), _ranks(y))[0, 1]) >= RANKS)


def _groups(x: Sample) -> NDArray[np.int64] | None:
    """Return which rows have the same cell, missing ones too; None if there are many groups."""
    values, groups = np.unique(x, return_inverse=True)
    return groups if len(values) <= len(x) / FEW_ROWS else None


def _errors_small(groups: NDArray[np.int64], y: Sample) -> bool:
    """Return whether the most frequent level of each group is nearly always right."""
    levels, codes = np.unique(y, return_inverse=True)
    table = np.zeros((int(groups.max()) + 1, len(levels)))
    np.add.at(table, (groups, codes), 1)
    wrong, without = len(y) - table.max(1).sum(), len(y) - table.sum(0).max()
    return bool(wrong <= ERRORS[0] * len(y) and wrong <= ERRORS[1] * without)


def _ranks(x: Sample) -> Sample:
    """Return the rank of each number, the mean one for equal numbers."""
    _, own, counts = np.unique(x, return_inverse=True, return_counts=True)
    mean: Sample = np.cumsum(counts) - (counts - 1) / 2
    return mean[own]
