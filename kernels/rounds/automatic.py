"""The program of a session that states none: made from the schema alone, which is public.

Nobody has to choose a kernel, a rate or a number of steps by name of a table. Every schema gets the
same few candidates, from a line to a network, and they are compared on the hospitals' own held-out
rows (`kernels.rounds.kernel.search`). Hospitals read and consent to the program as to any other.

| candidate | for |
| --- | --- |
| linear | tables of few rows, and many medical ones |
| inducing | a lengthscale for each column, beside a linear part: smooth effects, few rows |
| deep, τ = 30 | a network before random features, held near its start: 1,000 rows and more |
| deep, τ = 3 | the same with more freedom: many rows with little noise |

A program has at most `max_features` features, of which a hospital's policy asks for three training
rows each by default: with small hospitals, or for cheaper sums, state fewer. It has at most
`max_sums` sums: with fewer, kernels are trained in fewer steps, and with very few there are no
networks, which need many. What a hospital releases and computes grows with both.

Held-out rows are added to the layers in the end. They are summed by themselves then, a fifth of the
rows, and hospitals want at least ten rows of every level in what is summed: of a level that 3 % of
800 patients have, five are held out. So this stage is left out of a program with categorical
columns: otherwise two of the demo's five hospitals refuse it.

With differential privacy nothing is searched (`kernels.rounds.automatic_with_noise`).
"""

import math
from dataclasses import dataclass

from kernels.errors import ProgramError
from kernels.features.spec import Architecture, KernelSpec
from kernels.rounds.automatic_with_noise import private_program
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.kernel import exact, search
from kernels.rounds.kernel.search import Recipe
from kernels.rounds.layer import completion, linear, outcomes
from kernels.rounds.plan import declared
from kernels.rounds.program import Program
from kernels.tables.schema import Schema

MAX_FEATURES = 400
LEAST_FEATURES = 20
_POINTS = 200
"""The most features of inducing points with their linear part, unless there are more columns."""
_FEWEST_POINTS = 50
HANDICAP = 4.0
"""Nats by which a network must be better than a simpler candidate, on all held-out rows."""
MAX_SUMS = 280
LEAST_SUMS = 40
_FEWEST_DEEP_STEPS = 40
_RATE, _CLIP = 0.04, 0.1
"""Of a network: the rate, and the norm of gradients above which they are shortened.

At half the rate 120 steps are too few for SML (test RMSE .17 and .12, seed 100). With a clip of 1,
as at first, one steep step in the middle of Parkinsons' training cost what was learnt before."""
MIN_ROWS = 10
"""A law of residuals is fitted to so few rows; with few, it is drawn towards the model's own."""


@dataclass(frozen=True)
class Candidate:
    """A kernel and how it is trained."""

    kernel: KernelSpec
    recipe: Recipe

    @property
    def name(self) -> str:
        """Its name for people."""
        return self.recipe.name


def candidates(
    schema: Schema, *, max_sums: int = MAX_SUMS, max_features: int = MAX_FEATURES
) -> tuple[Candidate, ...]:
    """Return what is tried for a schema, the simplest first.

    max_features: the most features of a candidate, unless the table has more columns.
    """
    if type(max_features) is not int or max_features < LEAST_FEATURES:
        raise ProgramError(
            f"max_features must be an integer of at least {LEAST_FEATURES}, not {max_features}"
        )
    steps = _steps(schema, max_sums)
    inputs = len(schema.feature_names)
    line = KernelSpec(architecture=Architecture.LINEAR, inputs=inputs)
    smooth = KernelSpec(
        architecture=Architecture.INDUCING,
        inputs=inputs,
        samples=max(min(_FEWEST_POINTS, max_features), min(_POINTS, max_features) - inputs - 1),
        lengthscale=2 * math.sqrt(inputs),
        linear_part=True,
    )
    deep = KernelSpec(
        inputs=inputs, samples=max_features // 2, latent=8, frequency_scale=1.0, seed=1
    )
    found = [
        # Of a line only the ratio of its part would be trained, which the layer does anyway.
        Candidate(line, Recipe(name="linear", kernel=0, steps=1)),
        Candidate(
            smooth,
            Recipe(
                name="inducing",
                kernel=1,
                steps=min(80, steps),
                learning_rate=0.05,
                patience=30,
            ),
        ),
    ]
    if steps >= _FEWEST_DEEP_STEPS:
        found += [
            Candidate(
                deep,
                Recipe(
                    name=f"deep, τ = {penalty}",
                    kernel=2,
                    steps=min(120, steps),
                    learning_rate=_RATE,
                    clip=_CLIP,
                    penalty=float(penalty),
                    patience=30,
                    handicap=HANDICAP,
                ),
            )
            for penalty in (30, 3)
        ]
    return tuple(found)


def automatic_program(
    schema: Schema,
    *,
    min_sites: int = 3,
    max_rows: int = Program.max_rows,
    private: bool = False,
    max_sums: int = MAX_SUMS,
    max_features: int = MAX_FEATURES,
    completed: bool = True,
) -> Program:
    """Return the program of a session that states no kernel and no stages.

    completed: held-out rows are added to the layers in the end (`layer.completion`), unless the
        schema has categorical columns.
    private: a program that has a form with differential privacy; its noise is not planned yet.
    """
    if private:
        return private_program(schema, min_sites=min_sites, max_rows=max_rows)
    tried = candidates(schema, max_sums=max_sums, max_features=max_features)
    kernels = tuple(dict.fromkeys(own.kernel for own in tried))
    training = search.Spec(recipes=tuple(own.recipe for own in tried))
    stages = _around(schema, training, min_sites, completed=completed)
    return Program(schema, kernels[0], stages, max_rows=max_rows, choices=kernels)


def program_of_candidate(
    schema: Schema, candidate: Candidate, *, max_rows: int = Program.max_rows, min_sites: int = 3
) -> Program:
    """Return the program with one candidate in place of the search."""
    stages = _around(schema, candidate.recipe.training, min_sites)
    return Program(schema, candidate.kernel, stages, max_rows=max_rows)


def _around(
    schema: Schema, training: search.Spec | exact.Spec, min_sites: int, *, completed: bool = True
) -> tuple[object, ...]:
    """Return the stages before and after phase 1."""
    return (
        moments.Spec(min_sites=min_sites, curves=True),
        training,
        *([linear.Spec()] if schema.real else []),
        *([outcomes.Spec()] if schema.outcomes else []),
        *([completion.Spec()] if completed and not schema.categorical else []),
        recalibration.Spec(min_rows=MIN_ROWS),
        evaluation.Spec(),
    )


def _steps(schema: Schema, max_sums: int) -> int:
    """Return how many steps of phase 1 fit into a number of sums: each has two."""
    if type(max_sums) is not int or max_sums < LEAST_SUMS:
        raise ProgramError(f"max_sums must be an integer of at least {LEAST_SUMS}, not {max_sums}")
    line = KernelSpec(architecture=Architecture.LINEAR, inputs=len(schema.feature_names))
    around = Program(schema, line, _around(schema, exact.Spec(steps=1, penalties=(0.0,)), 1))
    fixed = sum(stage.sums for stage in declared(around)) - 2
    # A search makes the layers of its recipes too, judges them, and then perhaps mixtures of two.
    fixed += 1 if schema.outcomes else 2
    fixed += sum(
        stage.sums
        for stage, spec in zip(declared(around), around.stages, strict=True)
        if isinstance(spec, linear.Spec | outcomes.Spec)
    )
    return max(1, (max_sums - fixed) // 2)
