"""The weighted statistics of outcomes as blocks of a sum, with their bounds and sensitivities.

A row of a table becomes `rows` weighted rows (one for each interval of a time to an event, else 1),
each with 0 ≤ ω ≤ W and |κ| ≤ K (`kernels.outcomes.likelihood.row_bounds`). With features of at most
F in absolute value, n rows have |S_ω| ≤ n·rows·W·F² and |b| ≤ n·rows·K·F in every element.

Features, √ω·φ, κ and t are rounded to grids before they are multiplied, and the rounding of the sum
is undone (`kernels.rounds.shared.grid`): the sums are the same, bit for bit, however rows are
divided among sites.

**With differential privacy** nothing is rounded to grids, which would lengthen φ, and Σt is not
summed: it has no bound of its own. With ‖φ‖ ≤ R, a row
changes S_ω by ωφφᵀ, whose norm is at most W·R², and b by at most K·R, for each latent function. The
J rows of a patient's intervals have the features (φ, e_j), so
S_ω changes by the matrix [Σω_j·φφᵀ, φωᵀ; ωφᵀ, diag ω], ω ≤ W, and b by (φΣκ_j, κ):

    ΔS = W·√((J·R²)² + 2J·R² + J)      Δb = K·√((J·R)² + J)

which for J = 1 are slightly more than those of one row. A unit of k rows changes them k times. κ is
that of Pólya–Gamma's parabolas, so K = B/2 + |o|B/4 (`kernels.outcomes.logistic`).

In a sum of slopes (`kernels.outcomes.noisy_newton`) each row of the table adds

    g·min(1, C/‖g‖),    g = (κ − ωm)φ,  or of a patient's intervals Σ_j (κ − ωm)_j·(φ, e_j)

for each latent function, C = SLOPE_CLIP. So a row changes it by at most C, and a unit of k rows by
at most kC, whatever the features, the kind of outcome, q and J: far below B·R, and B is the upper
bound of a count. The clip follows from the row and q alone, not from other rows. It is wrong only
about rows that q takes for very unlikely, where bounding φ would be wrong about all that are far
out. A count has slopes (y − μ)/(1 + μ) while its dispersion is 1, of deviation 1 or less, and the
slopes of a patient's intervals nearly cancel, so one C serves all kinds.

Noise is divided between S_ω and b of the first sum in proportion to ΔS·‖w‖/√2 : Δb, as derived in
`kernels.rounds.shared.sufficient`. For a yes/no outcome with R = 1 and an offset near 0 it is
‖w‖/4√2 : ½, and ‖w‖ is 5 to 10 with as much noise as is usual: about 7 to 3, SCATTER_SHARE. Half
and four fifths in its place change the log loss of heart at ε = 1 by less than a thousandth.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels.layer.posterior import rounding_of
from kernels.layer.statistics import Noise
from kernels.model.model import Model, known
from kernels.outcomes import count
from kernels.outcomes.census import Census
from kernels.outcomes.classes import STRIDE
from kernels.outcomes.fitted import FittedOutcome, latent_functions, layer_features
from kernels.outcomes.likelihood import Likelihood, RowBounds, row_bounds
from kernels.outcomes.logistic import Rule, polya_gamma
from kernels.outcomes.variational import Layer, updated_together
from kernels.outcomes.weighted import Grid, Weighted
from kernels.reproducible import on_grid
from kernels.rounds.algorithm import Contribution
from kernels.rounds.shared.grid import CERTAIN, base_step
from kernels.rounds.shared.sufficient import (
    RESOLUTION,
    contribution_of,
    feature_bound,
    feature_scale,
    rows_block,
    sent_scale,
    site_statistics,
    squared_norm,
    statistics_blocks,
    stretched_rounding,
    without_failed,
)
from kernels.rounds.site.site import Part, Site
from kernels.tables.chunks import CHUNK_ROWS
from kernels.tables.outcome_cells import EXPOSURES, PRIVATE_EXPOSURES, positions
from kernels.tables.records import Records
from kernels.tables.targets import Count, TimeToEvent
from privacy.layout import Block, SecureTotal

TERMS_RESOLUTION = 2.0**-20
SLOPE_CLIP = 0.6
"""The largest norm of a row's part in a sum of slopes, with differential privacy.

For a yes or no, a part is |y − p|·‖φ‖ where q is certain: with ‖φ‖ ≤ .8, only rows whose outcome
has a probability below 1/4 are shortened. `benchmarks.outcomes.ours` compares other values."""
SCATTER_SHARE = 0.7
"""With differential privacy, the share of the first sum's cost that is spent on S_ω."""
_ROOM = 1 + 2.0**-40


