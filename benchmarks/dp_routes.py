"""Ways to a private model, by name: programs that the simulator runs as a session would.

    public_kernel   random features of a public length scale: one noisy sum of S, b and yᵀy
    exact           the kernel trained by few noisy steps of the exact gradient first
    elbo            the kernel trained by DP-SGD on the evidence's lower bound first

Each spends (ε, δ) on the training rows and (ε, δ) on the calibration rows, which are other rows.
What is not in a public dictionary is paid for: means and deviations of the columns take MOMENTS of
what the training rows may spend.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.dp_data import Private
from kernels.rounds import linear, moments, recalibration
from kernels.rounds.private import Privacy
from kernels.rounds.program import Program
from kernels.rounds.site import Part
from kernels.spec import Architecture, KernelSpec
from privacy.accounting.cost import Cost, cost
from privacy.accounting.events import Release
from privacy.accounting.planning import Stage, multipliers

DELTA = 1e-5
MOMENTS = 0.05
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


def public_kernel(inputs: int) -> tuple[KernelSpec, Sequence[Step]]:
    """ℓ = √p on standardised inputs: the distance of two random rows is √(2p)."""
    kernel = KernelSpec(
        architecture=Architecture.RBF,
        inputs=inputs,
        samples=SAMPLES,
        seed=1,
        lengthscale=math.sqrt(inputs),
    )
    return kernel, (
        Step(moments.Spec(), Part.TRAINING, MOMENTS),
        Step(linear.Spec(), Part.TRAINING, 1 - MOMENTS),
        Step(recalibration.Spec(), Part.CALIBRATION, 1.0),
    )


ROUTES: Mapping[str, Route] = {"public_kernel": public_kernel}


def program(data: Private, route: str, epsilon: float) -> Program:
    """Return the program of a route; not private where ε is infinite."""
    schema = data.dataset.schema
    kernel, steps = ROUTES[route](len(schema.feature_names))
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
