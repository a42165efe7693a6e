"""The program of a private session that states none: by public rules, from the schema alone.

Every look at the rows costs noise, so nothing is searched: a search would spend on comparing what
the layer needs. What is best with noise was measured beforehand, on public tables
(`benchmarks.dp`):

| targets | program |
| --- | --- |
| numbers alone | a small network before random features beside a linear part, by DP-SGD |
| outcomes alone | the linear kernel, and the layer by a few noisy sums (`outcomes`) |
| both | random features of one public length scale beside a linear part: nothing is trained |

`elbo` has a form for numbers only. Where it trained the kernel, outcomes would have to be predicted
from features that were made for something else.
"""

import math

from kernels.features.spec import Architecture, KernelSpec
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.kernel import elbo
from kernels.rounds.layer import linear, outcomes, refinement
from kernels.rounds.program import Program
from kernels.tables.schema import Schema

STEPS = elbo.Spec(steps=400, sampling_rate=0.1, learning_rate=0.02)
"""400 sums over a tenth of the rows: with fewer the same budget goes less far, and 800 gain little
for twice the time."""
AFTER_STEPS = refinement.Spec(noise_share=0.12)
"""With the share of `moments`, as the route `elbo` of `benchmarks.dp` divides the budget."""


_RADIUS = 1.5
"""A tenth of the rows of standardised columns is beyond 1.2; at 2, the sums that follow would have
half as much noise again."""


def private_program(schema: Schema, *, min_sites: int, max_rows: int) -> Program:
    """Return the program; its noise is not planned yet."""
    training: tuple[object, ...]
    if not schema.outcomes:
        kernel, training = _network(schema), (STEPS, AFTER_STEPS)
    elif not schema.real:
        kernel, training = _line(schema), (outcomes.Spec(),)
    else:
        kernel, training = _fixed(schema), (linear.Spec(), outcomes.Spec())
    stages = (
        moments.Spec(min_sites=min_sites),
        *training,
        recalibration.Spec(),
        evaluation.Spec(),
    )
    return Program(schema, kernel, stages, max_rows=max_rows)


def _network(schema: Schema) -> KernelSpec:
    return KernelSpec(
        architecture=Architecture.DEEP,
        inputs=len(schema.feature_names),
        samples=100,
        seed=1,
        hidden=(16,),
        latent=8,
        frequency_scale=1.0,
        linear_part=True,
        radius=_RADIUS,
    )


def _line(schema: Schema) -> KernelSpec:
    return KernelSpec(architecture=Architecture.LINEAR, inputs=len(schema.feature_names))


def _fixed(schema: Schema) -> KernelSpec:
    inputs = len(schema.feature_names)
    return KernelSpec(
        architecture=Architecture.MATERN32,
        inputs=inputs,
        samples=25,
        lengthscale=math.sqrt(inputs),
        linear_part=True,
    )
