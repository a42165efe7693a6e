"""A standardiser from moments with noise in them, or from the schema's bounds alone.

u = (x − middle)/(half the distance of the bounds) is within ±1. Before anything is summed, nothing
else is known of a column: u is assumed to be uniform, with mean 0 and E u² = 1/3. A standardiser
from bounds alone is this guess, and costs no privacy.

Sums with noise of deviation s give the mean of u as Σ̃u/ñ, with error s/ñ. Guess and sums are
weighted by their variances, as in a Gaussian posterior: 1/3 for the guess of a mean, 4/45 (the
variance of u² for uniform u) for the guess of E u². With many rows or little noise the result is
that of the sums, with few rows or much noise it is the guess. It is always a valid standardiser:
the mean is within the bounds, and the deviation is at most half their distance and at least the
smallest that can be seen through the noise.
"""

import math
from collections.abc import Mapping

import torch

from kernels.errors import UnboundedColumns
from kernels.tables.moments import Moments, origin_and_unit
from kernels.tables.schema import Numeric, Schema
from kernels.tables.standardiser import Scale, Shares, Standardiser
from kernels.tables.targets import Target

_SECOND = 1 / 3
"""E u² of a uniform u, and the variance of the guess of its mean."""
_SPREAD = 4 / 45
"""The variance of u²."""
_LEAST = 2.0**-10
"""The smallest deviation of u: a smaller one would clip columns whose bounds fit badly."""


def check_bounds(schema: Schema) -> None:
    """Refuse a schema in which a numeric column or a target lacks a bound."""
    columns: tuple[Numeric | Target, ...] = (*schema.numeric, *schema.real)
    lacking = [c.name for c in columns if c.lower is None or c.upper is None]
    if lacking:
        raise UnboundedColumns(
            f"the columns {', '.join(map(repr, lacking))} must have lower and upper in the schema: "
            "without bounds one row can change a sum by any amount, and no noise can hide that"
        )


def from_bounds(schema: Schema) -> Standardiser:
    """Return the standardiser of the bounds: their middle, and the deviation of a uniform column.

    >>> from kernels.tables.schema import Numeric, Schema, Target
    >>> schema = Schema((Numeric("age", "a", 0, 120),), (Target("stay", "d", 0, 60),))
    >>> from_bounds(schema).targets
    (Scale(name='stay', mean=30.0, scale=17.32050807568877),)
    """
    check_bounds(schema)
    return Standardiser(
        tuple(_scale(column, 0.0, _SECOND) for column in schema.numeric),
        tuple(
            Shares(column.name, (1 / len(column.levels),) * len(column.levels))
            for column in schema.categorical
        ),
        tuple(_scale(column, 0.0, _SECOND) for column in schema.real),
    )


def from_noisy(schema: Schema, moments: Moments, noise: Mapping[str, float]) -> Standardiser:
    """Return the standardiser of noisy moments; `noise`: the deviation per element, by field."""
    rows = max(moments.rows.item(), noise["rows"], 1.0)
    missing = moments.missing.clamp(0.0, rows)
    present = (rows - missing).clamp_min(max(1.0, noise["rows"])).tolist()
    numeric = zip(
        schema.numeric, present, moments.sums.tolist(), moments.squares.tolist(), strict=True
    )
    sizes = [len(column.levels) for column in schema.categorical]
    levels = zip(schema.categorical, torch.split_with_sizes(moments.levels, sizes), strict=True)
    target_sums = moments.target_sums.tolist(), moments.target_squares.tolist()
    targets = zip(schema.real, *target_sums, strict=True)
    return Standardiser(
        tuple(
            _scale(column, *_weighed(total, squares, count, noise["sums"], noise["squares"]))
            for column, count, total, squares in numeric
        ),
        tuple(
            Shares(column.name, _shares(own.tolist(), noise["levels"])) for column, own in levels
        ),
        tuple(
            _scale(
                column,
                *_weighed(total, squares, rows, noise["target_sums"], noise["target_squares"]),
            )
            for column, total, squares in targets
        ),
    )


def _weighed(
    total: float, squares: float, count: float, noise: float, squares_noise: float
) -> tuple[float, float]:
    """Return mean and variance of u from noisy sums, weighted with the guess."""
    error, squares_error = (noise / count) ** 2, (squares_noise / count) ** 2
    mean = min(max(total / count, -1.0), 1.0) * _SECOND / (_SECOND + error)
    trust = _SPREAD / (_SPREAD + squares_error)
    second = trust * min(max(squares / count, 0.0), 1.0) + (1 - trust) * _SECOND
    # The variance that the errors of both could show for a column that does not vary.
    visible = math.sqrt(trust * squares_error + 4 * mean**2 * error)
    variance = max(second - mean**2, min(visible, _SECOND), _LEAST**2)
    return mean, min(variance, 1.0)


def _scale(column: Numeric | Target, mean: float, variance: float) -> Scale:
    origin, unit = origin_and_unit(column)
    return Scale(column.name, origin + unit * mean, unit * math.sqrt(variance))


def _shares(counts: list[float], noise: float) -> tuple[float, ...]:
    """Return the shares of levels; the noise is added to every count, which evens them out."""
    seen = [max(count, 0.0) + noise for count in counts]
    return tuple(count / math.fsum(seen) for count in seen)
