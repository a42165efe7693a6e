"""The absolute error on rows kept for stopping, as further blocks of a sum.

A stage that is sent w̄ with its broadcast lets each site judge, in the sum that it takes part in
anyway, the model that it was sent: stopping and choosing cost no sum of their own.

Errors are not squared: held-out rows are few, and one that no model explains would choose alone.
By squares one row of 207 ended SML's training, in one split of nine, after a quarter of its steps.
Test RMSE of what is chosen by squares, and by absolute errors, on splits that no figure is of: SML
.144 and .141, CCPP 3.63 and 3.61, Parkinsons 1.49 and 1.47, Bike .368 and .370, Skillcraft .925 and
.927.
"""

import numpy as np
from torch import Tensor

from kernels.errors import StatisticsError
from kernels.rounds.algorithm import Contribution
from kernels.rounds.model import Model
from kernels.rounds.site import Part, Site
from kernels.rounds.sufficient import RESOLUTION, TARGET_BOUND, site_features
from privacy.layout import Block, SecureTotal


def held_out_blocks(model: Model) -> tuple[Block, ...]:
    """Return the blocks of Σ|r| and n; predictions are within ±TARGET_BOUND, as targets are."""
    rows = float(model.max_rows)
    errors = rows * model.targets * 2 * TARGET_BOUND
    return (
        Block("held_out_errors", (), errors, RESOLUTION),
        Block("held_out_rows", (), rows, 1.0),
    )


def held_out_contribution(
    model: Model, posterior_weights: Tensor, site: Site, *, features: Tensor | None = None
) -> Contribution:
    """Sum the absolute errors of φᵀw̄ over the site's rows for stopping, and count the rows.

    features: theirs, (n, M), where they are known already.
    """
    errors = 0.0
    if features is None:
        chunks = site_features(model, site, Part.STOPPING)
    else:
        chunks = iter([(features, site.table(Part.STOPPING, model)[1])])
    for phi, y in chunks:
        errors += float((phi @ posterior_weights).sub_(y).abs_().sum())
    return {
        "held_out_errors": np.array(errors),
        "held_out_rows": np.array(float(site.count(Part.STOPPING))),
    }


def held_out_error(total: SecureTotal) -> float | None:
    """Return the mean absolute error, summed over targets; None if no site has such rows."""
    rows = float(total["held_out_rows"])
    if float(total["held_out_errors"]) < -total.rounding("held_out_errors"):
        raise StatisticsError("absolute errors sum to less than nothing: a contribution is wrong")
    return float(total["held_out_errors"]) / rows if rows >= 0.5 else None
