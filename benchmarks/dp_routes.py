"""Ways to a private model, by name: programs that the simulator runs as a session would.

    public_kernel   random features of one public length scale: a noisy sum of S, b and yᵀy, and one
                    of residuals
    exact           the columns' length scales by few noisy steps of the exact gradient before that
    elbo            length scales and weights by DP-SGD on the evidence's lower bound; then one sum
                    of S and the residuals

Each spends (ε, δ) on the training rows and (ε, δ) on the calibration rows, which are other rows.
What is not in a public dictionary is paid for: means and deviations of the columns take MOMENTS of
what the training rows may spend.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.dp_data import Private
from kernels.rounds import elbo, exact, linear, moments, recalibration, refinement
from kernels.rounds.private import Privacy
from kernels.rounds.program import Program
from kernels.rounds.site import Part
from kernels.spec import Architecture, KernelSpec
from privacy.accounting.cost import Cost, cost
from privacy.accounting.events import Release
from privacy.accounting.planning import Stage, multipliers

DELTA = 1e-5
MOMENTS = 0.07
"""The share of the training rows' budget that scales of columns get."""
SAMPLES = 100
"""m: with S repaired, more features cost little (`kernels.realisable`)."""
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


def exact_steps(inputs: int) -> tuple[KernelSpec, Sequence[Step]]:
    """Take few steps of the exact gradient in the p lengthscales before."""
    steps = 4
    spec = exact.Spec(steps=steps, learning_rate=0.5, warm_up=1, penalties=(3.0,))
    return _rbf(inputs), _around(
        Step(spec, Part.TRAINING, 0.45, sums=2 * steps),
        Step(linear.Spec(), Part.TRAINING, 0.2),
        Step(refinement.Spec(), Part.TRAINING, 0.28),
    )


def stochastic(inputs: int) -> tuple[KernelSpec, Sequence[Step]]:
    """DP-SGD in the p lengthscales and the linear layer; S and the residuals of that once."""
    steps, rate = 300, 0.1
    spec = elbo.Spec(steps=steps, sampling_rate=rate, learning_rate=0.06)
    return _rbf(inputs), _around(
        Step(spec, Part.TRAINING, 0.68, sums=steps, sampling_rate=rate),
        Step(refinement.Spec(), Part.TRAINING, 0.25),
    )


ROUTES: Mapping[str, Route] = {
    "public_kernel": public_kernel,
    "exact": exact_steps,
    "elbo": stochastic,
}


def program(data: Private, route: str, epsilon: float) -> Program:
    """Return the program of a route; not private where ε is infinite."""
    schema = data.dataset.schema
    kernel, steps = ROUTES[route](len(schema.feature_names))
    if math.isinf(epsilon):  # without noise there is nothing that refinement could save
        steps = [step for step in steps if not isinstance(step.spec, refinement.Spec)]
    return Program(
        schema,
        kernel,
        tuple(step.spec for step in steps),
        max_rows=20_000,
        privacy=None if math.isinf(epsilon) else _privacy(steps, epsilon),
    )


def _privacy(steps: Sequence[Step], epsilon: float) -> Privacy:
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
    return Privacy(multipliers=found, target_clip=TARGET_CLIP)


def scales_alone(private: Program) -> Program:
    """Return a program that ends after the columns' scales."""
    privacy = private.privacy and replace(
        private.privacy, multipliers=private.privacy.multipliers[:1]
    )
    return replace(private, stages=private.stages[:1], privacy=privacy)


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
