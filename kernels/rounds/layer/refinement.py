"""Refinement of the linear layer: one more sum, of residuals, which need less noise than targets.

The noise of b = Σ φy is proportional to the largest allowed |y|. Once there are weights w₀, from
`elbo` or from an earlier linear layer, residuals r = y − φᵀw₀ are smaller than targets and can be
clipped to ±c, where c is CLIP times their deviation. With δ = w − w₀,

    r = φᵀδ + ε,    b_r = Σ φ·clip(r) ≈ a·Sδ + noise,    a = P(|r| < c)

so b_r/a is to δ what b is to w, and its noise-aware posterior, with δ ~ N(0, λ²I) and refitted λ
and σ, is that of w around w₀. The effect of the noise of S is then proportional to ‖δ‖, not to
‖w‖. This is one Newton step of Huber's regression. As far as noise is concerned, a smaller c is
better: a/c, which divides it, is .48/σ at c = 2σ, .58/σ at 1.5σ, .68/σ at σ and .80/σ at most. But
a is known only as well as the residuals' deviation σ_r: Σ clip(r)² = n·E min(r², c²) is solved for
σ_r as if r were normal, and a follows from it.

broadcast  the kernel, its weights, w₀ and c
local      Σ φ·clip(r) and Σ clip(r)² over the training rows; and S = Σ φφᵀ if no sum has had it
sum        the same over all rows
update     σ, λ and the posterior around w₀

One row changes the sums by at most R·‖c‖, ‖c²‖ and R², where c has one element per target; a unit
of k rows changes them by at most k times as much.
"""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from scipy.optimize import brentq
from scipy.special import ndtr
from torch import Tensor

from kernels.errors import NotPrivate
from kernels.layer.posterior import SCALE_BITS
from kernels.layer.statistics import Noise, Statistics
from kernels.model.model import Centre, Model, check_model, known
from kernels.model.noise_plan import NoisePlan
from kernels.noisy import noise_aware
from kernels.noisy.realisable import DEVIATION_BITS, repaired
from kernels.parameter_checks import check_at_least, check_flag
from kernels.reproducible import on_grid, to_bits
from kernels.rounds.algorithm import Contribution, accepted
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import LEAST_BUDGET, REPAIRED, SCALES, Bits, OwnStep, Replay, Step
from kernels.rounds.shared.sufficient import (
    RESOLUTION,
    SQUARES_RESOLUTION,
    check_features,
    counted,
    counting_noise,
    feature_bound,
    scatter_block,
    squared_norm,
    statistics_length,
    without_failed,
)
from kernels.rounds.site.site import Part, Site
from kernels.storage import PRIVATE
from kernels.tables.chunks import CHUNK_ROWS
from privacy.layout import Block, Layout, SecureTotal

NAME = "refinement"
VERSION = 1
NEEDS = frozenset({Made.STANDARDISER, Made.CENTRE})
MAKES = frozenset({Made.CENTRE, Made.LAYER})

CLIP = 1.5
"""The clip of residuals, as a multiple of their deviation."""
SQUARES_WEIGHT = 0.1
"""The share of the cost that goes to Σ clip(r)², which gives σ."""
SCATTER_WEIGHT = 0.3
"""The share of the cost that goes to S if it is also summed."""

CENTRE_STEP = 2.0**-12
"""The grid of w₀: a change of a step moves no prediction by more than a small share of σ."""

_ROOM = 1 + 2.0**-40


@dataclass(frozen=True, kw_only=True)
class Spec:
    """`noise_share`: of the budget, relative to other stages; after `elbo` an eighth suffices."""

    STORED_AS: ClassVar[str] = "refinement.spec"

    noise_share: float = 1.0

    def __post_init__(self) -> None:
        check_at_least(1e-3, noise_share=self.noise_share)


@dataclass(frozen=True, eq=False)
class State:
    """`sums_scatter`: S is also summed. `before`: otherwise, the statistics that contain S."""

    STORED_AS: ClassVar[str] = "refinement.state"

    model: Model
    spec: Spec
    sums_scatter: bool
    done: bool = False
    before: Statistics | None = field(default=None, metadata=PRIVATE)

    def __post_init__(self) -> None:
        check_model(self.model)
        check_flag(sums_scatter=self.sums_scatter, done=self.done)


def layout(state: State) -> Layout:
    """Return the sums of clipped residuals, and S if no sum has had it."""
    model = state.model
    privacy, reach = _privacy(model), _reach(model)
    most, norm = privacy.max_rows_per_patient, math.sqrt(squared_norm(model))
    rows, largest = float(model.max_rows), float(reach.max()) * _ROOM
    scatter = SCATTER_WEIGHT if state.sums_scatter else 0.0
    blocks = (
        Block(
            "cross",
            (model.kernel.features, model.targets),
            rows * feature_bound(model) * largest,
            RESOLUTION,
            most * norm * float(reach.norm()),
            weight=1 - SQUARES_WEIGHT - scatter,
        ),
        Block(
            "target_squares",
            (model.targets,),
            rows * largest**2,
            SQUARES_RESOLUTION,
            most * float(reach.square().norm()),
            weight=SQUARES_WEIGHT,
        ),
    )
    if not state.sums_scatter:
        return Layout(blocks)
    return Layout((replace(scatter_block(model), weight=scatter), *blocks))


def initial(spec: Spec, model: Model) -> State:
    """Start from the weights of `elbo`, or from those of an earlier linear layer."""
    _privacy(model)
    if model.statistics is None:
        known(model.centre, "elbo")
        return State(model, spec, sums_scatter=True)
    before, centre = model.statistics, centre_of(model)
    model = replace(model, centre=centre, statistics=None, recalibration=None, scores=None)
    return State(model, spec, sums_scatter=False, before=before)


