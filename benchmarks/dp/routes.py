"""Ways to a private model, by name: programs that the simulator runs as a session would.

    public_kernel   random features of one public length scale: a noisy sum of S, b and yᵀy, and one
                    of residuals
    exact           the columns' length scales by few noisy steps of the exact gradient before that
    elbo            a small network before random features, and weights, by DP-SGD on the evidence's
                    lower bound; then one sum of S and the residuals

Each spends (ε, δ) on the training rows and (ε, δ) on the calibration rows, which are other rows.
What is not in a public dictionary is paid for: means and deviations of the columns take MOMENTS of
what the training rows may spend.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.dp.data import Private
from kernels.features.spec import Architecture, KernelSpec
from kernels.model.noise_plan import NoisePlan
from kernels.rounds.columns import moments
from kernels.rounds.judging import recalibration
from kernels.rounds.kernel import elbo, exact, private_exact
from kernels.rounds.layer import linear, refinement
from kernels.rounds.program import Program
from kernels.rounds.site.site import Part
from privacy.accounting.cost import Cost, cost
from privacy.accounting.events import Release
from privacy.accounting.planning import Stage, multipliers

DELTA = 1e-5
MOMENTS = 0.07
"""The share of the training rows' budget that scales of columns get."""
SAMPLES = 100
"""m: with S repaired, more features cost little (`kernels.noisy.realisable`)."""
TARGET_CLIP = 3.0

_DEALING = b"benchmark"


@dataclass(frozen=True)
class Step:
    """A stage of a route: its parameters, whose rows, and its share of what they may spend."""

    spec: Any
    part: Part
    share: float
    sums: int = 1
    sampling_rate: float = 1.0


Route = Callable[[int], tuple[KernelSpec, Sequence[Step]]]
"""From the number of inputs to a kernel and the stages."""


def _rbf(inputs: int) -> KernelSpec:
    """ℓ = √p on standardised inputs, where two random rows are √(2p) apart."""
    return KernelSpec(
        architecture=Architecture.RBF,
        inputs=inputs,
        samples=SAMPLES,
        seed=1,
        lengthscale=math.sqrt(inputs),
    )


def _around(*training: Step) -> Sequence[Step]:
    """Return the stages of a route: scales of columns before, recalibration after."""
    return (
        Step(moments.Spec(), Part.TRAINING, MOMENTS),
        *training,
        Step(recalibration.Spec(), Part.CALIBRATION, 1.0),
    )


def public_kernel(inputs: int) -> tuple[KernelSpec, Sequence[Step]]:
    """Sum S, b and yᵀy once, and the residuals once."""
    return _rbf(inputs), _around(
        Step(linear.Spec(), Part.TRAINING, 0.3),
        Step(refinement.Spec(), Part.TRAINING, 0.63),
    )


@dataclass(frozen=True)
class Exact:
    """How the route `exact` is run."""

    steps: int
    learning_rate: float


# Of 2 steps at .05, .1 and .2, by CCPP and Bike at ε = 2: 4.40, 4.39, 4.36 and .609, .609, .610.
# The route cannot be much better than the public kernel: p length scales are all that it learns,
# and each of its steps pays for two sums. More or larger ones follow the noise (4 at .5: CCPP 9.7).
EXACT = Exact(steps=2, learning_rate=0.2)


def exact_steps(inputs: int, tuned: Exact = EXACT) -> tuple[KernelSpec, Sequence[Step]]:
    """Take few steps of the exact gradient in the p lengthscales before."""
    spec = private_exact.Spec(
        steps=tuned.steps, learning_rate=tuned.learning_rate, warm_up=1, penalty=3.0
    )
    return _rbf(inputs), _around(
        Step(spec, Part.TRAINING, 0.45, sums=2 * tuned.steps),
        Step(linear.Spec(), Part.TRAINING, 0.2),
        Step(refinement.Spec(), Part.TRAINING, 0.28),
    )


@dataclass(frozen=True)
class Stochastic:
    """How the route `elbo` is run: DP-SGD, the kernel's network, the share of `refinement`."""

    steps: int
    sampling_rate: float
    learning_rate: float
    hidden: int
    refinement: float


