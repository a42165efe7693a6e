"""One site's layer that knows what the others found: their rows count, but less than its own.

A layer of a site's own rows has few rows; the layer of all rows has patients who may be unlike the
site's. Between the two is the power prior [Ibrahim00]: the others' likelihood to a power a from 0
to 1 is the prior of the site's own layer. For the linear layer this is its posterior given

    S_a = S_own + a·(S − S_own),   b, yᵀy and n alike

where S, b, … are the sums of all rows. a = 0 is the site alone, and a = 1 the layer of all rows, to
the last digit: each of the site's own rows counts once, whatever a is. With the global *posterior*
as the prior its rows would count twice, since they are in that posterior already.

S_a is computed as (1 − a)·S_own + a·S, so no number is the difference of two.
"""

import math

from client_sdk.errors import RowsNotAmong
from kernels.errors import KernelsError, StatisticsError
from kernels.layer.posterior import Spectrum
from kernels.layer.statistics import Statistics

STEP = 4.0
"""Two powers that are tried are this factor apart: between them, little changes."""


def powers(others: int) -> tuple[float, ...]:
    """Return the powers to try, given the number of the others' rows: 1, ¼, … and 0.

    The least one above 0 leaves at least one row of the others.

    >>> powers(100)
    (1.0, 0.25, 0.0625, 0.015625, 0.0)
    """
    steps = math.floor(math.log(others, STEP)) if others >= 1 else -1
    return (*(STEP**-k for k in range(steps + 1)), 0.0)


def tempered(own: Statistics, pooled: Statistics, *, power: float, among: bool) -> Statistics:
    """Return S_own + a·(the others' S), and the like.

    among: whether the site's own rows are among the pooled ones.
    """
    if not 0 <= power <= 1:
        raise StatisticsError(f"power must be a number from 0 to 1, not {power!r:.40}")
    if pooled.noise is not None:
        raise StatisticsError(
            "the pooled statistics have noise, which their power would have to be weighed against: "
            "use power 0, or statistics without noise"
        )
    share = 1 - power if among else 1.0
    return Statistics(
        share * own.scatter + power * pooled.scatter,
        share * own.cross + power * pooled.cross,
        share * own.target_squares + power * pooled.target_squares,
        round(share * own.count + power * pooled.count),
        share * own.rounding + power * pooled.rounding,
    )


def check_among(own: Statistics, pooled: Statistics) -> None:
    """Refuse own rows that cannot be among the pooled ones: the others' S would not be positive.

    That this passes does not prove that they are.
    """
    try:
        Spectrum.of(pooled - own)
    except KernelsError as problem:
        raise RowsNotAmong(
            f"the {own.count} training rows of this table cannot all be among the {pooled.count} "
            "that the model was trained on: pass the table that was, or say that it was not "
            "(took_part=False)"
        ) from problem
