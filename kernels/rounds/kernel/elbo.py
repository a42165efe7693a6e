"""Phase 1 by DP-SGD on the evidence lower bound, which is a sum over rows (the evidence is not).

With q(w) = N(m, diag s²) for each target,

    −ELBO = Σ_rows Σ_t [½ log 2πσ_t² + ((y_t − φᵀm_t)² + Σ_j φ_j² s_tj²)/2σ_t²]
            + Σ_t KL(q_t ‖ N(0, λ_t²I))

and λ_t² = (‖m_t‖² + Σ s_tj²)/M minimises the KL. The hospitals compute the sum over rows, clipped
per unit, over a Poisson sample of units; the coordinator computes the KL, which costs no privacy.

broadcast  θ, m, log s, log σ
local      each unit is sampled with probability `sampling_rate`, and only the site knows which
           were; the gradient of the sampled units' losses in (θ, m, log s, log σ), its last part
           times NOISE_WEIGHT, each unit's part clipped to `clip`
sum        the gradient over a random sample of all units, with noise
update     one step of Adam on −ELBO, whose sum over all rows is estimated by that over the sample
           divided by the rate; a run whose parameters leave for infinity ends (MOST_SPREAD),
           before further sums are paid for

Rows are not counted. Adam's steps do not depend on the scale of a loss, so −ELBO needs no division
by n; and where n was estimated from noisy counts, the first of them could be near zero, a gradient
thousands of times too large, and Adam's mean of squares too large to learn for the rest of the run.

Sampling hides which units were in a sum, so the same noise costs less (the accounting uses the
rate). θ, σ and λ are kept: `linear`, run afterwards, finds w with its full covariance in one sum
over all rows. Without differential privacy the algorithm is the same without noise, and `exact` is
the better choice.

With differential privacy the ratio ρ of a linear part is kept, as `linear` keeps it: it is one
number in an exponent, the noise moves it further than the rows do, and the noise of the sums that
follow is proportional to ρ². The weights of a linear part take LINEAR_STEP times as large steps.
There are p + 1 of them beside many more samples, and steps of Adam are as long in each coordinate:
otherwise the samples would learn a line first.
"""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from kernels import adam
from kernels.errors import Diverged, StateError
from kernels.features.urk import starting_weights, weight_count
from kernels.layer.posterior import Hyperparameters
from kernels.model.model import Centre, Model, check_model, known
from kernels.parameter_checks import check_at_least, check_learning_rate, check_whole
from kernels.reproducible import exp, near, on_grid
from kernels.reproducible import total as sum_of
from kernels.rounds.algorithm import Contribution, accepted
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import BITWISE
from kernels.rounds.shared.clipped import RowGradients, clipped_gradient, gradient_block
from kernels.rounds.shared.sufficient import check_features, squared_norm, target_bounds
from kernels.rounds.site.site import Part, Site
from kernels.storage import PRIVATE, check_tensor
from privacy.layout import Layout, SecureTotal

NAME = "elbo"
VERSION = 3
NEEDS = frozenset({Made.STANDARDISER})
MAKES = frozenset({Made.KERNEL, Made.CENTRE})

NOISE_WEIGHT = 0.1
"""The weight of log σ in a clipped gradient. A row's gradient is 1 − r²/σ² by log σ and about r/σ²
by m: for rows near the mean or far from it, most of the norm would go to σ, a single number that is
learned quickly. Adam's steps do not depend on the scale of a gradient."""

PARAMETER_STEP = 2.0**-20
"""The grid of θ, m, log s and log σ: a cosine in the learning rate is not the same everywhere."""

MOST_SPREAD = 10.0
"""With differential privacy, the most that predictions at weights drawn from the prior may spread,
in deviations of the targets, which are clipped to three. Steps at the default rate stay below half
of it. Larger ones that follow the noise pass it, and no later sum brings them back."""

LINEAR_STEP = 2.0
"""Steps of the weights of a linear part beside samples, as a multiple of the others'."""