def starting(model: Model) -> tuple[FittedOutcome, ...]:
    """Return every outcome at its prior, λ = 1, with the offsets of the census."""
    if not model.schema.outcomes:
        return ()
    schema, features, kernel = model.schema, model.kernel.features, model.kernel
    # The ratio of a linear part is each outcome's own, unless the part is all that there is.
    linear = (kernel.main_features, features) if kernel.main_features else (0, 0)
    offsets = known(model.census, "moments").offsets(schema)
    return tuple(
        FittedOutcome(
            (Layer.prior(layer_features(outcome, features), stretched=linear),)
            * latent_functions(outcome),
            own,
            1.0 if isinstance(outcome, Count) else None,
        )
        for outcome, own in zip(schema.outcomes, offsets, strict=True)
    )


def outcome_columns(model: Model, records: Records) -> list[Tensor]:
    """Return the columns of each outcome, (n, 1 or 2); with privacy, exposures are clipped."""
    schema, found = model.schema, []
    outcomes = known(records.outcomes, "moments")
    for outcome, where in zip(schema.outcomes, positions(schema.outcomes), strict=True):
        own = outcomes[:, where]
        if model.privacy is not None and isinstance(outcome, Count):
            exposure = own[:, 1:].clamp(*PRIVATE_EXPOSURES)
            own = torch.cat([own[:, :1], exposure], 1)
        found.append(own)
    return found


def site_outcomes(model: Model, site: Site, part: Part) -> list[Tensor]:
    """Return the columns of each outcome of all rows of a part, in memory."""
    pieces = [outcome_columns(model, own) for own in site.record_chunks(part, model)]
    return [torch.cat(each) for each in zip(*pieces, strict=True)]


def outcome_chunks(model: Model, site: Site, part: Part) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Yield features (n, M) and the columns of each outcome, in bounded memory."""
    for x, _, records in site.chunks(part, model):
        columns = outcome_columns(model, records)
        for rows, phi in model.urk.features_in_chunks(x, chunk_rows=CHUNK_ROWS):
            if model.privacy is not None:
                (phi,) = without_failed(phi)
            yield phi, [own[rows] for own in columns]


def all_statistics_blocks(model: Model, fitted: Sequence[FittedOutcome]) -> tuple[Block, ...]:
    """Return the blocks of (S, b, yᵀy, n) of real numbers, and of all outcomes' sums."""
    rows = (rows_block(model),) if model.privacy is None else ()
    real = statistics_blocks(model) if model.targets else rows
    outcomes = (
        block for index, own in enumerate(fitted) for block in weighted_blocks(model, index, own)
    )
    return (*real, *outcomes)


def all_statistics(
    model: Model,
    fitted: Sequence[FittedOutcome],
    site: Site,
    *,
    part: Part = Part.TRAINING,
    rule: Rule = polya_gamma,
) -> dict[str, NDArray[np.float64]]:
    """Return these blocks of the rows of a part of a site, with a rule's parabolas at q."""
    blocks: dict[str, NDArray[np.float64]] = {}
    if model.privacy is None:
        blocks["rows"] = np.array(float(site.count(part)))
    if model.targets:
        blocks |= contribution_of(site_statistics(model, site, part), model)
    if not fitted:
        return blocks
    likelihoods = [replace(own, rule=rule) for own in likelihoods_at(model, fitted)]
    for index, own in enumerate(fitted):
        blocks |= nothing_at(model, index, own)
    for phi, columns in outcome_chunks(model, site, part):
        for index, at in enumerate(likelihoods):
            for name, each in contribution_at(model, index, at, phi, columns[index]).items():
                blocks[name] = blocks[name] + each
    return blocks


def stepped(
    model: Model, fitted: Sequence[FittedOutcome], total: SecureTotal, *, rows: int
) -> tuple[FittedOutcome, ...]:
    """Return every outcome after one step of phase 1, from the sums made at its q.

    Each is a full step along the Pólya–Gamma bound, which cannot fall; of classes one of their own
    length. λ and the dispersion of counts follow from the same sums.
    """
    found = []
    for index, own in enumerate(fitted):
        sums = sums_of(total, model, index, own, rows=rows)
        counted = isinstance(model.schema.outcomes[index], Count)
        layers = updated_together(own.layers, sums, share=1.0 if len(sums) == 1 else STRIDE)
        dispersion = dispersion_in(total, index) if counted else None
        found.append(FittedOutcome(layers, own.offsets, dispersion))
    return tuple(found)


def negative_bound(
    model: Model, fitted: Sequence[FittedOutcome], total: SecureTotal, *, rows: int
) -> float:
    """Return the negative bound of all outcomes at q, from the sums made at it."""
    found = 0.0
    for index, own in enumerate(fitted):
        sums = sums_of(total, model, index, own, rows=rows)
        found -= math.fsum(layer.bound(each) for layer, each in zip(own.layers, sums, strict=True))
    return found


