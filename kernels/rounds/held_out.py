"""The squared error on rows kept for stopping, as further blocks of a sum.

A stage that is sent w̄ with its broadcast lets each site judge, in the sum that it takes part in
anyway, the model that it was sent: stopping and choosing cost no sum of their own.
"""

import numpy as np
from torch import Tensor

from kernels.errors import StatisticsError
from kernels.rounds.algorithm import Contribution
from kernels.rounds.model import Model
from kernels.rounds.site import Part, Site
from kernels.rounds.sufficient import SQUARES_RESOLUTION, TARGET_BOUND, site_features
from privacy.layout import Block, SecureTotal


def held_out_blocks(model: Model) -> tuple[Block, ...]:
    """Return the blocks of Σr² and n; predictions are within ±TARGET_BOUND, as targets are."""
    rows = float(model.max_rows)
    squares = rows * model.targets * (2 * TARGET_BOUND) ** 2
    return (
        Block("held_out_squares", (), squares, SQUARES_RESOLUTION),
        Block("held_out_rows", (), rows, 1.0),
    )


def held_out_contribution(
    model: Model, posterior_weights: Tensor, site: Site, *, features: Tensor | None = None
) -> Contribution:
    """Sum the squared errors of φᵀw̄ over the site's rows for stopping, and count the rows.

    features: theirs, (n, M), where they are known already.
    """
    squares = 0.0
    if features is None:
        chunks = site_features(model, site, Part.STOPPING)
    else:
        chunks = iter([(features, site.table(Part.STOPPING, model)[1])])
    for phi, y in chunks:
        squares += float((phi @ posterior_weights).sub_(y).square_().sum())
    return {
        "held_out_squares": np.array(squares),
        "held_out_rows": np.array(float(site.count(Part.STOPPING))),
    }


def held_out_error(total: SecureTotal) -> float | None:
    """Return the mean squared error, summed over targets; None if no site has such rows."""
    rows = float(total["held_out_rows"])
    if float(total["held_out_squares"]) < -total.rounding("held_out_squares"):
        raise StatisticsError("squared errors sum to less than nothing: a contribution is wrong")
    return float(total["held_out_squares"]) / rows if rows >= 0.5 else None