_START = {"deviation": 0.3, "noise": 0.7}
_LOG_NOISE = near(math.log(1e-3), PARAMETER_STEP), near(math.log(10.0), PARAMETER_STEP)
_MOST_WEIGHT = 2.0**20
"""Bound on m: with it and the bounds on σ, the rounding of residuals stays below the clip."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """`steps` of Adam, each over a sample, with a rate that falls from `learning_rate` to zero.

    clip: the maximum norm of one unit's gradient.
    """

    STORED_AS: ClassVar[str] = "elbo.spec"

    steps: int = 200
    sampling_rate: float = 0.05
    clip: float = 1.0
    learning_rate: float = 0.02

    def __post_init__(self) -> None:
        check_whole(1, steps=self.steps)
        check_at_least(1e-9, clip=self.clip, sampling_rate=self.sampling_rate)
        check_learning_rate(learning_rate=self.learning_rate, sampling_rate=self.sampling_rate)


@dataclass(frozen=True, eq=False)
class State:
    """`parameters`: θ, m, log s and log σ as one vector."""

    STORED_AS: ClassVar[str] = "elbo.state"

    model: Model
    spec: Spec
    parameters: Tensor
    step: int = 0
    first_moment: Tensor | None = field(default=None, metadata=PRIVATE)
    second_moment: Tensor | None = field(default=None, metadata=PRIVATE)

    def __post_init__(self) -> None:
        check_model(self.model)
        check_whole(0, step=self.step)
        if self.step > self.spec.steps:
            raise StateError(f"step {self.step} is beyond the program's {self.spec.steps} steps")
        check_tensor("parameters", self.parameters, (sum(_sizes(self.model)),))
        theta, mean, _, log_noise = _split(self.model, self.parameters)
        if not torch.equal(theta, known(self.model.weights, NAME)):
            raise StateError("the weights in this state's parameters differ from its model's")
        least, most = _LOG_NOISE
        within = (log_noise >= least - 1e-9) & (log_noise <= most + 1e-9)
        if not bool(within.all()) or not bool((mean.abs() <= _MOST_WEIGHT).all()):
            raise StateError("m or σ of this state are larger than training can make them")


def layout(state: State) -> Layout:
    """Return the gradient."""
    parameters = len(state.parameters)
    return Layout((gradient_block(state.model, parameters, clip=state.spec.clip),))


def initial(spec: Spec, model: Model) -> State:
    """Start at the model's weights and an uninformed q."""
    start = starting_weights(model.kernel) if model.weights is None else model.weights
    _, weights, deviations, noise = _sizes(model)
    parts = (
        torch.zeros(weights, dtype=torch.float64),
        torch.full((deviations,), _log(_START["deviation"]), dtype=torch.float64),
        torch.full((noise,), _log(_START["noise"]), dtype=torch.float64),
    )
    parameters = torch.cat([start, *parts])
    zero = torch.zeros_like(parameters)
    model = model.advanced(weights=start)
    return State(model, spec, parameters, first_moment=zero, second_moment=zero)


def contribute(state: State, site: Site) -> Contribution:
    """Return the clipped gradient of a new sample of the site's units."""
    model, spec = state.model, state.spec
    gradient, _ = clipped_gradient(
        model,
        site,
        _row_gradients(state),
        parameters=len(state.parameters),
        clip=spec.clip,
        sampling_rate=spec.sampling_rate,
    )
    return {"gradient": gradient.numpy()}


def update(state: State, total: SecureTotal) -> State:
    """Take a step; after the last one, store θ, σ and λ in the model."""
    total = accepted(total, layout(state))
    step, rate = state.step + 1, state.spec.sampling_rate
    gradient = torch.tensor(total["gradient"]) / rate + _divergence_gradient(state)
    # The rate falls to zero so that the last steps average out the noise instead of following it.
    size = adam.falling(state.spec.learning_rate, step=state.step, steps=state.spec.steps)
    first, second = known(state.first_moment, NAME), known(state.second_moment, NAME)
    before = adam.State(state.parameters, first, second, state.step)
    after = adam.update(before, gradient, learning_rate=size)
    moved = state.parameters + _pace(state.model) * (after.parameters - state.parameters)
    _check_converging(state.model, moved, step)
    stepped = on_grid(moved, PARAMETER_STEP)
    theta, mean, log_deviation, log_noise = _split(state.model, stepped)
    log_noise = log_noise.clamp(*_LOG_NOISE)
    parameters = torch.cat([theta, mean, log_deviation, log_noise])
    scales = Hyperparameters(exp(2 * log_noise), _prior(state.model, parameters))
    return replace(
        state,
        model=state.model.advanced(
            weights=theta.clone(), hyperparameters=scales, centre=_centre(state.model, parameters)
        ),
        parameters=parameters,
        step=step,
        first_moment=after.mean,
        second_moment=after.square,
    )


def finished(state: State) -> bool:
    """Return whether all `steps` have been taken."""
    return state.step >= state.spec.steps


def check_private(_spec: Spec, model: Model) -> None:
    """Refuse a kernel whose features are not bounded, because `linear` comes afterwards."""
    check_features(model)