def likelihoods_at(model: Model, fitted: Sequence[FittedOutcome]) -> tuple[Likelihood, ...]:
    """Return every outcome at its q with the Pólya–Gamma bound's parabolas, for phase 1."""
    pairs = zip(model.schema.outcomes, fitted, strict=True)
    inducing = model.kernel.inducing_features
    return tuple(Likelihood(outcome, own, polya_gamma, inducing) for outcome, own in pairs)


def grid_of(model: Model, index: int) -> Grid:
    """Return the grids of features, κ and t of an outcome."""
    return Grid(features=base_step(model) / _sent_scale(model, index), terms=TERMS_RESOLUTION)


def _sent_scale(model: Model, index: int) -> Tensor:
    """Return what an outcome's features are multiplied by in its blocks (`sent_scale`)."""
    scale, outcome = sent_scale(model), model.schema.outcomes[index]
    if not isinstance(outcome, TimeToEvent):
        return scale
    indicator = 1.0
    if model.privacy is None:
        indicator = math.ldexp(1.0, math.frexp(feature_scale(model))[1] - 1)
    return torch.cat([scale, scale.new_full((len(outcome.intervals),), indicator)])


def weighted_blocks(model: Model, index: int, fitted: FittedOutcome) -> tuple[Block, ...]:
    """Return the blocks of one outcome's sums."""
    outcome = model.schema.outcomes[index]
    bounds = _row_bounds(model, index, fitted)
    wide, functions = fitted.layers[0].features, len(fitted.layers)
    rows = model.max_rows * bounds.rows * _ROOM
    largest = feature_bound(model)
    if isinstance(outcome, TimeToEvent):
        largest = max(largest, float(_sent_scale(model, index)[-1]))
    of_scatter, of_cross = rows * bounds.weight * largest**2, rows * bounds.pull * largest
    # Counts are larger than other outcomes, and so may be the step of their sums.
    coarser = RESOLUTION * 2.0 ** max(0, math.ceil(math.log2(bounds.weight)))
    blocks = []
    delta_scatter = _scatter_sensitivity(model, index, bounds)
    delta_cross = _cross_sensitivity(model, index, bounds)
    for function in range(functions):
        blocks += [
            Block(
                _name(index, "scatter", function),
                (wide, wide),
                of_scatter,
                coarser,
                delta_scatter,
                symmetric=True,
                weight=SCATTER_SHARE,
            ),
            Block(
                _name(index, "cross", function),
                (wide,),
                of_cross,
                coarser,
                delta_cross,
                weight=1 - SCATTER_SHARE,
            ),
        ]
    if model.privacy is None:
        terms = model.max_rows * bounds.terms
        step = coarser / RESOLUTION * TERMS_RESOLUTION
        blocks.append(Block(_name(index, "terms"), (), terms, step))
        if isinstance(outcome, Count):
            blocks.append(Block(_name(index, "dispersion"), (len(count.GRID),), terms, step))
    return tuple(blocks)


def slope_blocks(model: Model, index: int, fitted: FittedOutcome) -> tuple[Block, ...]:
    """Return the blocks of one outcome's slopes, with differential privacy."""
    bound = model.max_rows * SLOPE_CLIP * _ROOM
    delta = known(model.privacy, "privacy").max_rows_per_patient * SLOPE_CLIP
    return tuple(
        Block(_name(index, "slopes", function), (layer.features,), bound, RESOLUTION, delta)
        for function, layer in enumerate(fitted.layers)
    )


def slopes_at(index: int, at: Likelihood, features: Tensor, outcomes: Tensor) -> Contribution:
    """Return the slopes of one outcome from some rows."""
    found = at.slopes(features, outcomes, clip=SLOPE_CLIP)
    return {_name(index, "slopes", function): own.numpy() for function, own in enumerate(found)}


def slopes_of(
    total: SecureTotal, index: int, fitted: FittedOutcome
) -> tuple[tuple[Tensor, ...], float]:
    """Return an outcome's summed slopes, and the deviation of the noise in each element."""
    names = [_name(index, "slopes", function) for function in range(len(fitted.layers))]
    return tuple(torch.tensor(total[name]) for name in names), total.noise(names[0])


def _scatter_sensitivity(model: Model, index: int, bounds: RowBounds) -> float | None:
    """Return what a unit can change in a latent function's S_ω; None without privacy."""
    if model.privacy is None:
        return None
    square, rows = squared_norm(model), bounds.rows
    if isinstance(model.schema.outcomes[index], TimeToEvent):
        square = math.sqrt((rows * square) ** 2 + 2 * rows * square + rows)
    return model.privacy.max_rows_per_patient * bounds.weight * square