def contribute(state: State, site: Site) -> Contribution:
    """Sum over the site's training rows."""
    model = state.model
    centre, reach = known(model.centre, "elbo").weights, _reach(model)
    side, targets = centre.shape
    statistics = Statistics.zero(features=side, targets=targets)
    for x, y, _ in site.chunks(Part.TRAINING, model):
        for rows, phi in model.urk.features_in_chunks(x, chunk_rows=CHUNK_ROWS):
            residuals = (y[rows] - phi @ centre).clamp(-reach, reach)
            statistics += Statistics.of_features(*without_failed(phi, residuals))
    blocks = {
        "cross": statistics.cross.numpy(),
        "target_squares": statistics.target_squares.numpy(),
    }
    return {"scatter": statistics.scatter.numpy(), **blocks} if state.sums_scatter else blocks


def update(state: State, total: SecureTotal) -> State:
    """Set the statistics of the residuals, corrected for the clip, and fit σ and λ to them."""
    total = accepted(total, layout(state))
    model = state.model
    if state.sums_scatter:
        scatter, deviation = torch.tensor(total["scatter"]), total.noise("scatter")
        count = max(1, counted(scatter.diagonal(), model))
        rows = counting_noise(deviation, model)
    else:
        before = known(state.before, "linear")
        noise = known(before.noise, "linear")
        scatter, deviation, count, rows = before.scatter, noise.scatter, before.count, noise.count
    reach, squares = _reach(model), torch.tensor(total["target_squares"])
    residual = [
        deviation_behind(float(sum_) / count, clip=float(clip))
        for sum_, clip in zip(squares, reach, strict=True)
    ]
    deviations = to_bits(torch.tensor(residual, dtype=torch.float64), SCALE_BITS)
    unclipped = torch.from_numpy(2 * ndtr((reach / deviations).numpy()) - 1)
    unclipped = to_bits(unclipped, SCALE_BITS)
    statistics = Statistics(
        scatter,
        torch.tensor(total["cross"]) / unclipped,
        count * deviations.square(),
        count,
        noise=Noise(
            scatter=deviation,
            cross=total.noise("cross") / float(unclipped.min()),
            target_squares=total.noise("target_squares") / float(unclipped.min()) ** 2,
            count=rows,
        ),
    )
    if state.sums_scatter:
        statistics = repaired(statistics, model.urk)
    scales = noise_aware.refit(statistics)
    model = model.advanced(hyperparameters=scales, centre=model.centre, statistics=statistics)
    return replace(state, model=model, done=True, before=None)


def finished(state: State) -> bool:
    """Return whether the one sum has been made."""
    return state.done


def check_private(_spec: Spec, model: Model) -> None:
    """Refuse a kernel whose features are not bounded."""
    check_features(model)


REPLAY = Replay(
    grids={
        **SCALES,
        **REPAIRED,
        "before.scatter": OwnStep(),
        "before.noise.scatter": Bits(DEVIATION_BITS),
        "model.centre.weights": Step(CENTRE_STEP),
        "model.centre.deviations": Bits(SCALE_BITS),
    },
    budget=LEAST_BUDGET,
)


def declare(spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    return Declaration(
        needs=NEEDS,
        needs_students=frozenset(),
        needs_held_out=False,
        makes=MAKES,
        answers=Answers.REAL,
        students=before.students,
        words="sums of products of features with the model's clipped errors; also sums of products "
        "of features (S) if no earlier sum had them",
        sums=1,
        numbers=statistics_length(before.model),
        numbers_in_all=statistics_length(before.model),
        leaves=statistics_length(before.model),
        row_count=None,
        local_passes=0,
        rate_times_steps=0.0,
        reads=frozenset({Part.TRAINING}),
        summed_together=frozenset({frozenset({Part.TRAINING})}),
        sampling_rate=1.0,
        noise_share=spec.noise_share,
        public_rows=PublicRows.NONE,
        public_set=None,
        needs_consent=False,
        includes=frozenset(),
        replay=REPLAY,
    )


STORED = (Spec, State)


def _privacy(model: Model) -> NoisePlan:
    if model.privacy is None:
        raise NotPrivate(
            "refinement needs a program with differential privacy: in this one `linear` is exact"
        )
    return model.privacy


def _reach(model: Model) -> Tensor:
    """Return c, (T,)."""
    return CLIP * known(model.centre, "elbo").deviations


def centre_of(model: Model) -> Centre:
    """Return the posterior's weights, and the deviations of residuals from them, (T,), rounded.

    Any weights near the posterior's are as good a centre.
    """
    posterior, statistics = model.posterior, known(model.statistics, "linear")
    latent = [
        (posterior.covariance(target) * statistics.scatter).sum() / statistics.count
        for target in range(model.targets)
    ]
    variance = posterior.hyperparameters.noise_variance + torch.stack(latent)
    return Centre(on_grid(posterior.weights, CENTRE_STEP), to_bits(variance.sqrt(), SCALE_BITS))


def deviation_behind(mean: float, *, clip: float) -> float:
    """Return the σ of a normal r with E min(r², c²) = mean, from c/8 to 1.5c.

    If nearly all residuals are clipped, the weights were further off than assumed, by an unknown
    amount: half of the residuals are then assumed to be inside, and a step goes twice the clip.
    """
    least, most = clip / 8, 1.5 * clip

    def gap(deviation: float) -> float:
        x = clip / deviation
        inside = 2 * ndtr(x) - 1
        density = math.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
        return float(deviation**2 * (inside - 2 * x * density) + clip**2 * (1 - inside) - mean)

    if gap(least) >= 0:
        return least
    if gap(most) <= 0:
        return most
    found: float = brentq(gap, least, most)
    return found