# By mean log RMSE on validation rows, as `benchmarks.dp.tuning` measures it; by hand what its list
# does not vary (clip, sampling, samples, frequencies, Adam). Of seeds 100 to 103, where Opacus's
# network has .790: 150 steps at .035 .776, 400 at .02 .768. Of seed 100, where it has .764: with
# random features alone instead of a network before them .806 at best; 400 steps .751, at .03 .752,
# over a fifth of the rows .751, clip 3 .758, clip .3 .776, 32 units .766, a fifth of the budget for
# `refinement` .756, a third .769; 800 steps at .014 .749 for twice the time. Of seeds 100 and 101,
# where 400 steps have .772: 50 samples .789, 25 .780, frequencies .6 and 1.5 times as large .788
# and .779, Adam's second moment without the noise's variance .765 to .773.
ELBO = Stochastic(steps=400, sampling_rate=0.1, learning_rate=0.02, hidden=16, refinement=0.1)


def stochastic(inputs: int, tuned: Stochastic = ELBO) -> tuple[KernelSpec, Sequence[Step]]:
    """DP-SGD in the kernel's network and the linear layer; S and the residuals of that once."""
    spec = elbo.Spec(
        steps=tuned.steps, sampling_rate=tuned.sampling_rate, learning_rate=tuned.learning_rate
    )
    kernel = KernelSpec(
        architecture=Architecture.DEEP,
        inputs=inputs,
        samples=SAMPLES,
        seed=1,
        hidden=(tuned.hidden,),
        latent=8,
        frequency_scale=1.0,
    )
    share = 1 - MOMENTS - tuned.refinement
    return kernel, _around(
        Step(spec, Part.TRAINING, share, sums=tuned.steps, sampling_rate=tuned.sampling_rate),
        Step(refinement.Spec(), Part.TRAINING, tuned.refinement),
    )


ROUTES: Mapping[str, Route] = {
    "public_kernel": public_kernel,
    "exact": exact_steps,
    "elbo": stochastic,
}


def program(data: Private, route: Route, epsilon: float) -> Program:
    """Return the program of a route; not private where ε is infinite."""
    schema = data.dataset.schema
    kernel, steps = route(len(schema.feature_names))
    if math.isinf(epsilon):
        steps = _without_noise(steps)
    return Program(
        schema,
        kernel,
        tuple(step.spec for step in steps),
        max_rows=20_000,
        privacy=None if math.isinf(epsilon) else _privacy(steps, epsilon),
    )


def _without_noise(steps: Sequence[Step]) -> list[Step]:
    """Return the stages of a program that is not private: the linear layer is summed once."""
    rest = [step for step in steps if not isinstance(step.spec, linear.Spec)]
    return [replace(step, spec=_plain(step.spec)) for step in rest]


def _plain(spec: Any) -> Any:
    match spec:
        case refinement.Spec():  # there is no noise that it could save
            return linear.Spec()
        case private_exact.Spec():
            return exact.Spec(
                steps=spec.steps,
                learning_rate=spec.learning_rate,
                warm_up=spec.warm_up,
                penalties=(spec.penalty,),
            )
        case _:
            return spec


def _privacy(steps: Sequence[Step], epsilon: float) -> NoisePlan:
    plan = [
        Stage(
            part=step.part.value,
            sums=step.sums,
            share=step.share,
            sampling_rate=step.sampling_rate,
        )
        for step in steps
    ]
    found = multipliers(plan, epsilon=float(epsilon), delta=DELTA)
    return NoisePlan(multipliers=found, target_clip=TARGET_CLIP)


def scales_alone(private: Program) -> Program:
    """Return a program that ends after the columns' scales."""
    return _first(private, 1)


def uncalibrated(private: Program) -> Program:
    """Return a program that ends before its last stage, recalibration."""
    return _first(private, len(private.stages) - 1)


def _first(private: Program, stages: int) -> Program:
    privacy = private.privacy and replace(
        private.privacy, multipliers=private.privacy.multipliers[:stages]
    )
    return replace(private, stages=private.stages[:stages], privacy=privacy)


def charged(route: str, epsilon: float) -> Cost:
    """Return what the accountant says that a run of the route costs."""
    _, steps = ROUTES[route](1)
    releases = [
        Release.planned(
            multiplier=multiplier,
            honest=10,
            statistic="benchmark",
            part=step.part.value,
            sums=step.sums,
            sampling_rate=step.sampling_rate,
            dealing=_DEALING,
        )
        for step, multiplier in zip(steps, _privacy(steps, epsilon).multipliers, strict=True)
    ]
    return cost(releases, delta=DELTA)
