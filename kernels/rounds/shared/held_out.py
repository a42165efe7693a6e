"""The error on the rows held out for stopping, as additional blocks of a sum.

It is the absolute error of targets that are real numbers, in deviations, plus −log p of all other
targets, in nats.

If a stage's broadcast contains w̄, each site evaluates the received model as part of the sum that it
contributes to anyway, so stopping and model choice need no extra sum.

Errors are not squared: there are few held-out rows, and a single row that no model explains would
decide alone. With squared errors, one row of 207 ended SML's training, in one split of nine, after
a quarter of its steps.

For the same reason, the lowest error does not decide alone. Training continues because the evidence
of all training rows supports it. The held-out rows, a tenth as many, may show that it has gone too
far, but among a hundred models one before the last is the best for them by chance. So the last
model whose error is within TOLERANCE of the lowest is kept. Test RMSE of exact training, chosen by
the lowest error and with a tolerance of 1, 2 and 3 %, on other splits of the sets than
`benchmarks fedbnr` reports (five of Skillcraft, four of the others), with half of their validation
rows drawn 60 times: Skillcraft .955, .945, .942, .942, CCPP 3.60, 3.58, 3.58, 3.58; Parkinsons
1.54, Bike .355 and SML .136 with any of them. These were measured by hand: no command repeats the
measurement, and patience was then counted from the lowest error. With one or two splits and 10
clients, lowest error and 2 %: averaging .954 and .964, 4.18 and 4.16, 3.74 and 3.74, .395 and .391,
.352 and .352; distillation .966 and .975, 4.27 and 4.26, 5.60 and 5.58, .426 and .427, .677 and
.674.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from torch import Tensor

from kernels.errors import StatisticsError
from kernels.model.model import Model
from kernels.outcomes.likelihood import MOST_LOSS, Likelihood
from kernels.rounds.algorithm import Contribution
from kernels.rounds.shared.sufficient import RESOLUTION, TARGET_BOUND, site_features
from kernels.rounds.shared.weighted_sums import outcome_chunks
from kernels.rounds.site.site import Part, Site
from privacy.layout import Block, SecureTotal

TOLERANCE = 0.02
"""How much higher the error of a later model may be, as a share of the lowest error."""


def held_out_blocks(model: Model) -> tuple[Block, ...]:
    """Return the blocks of Σ|r| and n; predictions and targets are within ±TARGET_BOUND."""
    rows, outcomes = float(model.max_rows), len(model.schema.outcomes)
    errors = rows * (model.targets * 2 * TARGET_BOUND + outcomes * MOST_LOSS)
    return (
        Block("held_out_errors", (), errors, RESOLUTION),
        Block("held_out_rows", (), rows, 1.0),
    )


def held_out_contribution(
    model: Model,
    posterior_weights: Tensor | None,
    site: Site,
    *,
    features: Tensor | None = None,
    likelihoods: Sequence[Likelihood] = (),
) -> Contribution:
    """Sum the errors of φᵀw̄ and of the outcomes over the site's rows for stopping; count the rows.

    posterior_weights: None if no target is a real number. likelihoods: of the outcomes, at their q.
    features: the features of these rows, (n, M), if already computed.
    """
    errors = 0.0
    if posterior_weights is not None:
        if features is None:
            chunks = site_features(model, site, Part.STOPPING)
        else:
            chunks = iter([(features, site.table(Part.STOPPING, model)[1])])
        for phi, y in chunks:
            errors += float((phi @ posterior_weights).sub_(y).abs_().sum())
    if likelihoods:
        for phi, columns in outcome_chunks(model, site, Part.STOPPING):
            for at, own in zip(likelihoods, columns, strict=True):
                errors += float(at.losses(phi, own).sum())
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
    """Return whether a model replaces the earlier ones of its pass, given their errors.

    Without held-out rows the latest model is kept.

    >>> errors = [1.0, 0.5, 0.505, 0.6, 0.51, 0.52]
    >>> [keeps(error, errors[:step]) for step, error in enumerate(errors)]
    [True, True, True, False, True, False]
    """
    least = min((each for each in earlier if each is not None), default=None)
    return error is None or least is None or error <= least * (1 + TOLERANCE)
