"""The absolute error on rows kept for stopping, as further blocks of a sum.

A stage that is sent w̄ with its broadcast lets each site judge, in the sum that it takes part in
anyway, the model that it was sent: stopping and choosing cost no sum of their own.

Errors are not squared: held-out rows are few, and one that no model explains would choose alone.
By squares one row of 207 ended SML's training, in one split of nine, after a quarter of its steps.

For the same reason the least error does not choose alone. Training goes on because the evidence of
all training rows says so; the held-out rows, a tenth as many, may say that it has gone too far, but
of a hundred models one before the last is the best for them by luck. So the last model is kept
whose error is within TOLERANCE of the least. Test RMSE of exact training chosen by the least error
and with a tolerance of 1, 2 and 3 %, on other splits of the sets than `benchmarks fedbnr` reports
(five of Skillcraft, four of the others), with half of their validation rows drawn 60 times:
Skillcraft .955, .945, .942, .942, CCPP 3.60, 3.58, 3.58, 3.58; Parkinsons 1.54, Bike .355 and SML
.136 with any. By hand: no command repeats it, and patience counted from the least error then. Of
one or two splits, 10 clients, least error and 2 %: by averaging .954 and .964, 4.18 and 4.16, 3.74
and 3.74, .395 and .391, .352 and .352; by distillation .966 and .975, 4.27 and 4.26, 5.60 and 5.58,
.426 and .427, .677 and .674.
"""

from collections.abc import Iterable

import numpy as np
from torch import Tensor

from kernels.errors import StatisticsError
from kernels.model.model import Model
from kernels.rounds.algorithm import Contribution
from kernels.rounds.shared.sufficient import RESOLUTION, TARGET_BOUND, site_features
from kernels.rounds.site.site import Part, Site
from privacy.layout import Block, SecureTotal

TOLERANCE = 0.02
"""By what share of the least error that of a later model may be higher."""


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
        raise StatisticsError("the summed absolute error is negative: a contribution is wrong")
    return float(total["held_out_errors"]) / rows if rows >= 0.5 else None


def keeps(error: float | None, earlier: Iterable[float | None]) -> bool:
    """Say whether a model is kept instead of those of its pass before it, given their errors.

    Without held-out rows the latest is.

    >>> errors = [1.0, 0.5, 0.505, 0.6, 0.51, 0.52]
    >>> [keeps(error, errors[:step]) for step, error in enumerate(errors)]
    [True, True, True, False, True, False]
    """
    least = min((each for each in earlier if each is not None), default=None)
    return error is None or least is None or error <= least * (1 + TOLERANCE)
