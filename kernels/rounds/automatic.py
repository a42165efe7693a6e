"""The program of a session that states none: made from the schema alone, which is public.

Nobody has to choose a kernel, a rate or a number of steps: `automatic_program` lists what every
schema gets, and hospitals read and consent to it as to any other program.
"""

import math

from kernels.features.spec import Architecture, KernelSpec
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.kernel import exact
from kernels.rounds.layer import linear, outcomes
from kernels.rounds.program import Program
from kernels.tables.schema import Schema


def automatic_program(
    schema: Schema, *, min_sites: int = 3, max_rows: int = Program.max_rows, private: bool = False
) -> Program:
    """Return the program of a session that states no kernel and no stages.

    private: a program that has a form with differential privacy; its noise is not planned yet.
    """
    inputs = len(schema.feature_names)
    kernel = KernelSpec(
        architecture=Architecture.MATERN32,
        inputs=inputs,
        lengthscale=math.sqrt(inputs),
        linear_part=True,
    )
    training = [] if private else [exact.Spec(steps=40, learning_rate=0.05, penalties=(0.0,))]
    stages = (
        moments.Spec(min_sites=min_sites),
        *training,
        *([linear.Spec()] if schema.real else []),
        *([outcomes.Spec()] if schema.outcomes else []),
        recalibration.Spec(),
        evaluation.Spec(),
    )
    return Program(schema, kernel, stages, max_rows=max_rows)
