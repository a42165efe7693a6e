"""Programs and states are plain data: they read back, and refuse what they cannot mean."""

import contextlib
import json
from dataclasses import replace
from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import storage
from kernels.errors import KernelsError, NewerProgram, ProgramError, StateError, UnknownAlgorithm
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.kernel import exact
from kernels.rounds.layer import linear, outcomes
from kernels.rounds.program import Program
from kernels.rounds.registry import ALGORITHMS, installed, restore
from kernels.rounds.run_kinds import Kind, program_of
from tests.kernels.rounds import every_kind, tables


def test_a_program_reads_back_in_one_canonical_form() -> None:
    program = tables.program(exact.Spec(steps=5, penalties=(1.0,)))
    again = Program.from_json(program.to_json())
    assert again == program
    assert again.to_json() == program.to_json()


def document(**changes: object) -> str:
    plain = json.loads(tables.program(exact.Spec()).to_json())
    return json.dumps({**plain, **changes})


def stage(algorithm: ModuleType, **parameters: object) -> dict[str, object]:
    """A stage of the version that is installed."""
    return {
        "algorithm": algorithm.NAME,
        "version": algorithm.VERSION,
        "parameters": parameters,
    }


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("{", ProgramError, "not valid JSON"),
        ("[]", ProgramError, "object"),
        (document(version=4), NewerProgram, "upgrade"),
        (document(version="1"), ProgramError, "version"),
        (document(colour=1), ProgramError, "colour"),
        (document(stages=3), ProgramError, "list"),
        (document(stages=[]), ProgramError, "at least one"),
        (document(schema=3), ProgramError, "schema"),
        (document(held_out=1.0), ProgramError, "held_out"),
        (document(max_rows=0), ProgramError, "max_rows"),
        (
            document(stages=[{"algorithm": "magic", "version": 1, "parameters": {}}]),
            UnknownAlgorithm,
            "magic",
        ),
        (
            document(stages=[{"algorithm": "linear", "version": 9, "parameters": {}}]),
            UnknownAlgorithm,
            "upgrade veilgp here",
        ),
        (
            document(stages=[{"algorithm": "linear", "version": 0, "parameters": {}}]),
            UnknownAlgorithm,
            "other side",
        ),
        (
            document(stages=[stage(exact, step=1)]),
            ProgramError,
            "step",
        ),
        (
            document(stages=[stage(exact, steps=0)]),
            ProgramError,
            "steps",
        ),
    ],
)
def test_what_is_wrong_is_named(text: str, error: type[KernelsError], says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        Program.from_json(text)
    assert type(caught.value) is error


def test_schema_and_kernel_must_agree() -> None:
    kernel = type(tables.KERNEL)(inputs=4)
    with pytest.raises(ProgramError, match="number of features, 5, not 4"):
        Program(tables.SCHEMA, kernel, (moments.Spec(),))
    with pytest.raises(UnknownAlgorithm, match="int"):
        Program(tables.SCHEMA, tables.KERNEL, (3,))


def test_a_later_part_never_outlives_what_it_followed_from() -> None:
    sites = [tables.site(seed=seed) for seed in range(3)]
    model = tables.fitted(sites, linear.Spec(), recalibration.Spec(), evaluation.Spec())
    assert model.recalibration is not None
    assert model.scores is not None
    layer = model.advanced(statistics=model.statistics)
    assert layer.hyperparameters is model.hyperparameters
    assert (layer.recalibration, layer.scores) == (None, None)
    moved = model.advanced(weights=model.urk.weights.detach())
    assert moved.standardiser is model.standardiser
    assert (moved.hyperparameters, moved.statistics, moved.scores) == (None, None, None)


def test_every_installed_algorithm_is_found_by_its_name() -> None:
    for name, algorithm in ALGORITHMS.items():
        assert installed(name, algorithm.VERSION) is algorithm


def state() -> exact.State:
    return exact.initial(exact.Spec(), tables.fitted([tables.site()]))


def test_private_fields_stay_with_the_coordinator() -> None:
    seen = restore(storage.encode(state(), broadcast=True))
    assert seen.start is None
    assert seen.first_moment is None
    assert seen.history is None
    assert torch.equal(seen.model.weights, state().model.weights)
    assert len(storage.encode(state(), broadcast=True)) < len(storage.encode(state()))


STORED = storage.encode(state())


@given(st.integers(0, len(STORED) - 1), st.integers(1, 255))
def test_a_changed_byte_gives_a_state_or_a_named_error(position: int, change: int) -> None:
    damaged = bytearray(STORED)
    damaged[position] = (damaged[position] + change) % 256
    with contextlib.suppress(KernelsError):
        restore(bytes(damaged))


def test_only_named_classes_are_built() -> None:
    class Stranger:
        pass

    with pytest.raises(StateError, match="Stranger"):
        storage.encode(Stranger())
    foreign = storage.encode(linear.Spec())
    with pytest.raises(StateError):
        storage.decode(foreign, {})


def test_a_stage_for_targets_that_the_schema_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(ProgramError, match=r"'outcomes' is for .* not real numbers"):
        tables.program(outcomes.Spec())
    yes_or_no = every_kind.program(every_kind.READMITTED)
    with pytest.raises(ProgramError, match=r"'linear' is for .* real numbers"):
        replace(yes_or_no, stages=(*yes_or_no.stages, linear.Spec()))


def test_a_linear_run_refits_the_layers_of_every_target() -> None:
    def names(program: Program) -> list[str]:
        return [algorithm.NAME for algorithm, _ in program.algorithms()]

    assert names(program_of(Kind.LINEAR, every_kind.program())) == ["linear", "outcomes"]
    alone = every_kind.program(every_kind.READMITTED)
    assert names(program_of(Kind.LINEAR, alone)) == ["outcomes"]