def _cross_sensitivity(model: Model, index: int, bounds: RowBounds) -> float | None:
    """Return what a unit can change in a latent function's b; None without privacy."""
    if model.privacy is None:
        return None
    square, rows = squared_norm(model), bounds.rows
    if isinstance(model.schema.outcomes[index], TimeToEvent):
        square = rows**2 * square + rows
    return model.privacy.max_rows_per_patient * bounds.pull * math.sqrt(square)


def _row_bounds(model: Model, index: int, fitted: FittedOutcome) -> RowBounds:
    ends = EXPOSURES if model.privacy is None else PRIVATE_EXPOSURES
    return row_bounds(
        model.schema.outcomes[index],
        fitted,
        log_exposure=max(abs(math.log(end)) for end in ends),
        private=model.privacy is not None,
    )


def contribution_at(
    model: Model, index: int, at: Likelihood, features: Tensor, outcomes: Tensor
) -> Contribution:
    """Return the blocks of one outcome from some rows."""
    if model.privacy is None:
        sums = at.sums(features, outcomes, grid=grid_of(model, index))
    else:
        sums = at.sums(features, outcomes, clip=_row_bounds(model, index, at.fitted).pull)
    scale, blocks = _sent_scale(model, index), {}
    for function, own in enumerate(sums):
        blocks[_name(index, "scatter", function)] = (own.scatter * scale.outer(scale)).numpy()
        blocks[_name(index, "cross", function)] = (own.cross * scale).numpy()
    if model.privacy is not None:
        return blocks
    blocks[_name(index, "terms")] = np.array(math.fsum(own.terms for own in sums))
    if isinstance(at.outcome, Count):
        terms = at.dispersion_terms(features, outcomes, grid_of(model, index))
        blocks[_name(index, "dispersion")] = terms.numpy()
    return blocks


def nothing_at(model: Model, index: int, fitted: FittedOutcome) -> dict[str, NDArray[np.float64]]:
    """Return the blocks of no rows."""
    return {block.name: np.zeros(block.shape) for block in weighted_blocks(model, index, fitted)}


def sums_of(
    total: SecureTotal, model: Model, index: int, fitted: FittedOutcome, *, rows: int
) -> tuple[Weighted, ...]:
    """Return an outcome's summed statistics as they would be without the rounding of the sum.

    rows: the number of rows; Σt belongs to all latent functions, and is the first one's.
    """
    grid, scale, found = grid_of(model, index), _sent_scale(model, index), []
    steps = torch.as_tensor(grid.features)
    for function, layer in enumerate(fitted.layers):
        scatter = torch.tensor(total[_name(index, "scatter", function)]) / scale.outer(scale)
        cross = torch.tensor(total[_name(index, "cross", function)]) / scale
        resolution = 2 * total.rounding(_name(index, "scatter", function)) / total.contributors
        rounding = stretched_rounding(
            1 / scale,
            rounding_of(resolution=resolution, clients=total.contributors, features=layer.features),
        )
        if model.privacy is not None:
            noise = _noise(total, index, function)
            found.append(Weighted(scatter, cross, 0.0, rows, rounding, noise))
            continue
        deviation = resolution * math.sqrt(total.contributors / 12)
        certain = CERTAIN * deviation < base_step(model) ** 2 / 2
        terms = float(total[_name(index, "terms")]) if function == 0 else 0.0
        found.append(
            Weighted(
                on_grid(scatter, steps.outer(steps)),
                on_grid(cross, steps * grid.pulls),
                terms,
                rows,
                0.0 if certain else rounding,
            )
        )
    return tuple(found)


def terms_rounding(total: SecureTotal, index: int) -> float:
    """Return the largest error of a summed Σt."""
    return total.rounding(_name(index, "terms"))


def dispersion_in(total: SecureTotal, index: int) -> float:
    """Return the best r of a count, from the summed terms."""
    return count.dispersion_of(torch.tensor(total[_name(index, "dispersion")]))


def _noise(total: SecureTotal, index: int, function: int) -> Noise:
    scatter = total.noise(_name(index, "scatter", function))
    cross = total.noise(_name(index, "cross", function))
    # There is no yᵀy, and the number of rows is known from elsewhere: neither is used.
    return Noise(scatter=scatter, cross=cross, target_squares=1.0, count=1.0)


def _name(index: int, what: str, function: int | None = None) -> str:
    name = f"outcome.{index}.{what}"
    return name if function is None else f"{name}.{function}"


def outcome_numbers(model: Model) -> int:
    """Return the number of numbers in one sum of all outcomes, of a model before its census."""
    start = starting(replace(model, census=Census.zero(model.schema)))
    return sum(
        block.length
        for index, own in enumerate(start)
        for block in weighted_blocks(model, index, own)
    )


def slope_numbers(model: Model) -> int:
    """Return the number of numbers in one sum of slopes of all outcomes."""
    start = starting(replace(model, census=Census.zero(model.schema)))
    return sum(layer.features for own in start for layer in own.layers)
