"""The program that is made from a schema alone."""

from dataclasses import replace

import numpy as np
import pytest

from client_sdk.simulation import simulate
from kernels.errors import ProgramError
from kernels.features.spec import Architecture
from kernels.model.prediction import predict
from kernels.rounds import automatic
from kernels.rounds.plan import declared
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind, program_of
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target
from tests.dealing import DEALING
from tests.kernels.rounds import outcomes as small
from tests.kernels.rounds import tables

SCHEMAS = {"real": tables.SCHEMA, "mixed": small.MIXED, "alone": small.ALONE}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_session_of_every_kind_of_target_needs_a_schema_and_nothing_else(name: str) -> None:
    schema = SCHEMAS[name]
    program = automatic.automatic_program(schema, min_sites=1, max_sums=50, max_rows=1000)
    sites = [small.site(40, seed=seed, schema=schema, held_out=0.2) for seed in range(3)]
    done = simulate(program, sites, DEALING, secure=False)
    assert done.sums <= 50
    assert done.model.kernel in program.choices
    # Levels are rare in held-out rows, which completion sums by themselves.
    assert (done.model.withheld is None) == bool(schema.categorical)
    assert done.model.scores is not None
    served = predict(done.model, small.table(10, seed=9))
    assert bool(served.mean.isfinite().all())
    assert bool((served.variance > 0).all())
    assert all(bool(own.mean.isfinite().all()) for own in served.outcomes)
    again = simulate(
        replace(program_of(Kind.EVALUATE, program)), sites, DEALING, secure=False, model=done.model
    )
    if schema.real:
        assert bool((again.model.scores.gaussian.squared_errors > 0).all())


@pytest.mark.parametrize("inputs", [1, 3, 30, 150, 400])
@pytest.mark.parametrize("max_sums", [40, 60, 280, 1000])
@pytest.mark.parametrize("max_features", [20, 75, 400])
def test_a_program_stays_within_its_sums_and_its_features(
    inputs: int, max_sums: int, max_features: int
) -> None:
    columns = tuple(Numeric(f"x{place}", "1") for place in range(inputs))
    schema = Schema(columns, (Target("y", "1"),))
    program = automatic.automatic_program(schema, max_sums=max_sums, max_features=max_features)
    assert sum(stage.sums for stage in declared(program)) <= max_sums
    most = max(max_features, inputs + 1 + min(50, max_features))
    assert all(own.features <= most for own in program.kernels)
    assert Program.from_json(program.to_json()) == program


def test_with_few_sums_there_are_no_networks() -> None:
    few = [own.name for own in automatic.candidates(tables.SCHEMA, max_sums=60)]
    many = [own.name for own in automatic.candidates(tables.SCHEMA)]
    assert few == ["linear", "inducing"]
    assert many[:2] == few
    assert len(many) > 2


@pytest.mark.parametrize("max_features", [0, 19, True, 60.0])
def test_too_few_features_for_any_program_are_refused(max_features: int) -> None:
    with pytest.raises(ProgramError, match="max_features"):
        automatic.automatic_program(tables.SCHEMA, max_features=max_features)


@pytest.mark.parametrize("max_sums", [0, 39, True, 60.0])
def test_too_few_sums_for_any_program_are_refused(max_sums: int) -> None:
    with pytest.raises(ProgramError, match="max_sums"):
        automatic.automatic_program(tables.SCHEMA, max_sums=max_sums)


def test_a_candidate_alone_has_the_same_stages_around_it() -> None:
    whole = automatic.automatic_program(tables.SCHEMA)
    for each in automatic.candidates(tables.SCHEMA):
        alone = automatic.program_of_candidate(tables.SCHEMA, each)
        assert alone.kernel == each.kernel
        assert (alone.stages[0], *alone.stages[2:]) == (whole.stages[0], *whole.stages[2:])


def test_with_differential_privacy_nothing_is_searched() -> None:
    program = automatic.automatic_program(tables.SCHEMA, private=True)
    assert not program.choices
    assert program.kernel.architecture is not Architecture.INDUCING
    outcomes = automatic.automatic_program(small.ALONE, private=True)
    assert outcomes.kernel.architecture is Architecture.LINEAR


def test_with_differential_privacy_the_kinds_of_targets_decide() -> None:
    of_numbers, of_outcomes, of_both = (
        {name for algorithm, _ in program.algorithms() for name in [algorithm.NAME]}
        for program in (
            automatic.automatic_program(schema, private=True)
            for schema in (tables.SCHEMA, small.ALONE, small.MIXED)
        )
    )
    around = {"moments", "recalibration", "evaluation"}
    assert of_numbers == around | {"elbo", "refinement"}
    assert of_outcomes == around | {"outcomes"}
    assert of_both == around | {"linear", "outcomes"}


def test_what_is_released_depends_on_the_schema_alone() -> None:
    one, other = (automatic.automatic_program(tables.SCHEMA).to_json() for _ in range(2))
    assert one == other
    assert np.isfinite(len(one))
