"""What `recalibration` and `evaluation` sum for outcomes, as blocks of their sums.

`kernels.outcomes.scored` defines the sums and what follows from them; here are their names in a
layout, and the predictions of a site's held-out rows.

With differential privacy every row is predicted alone, as in `predict_each`: in a batch the last
bit of a prediction may depend on the other rows, and whether a row is counted in one bin or the
next may depend on that bit. Rows that a hostile broadcast makes infinite contribute nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels.model.model import Model, known
from kernels.noisy.recalibration import COUNT_STEP
from kernels.outcomes import classes
from kernels.outcomes.likelihood import Likelihood
from kernels.outcomes.scored.kinds import predicted
from kernels.outcomes.scored.summed import SumBlock
from kernels.rounds.replay import Bits, Grid, Step
from kernels.rounds.shared.weighted_sums import outcome_columns
from kernels.rounds.site.site import Part, Site
from kernels.tables.chunks import CHUNK_ROWS
from kernels.tables.targets import Outcome, TimeToEvent
from privacy.layout import Block, SecureTotal


class Judged(NamedTuple):
    """Some rows of one outcome: its position, its columns (n, width), what the model says, folds.

    folds: (n,) int64.
    """

    position: int
    target: Outcome
    columns: Tensor
    said: Any
    folds: Tensor


def judged_rows(model: Model, site: Site, part: Part, *, folds: int) -> Iterator[Judged]:
    """Yield every outcome's held-out rows with what the model says of them."""
    if not model.schema.outcomes:
        return
    private = model.privacy is not None
    for (x, _, records), fold in site.chunks_in_folds(part, model, folds=folds):
        columns = outcome_columns(model, records)
        at_a_time = 1 if private else CHUNK_ROWS
        for rows, phi in model.urk.features_in_chunks(x, chunk_rows=at_a_time):
            phi = phi.nan_to_num(nan=0.0) if private else phi
            for index, target in enumerate(model.schema.outcomes):
                own = columns[index][rows]
                said = said_of(model, index, phi, own)
                if private and not _is_finite(said):
                    continue
                yield Judged(index, target, own, said, fold[rows])


def said_of(model: Model, index: int, features: Tensor, columns: Tensor) -> Any:
    """Return what the model says of an outcome, not recalibrated, of rows of features (n, M)."""
    target, fitted = model.schema.outcomes[index], known(model.outcomes, "outcomes")[index]
    inducing = model.kernel.inducing_features
    if isinstance(target, TimeToEvent):
        survival = Likelihood(target, fitted, inducing=inducing).survival(features).mean
        return predicted(target, fitted, columns, survival)
    latent = classes.latent(fitted.layers, features, inducing=inducing)
    return predicted(target, fitted, columns, *latent)


def _is_finite(said: Any) -> bool:
    return all(bool(own.isfinite().all()) for own in vars(said).values() if isinstance(own, Tensor))


def blocks_of(model: Model, prefix: str, described: Iterable[SumBlock]) -> list[Block]:
    """Return the blocks of a layout; with privacy each has the sensitivity of a unit."""
    rows, privacy = float(model.max_rows), model.privacy
    return [
        Block(
            f"{prefix}.{own.name}",
            own.shape,
            rows * own.bound,
            own.resolution,
            None
            if privacy is None or own.sensitivity is None
            else privacy.max_rows_per_patient * own.sensitivity,
        )
        for own in described
    ]


def nothing_of(prefix: str, described: Iterable[SumBlock]) -> dict[str, NDArray[np.float64]]:
    """Return the blocks of no rows."""
    return {f"{prefix}.{own.name}": np.zeros(own.shape) for own in described}


def add_to(sums: dict[str, NDArray[np.float64]], prefix: str, found: Mapping[str, Tensor]) -> None:
    """Add the sums of some rows to those so far."""
    for name, own in found.items():
        sums[f"{prefix}.{name}"] = sums[f"{prefix}.{name}"] + own.double().numpy()


def totals_of(total: SecureTotal, prefix: str, described: Iterable[SumBlock]) -> dict[str, Tensor]:
    """Return the totals by the names of the sums; counts without the rounding of the sum."""
    found = {}
    for own in described:
        values = torch.tensor(total[f"{prefix}.{own.name}"])
        exact = own.resolution == 1 and own.sensitivity is None
        found[own.name] = values.round().clamp_min(0.0) if exact else values
    return found


def noise_of(total: SecureTotal, prefix: str, described: Iterable[SumBlock]) -> dict[str, float]:
    """Return the deviation of each block's noise."""
    return {own.name: total.noise(f"{prefix}.{own.name}") for own in described}


def name_of(index: int, what: str) -> str:
    """Return the beginning of the names of an outcome's blocks."""
    return f"outcome.{index}.{what}"


def calibration_grids(path: str) -> dict[str, Grid]:
    """Return the grids of recalibrations at a path of a state, for its replay."""
    return {
        f"{path}.mapped.slope": Step(2.0**-16),
        f"{path}.mapped.intercept": Step(2.0**-16),
        f"{path}.mapped.knots": Bits(24),
        f"{path}.exponent": Bits(16),
        f"{path}.factor": Bits(16),
        f"{path}.before": Bits(16),
        f"{path}.dispersion": Bits(16),
        **{
            f"{path}.held.{name}": Step(COUNT_STEP)
            for name in ("scores", "hazards", "odds", "totals", "gains", "tails")
        },
    }


def outcome_score_grids(path: str) -> dict[str, Grid]:
    """Return the grids of outcomes' scores at a path of a state, which noise makes uneven."""
    sums = (
        *("scores", "log_losses", "briers", "confusion", "against_rest", "tops", "ends"),
        *("event_squares", "survivor_squares", "rows", "counts", "means", "transforms"),
        *("deviances", "squared_errors"),
    )
    found: dict[str, Grid] = {
        f"{path}.{law}.{name}": Step(COUNT_STEP) for law in ("raw", "recalibrated") for name in sums
    }
    covered = ("rows", "inside", "sizes")
    return found | {f"{path}.covered.{name}": Step(COUNT_STEP) for name in covered}