def declare(spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    return Declaration(
        needs=NEEDS,
        needs_students=frozenset(),
        needs_held_out=False,
        makes=MAKES,
        answers=Answers.REAL,
        students=before.students,
        words="the gradient of a bound on the evidence over a random sample of the rows, to which "
        "each unit contributes a clipped part",
        sums=spec.steps,
        numbers=layout(initial(spec, before.model)).length,
        numbers_in_all=spec.steps * layout(initial(spec, before.model)).length,
        leaves=sum(_sizes(before.model)),
        row_count=None,
        local_passes=0,
        rate_times_steps=spec.learning_rate * spec.steps,
        reads=frozenset({Part.TRAINING}),
        summed_together=frozenset({frozenset({Part.TRAINING})}),
        sampling_rate=spec.sampling_rate,
        noise_share=1.0,
        public_rows=PublicRows.NONE,
        public_set=None,
        needs_consent=False,
        includes=frozenset(),
        replay=BITWISE,
    )


STORED = (Spec, State)


def _log(start: float) -> float:
    return near(math.log(start), PARAMETER_STEP)


def _sizes(model: Model) -> tuple[int, int, int, int]:
    """Return the numbers of parameters in θ, m, log s and log σ."""
    weights = model.kernel.features * model.targets
    return weight_count(model.kernel), weights, weights, model.targets


def _split(model: Model, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    theta, mean, log_deviation, log_noise = torch.split(parameters, list(_sizes(model)))
    return theta, mean, log_deviation, log_noise


def _row_gradients(state: State) -> RowGradients:
    """Return the gradient of a row's −E log p(y | φ, w) in (θ, m, log s, log σ), in closed form.

    With r = y − φᵀm it is −φr/σ² by m, φ²s²/σ² by log s, 1 − (r² + Σφ²s²)/σ² by log σ, and
    Σ_t (φs_t² − r_tm_t)/σ_t² by φ, from which the kernel computes the gradient by θ.
    """
    model = state.model
    kernel, reach, shape = model.urk, target_bounds(model), (model.kernel.features, model.targets)
    _, mean, log_deviation, log_noise = _split(model, state.parameters)
    mean, precision = mean.view(shape), (-2 * log_noise).exp()
    relative = (2 * log_deviation.view(shape)).exp() * precision  # s²/σ²
    keeps_ratio = _keeps_ratio(model)

    def row_gradients(x: Tensor, y: Tensor) -> Tensor:
        phi, pullback = kernel.features_and_row_pullback(x)
        residual = y.clamp(-reach, reach) - phi @ mean
        scaled, squares = residual * precision, phi**2
        by_theta = pullback(phi * relative.sum(1) - scaled @ mean.mT)
        if keeps_ratio:
            by_theta[:, -1] = 0.0  # so that it takes no part of the clip either
        by_mean = -phi.unsqueeze(2) * scaled.unsqueeze(1)
        by_deviation = squares.unsqueeze(2) * relative
        by_noise = NOISE_WEIGHT * (1 - residual * scaled - squares @ relative)
        return torch.cat([by_theta, by_mean.flatten(1), by_deviation.flatten(1), by_noise], dim=1)

    return row_gradients


def _divergence_gradient(state: State) -> Tensor:
    """Return the gradient of Σ_t KL(q_t ‖ N(0, λ_t²I)): m/λ², and s²/λ² − 1 by log s."""
    model, shape = state.model, (state.model.kernel.features, state.model.targets)
    theta, mean, log_deviation, log_noise = _split(model, state.parameters)
    prior = _prior(model, state.parameters)
    by_mean = mean.view(shape) / prior
    by_deviation = exp(2 * log_deviation.view(shape)) / prior - 1
    zeros = torch.zeros_like(theta), torch.zeros_like(log_noise)
    return torch.cat([zeros[0], by_mean.flatten(), by_deviation.flatten(), zeros[1]])


def _keeps_ratio(model: Model) -> bool:
    return model.privacy is not None and model.kernel.linear_features > 0


def _pace(model: Model) -> Tensor:
    """Return what the step of each parameter is multiplied by."""
    theta, mean, deviations, noise = (
        torch.ones(size, dtype=torch.float64) for size in _sizes(model)
    )
    if _keeps_ratio(model):
        theta[-1] = 0.0
    if model.kernel.linear_part:
        mean.view(model.kernel.features, model.targets)[model.kernel.main_features :] = LINEAR_STEP
    return torch.cat([theta, mean, deviations, noise])


def _check_converging(model: Model, parameters: Tensor, step: int) -> None:
    """Refuse to go on with a private run that has diverged; all that is looked at is public."""
    if model.privacy is None:
        return
    finite = bool(parameters.isfinite().all())
    spread = math.sqrt(float(_prior(model, parameters).max()) * squared_norm(model))
    if not finite or not spread <= MOST_SPREAD:
        found = f"{spread:.3g} deviations" if math.isfinite(spread) else "an infinite number"
        raise Diverged(
            f"after {step} sums of elbo the model's predictions spread over {found} of a target, "
            f"and {MOST_SPREAD:g} is the most that training can mean: the noise leads the steps. "
            "The run ends before it spends more of the budget. Make a session with a lower "
            "learning_rate or sampling_rate, more rows, or a larger ε"
        )


def _prior(model: Model, parameters: Tensor) -> Tensor:
    """Return the λ² of each target that minimises the KL, (T,)."""
    shape = (model.kernel.features, model.targets)
    _, mean, log_deviation, _ = _split(model, parameters)
    second = mean.view(shape).square() + exp(2 * log_deviation.view(shape))
    return (sum_of(second) / len(second)).clamp_min(1e-6)


def _centre(model: Model, parameters: Tensor) -> Centre | None:
    """Return m, and σ as the deviation of residuals from it, as the start of `refinement`."""
    if model.privacy is None:
        return None
    _, mean, _, log_noise = _split(model, parameters)
    return Centre(mean.view(model.kernel.features, model.targets).clone(), exp(log_noise))
