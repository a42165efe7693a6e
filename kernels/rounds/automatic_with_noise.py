"""The program of a private session that states none: by public rules, from the schema alone.

Every look at the rows costs noise, so nothing is searched: a search would spend on comparing what
the layer needs. The kernel is the same for every schema.
"""

import math
from dataclasses import replace

from kernels.features.spec import Architecture, KernelSpec
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.layer import linear, outcomes
from kernels.rounds.program import Program
from kernels.tables.schema import Schema


def private_program(schema: Schema, *, min_sites: int, max_rows: int) -> Program:
    """Return the program; its noise is not planned yet."""
    inputs = len(schema.feature_names)
    kernel = KernelSpec(architecture=Architecture.LINEAR, inputs=inputs)
    stages = (
        moments.Spec(min_sites=min_sites),
        *([linear.Spec()] if schema.real else []),
        *([outcomes.Spec()] if schema.outcomes else []),
        recalibration.Spec(),
        evaluation.Spec(),
    )
    if schema.real:
        kernel = replace(
            KernelSpec(
                architecture=Architecture.MATERN32,
                inputs=inputs,
                samples=25,
                lengthscale=math.sqrt(inputs),
            ),
            linear_part=True,
        )
    return Program(schema, kernel, stages, max_rows=max_rows)
