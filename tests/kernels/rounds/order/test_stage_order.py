"""A program whose stages need what is not there by then is refused when it is made."""

from itertools import product
from typing import Any

import pytest

from client_sdk import simulate
from kernels.errors import ProgramError
from kernels.rounds.columns import moments
from kernels.rounds.compared import fedyogi
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.kernel import exact, fedavg
from kernels.rounds.layer import completion, linear, outcomes, update
from kernels.rounds.order import whole_program
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind, program_of
from tests.dealing import DEALING
from tests.kernels.rounds import outcomes as mixed
from tests.kernels.rounds import tables

FIRST, LAYER, JUDGED, SCORED = (
    moments.Spec(),
    linear.Spec(),
    recalibration.Spec(),
    evaluation.Spec(),
)
ALL, TRAINED = completion.Spec(), exact.Spec(steps=1, penalties=(0.0,))


def made(*stages: Any, schema: Any = tables.SCHEMA, held_out: float = 0.2) -> Program:
    return Program(schema, tables.KERNEL, stages, held_out=held_out)


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ((FIRST, LAYER, SCORED), "stages[2] (evaluation) needs a recalibration, and no stage"),
        ((FIRST, LAYER, SCORED), "put the stage 'recalibration' before it"),
        ((LAYER, FIRST), "stages[0] (linear) needs a common scale of the columns"),
        ((FIRST, JUDGED, LAYER), "put the stage 'linear' or 'linear_two_sums' before it"),
        ((FIRST, LAYER, JUDGED, ALL, SCORED), "which is gone after stages[3] (completion): put"),
        ((FIRST, LAYER, JUDGED, LAYER, SCORED), "put the stage 'recalibration' between the two"),
        ((FIRST, LAYER, TRAINED, JUDGED), "stages[3] (recalibration) needs the linear layer"),
        ((FIRST, LAYER, JUDGED, FIRST, SCORED), "gone after stages[3] (moments)"),
        # From a model, what a stage drops is not there any more either.
        ((LAYER, SCORED), "stages[1] (evaluation) needs a recalibration, which is gone"),
    ],
)
def test_what_is_missing_or_gone_is_named_with_the_stage_that_makes_it(
    stages: tuple[Any, ...], said: str
) -> None:
    with pytest.raises(ProgramError) as refused:
        made(*stages)
    assert said in str(refused.value)
    text = made(FIRST, LAYER).to_json()
    assert Program.from_json(text)


def test_a_program_that_starts_from_a_model_is_made_but_not_started_without_one() -> None:
    with pytest.raises(ProgramError, match=r"stages\[0\] \(recalibration\) needs the linear layer"):
        simulate(made(JUDGED, SCORED), tables.tables(3), DEALING, secure=False)


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ((FIRST, TRAINED), "add the stage 'linear' or 'linear_two_sums'"),
        ((FIRST, LAYER, TRAINED), "stages[2] (exact) drops the linear layer"),
    ],
)
def test_a_session_is_for_a_model(stages: tuple[Any, ...], said: str) -> None:
    program = made(*stages)
    with pytest.raises(ProgramError) as refused:
        whole_program.check(program)
    assert said in str(refused.value)


def test_a_session_may_end_with_a_kernel_that_sites_have_trained_and_with_nothing_else() -> None:
    """Of an exact training the sums have had the layer at every step: there it is a mistake."""
    averaged = fedavg.Spec(rounds=1, local_steps=1)
    program = made(FIRST, averaged)
    whole_program.check(program)
    assert whole_program.kernel_alone(program)
    assert not whole_program.kernel_alone(made(FIRST, averaged, LAYER))
    for stages in ((FIRST,), (FIRST, TRAINED), (FIRST, averaged, FIRST), (averaged, TRAINED)):
        with pytest.raises(ProgramError, match="without which a run produces no model"):
            whole_program.check(made(*stages))
    with pytest.raises(ProgramError, match="targets that are not real numbers"):
        whole_program.check(made(FIRST, averaged, LAYER, schema=mixed.MIXED))


def test_every_target_needs_its_layer_and_completion_its_rows() -> None:
    program = made(FIRST, LAYER, schema=mixed.MIXED)
    with pytest.raises(ProgramError, match=r"targets that are not real numbers.*'outcomes'"):
        whole_program.check(program)
    whole_program.check(made(FIRST, LAYER, outcomes.Spec(), schema=mixed.MIXED))
    with pytest.raises(ProgramError, match="held_out must be above 0"):
        whole_program.check(made(FIRST, LAYER, ALL, held_out=0.0))


def test_a_kind_of_run_that_a_sessions_model_cannot_start_is_refused() -> None:
    session = made(FIRST, LAYER, JUDGED, SCORED, update.Spec())
    with pytest.raises(ProgramError, match=r"evaluation.* needs a recalibration"):
        program_of(Kind.EVALUATE, session)
    assert program_of(Kind.LINEAR, made(FIRST, LAYER, JUDGED, SCORED)).stages[0] == LAYER


@pytest.mark.full
def test_a_program_that_is_accepted_never_stops_in_the_middle() -> None:
    rest = (LAYER, ALL, JUDGED, SCORED, evaluation.Spec(recalibrated=False), TRAINED)
    accepted = 0
    for stages in product((LAYER,), rest, rest):
        try:
            program = made(FIRST, *stages)
            whole_program.check(program)
        except ProgramError:
            continue
        accepted += 1
        model = simulate(program, tables.tables(3, rows=30), DEALING, secure=False).model
        assert model.statistics is not None
    assert accepted > 10


NETWORK, UNCALIBRATED = fedyogi.Spec(), evaluation.Spec(recalibrated=False)


def test_networks_alone_are_a_model_of_real_targets() -> None:
    program = made(FIRST, NETWORK, UNCALIBRATED)
    whole_program.check(program)
    assert [*whole_program.problems_of_names(["moments", "fedyogi"])] == []
    evaluated = program_of(Kind.EVALUATE, program)
    assert evaluated.stages == (UNCALIBRATED,)
    for kind in (Kind.LINEAR, Kind.UPDATE):
        with pytest.raises(ProgramError, match="linear layer"):
            program_of(kind, program)
    with pytest.raises(ProgramError, match="no stage makes the layers of targets"):
        whole_program.check(made(FIRST, NETWORK, schema=mixed.MIXED))
    with pytest.raises(ProgramError, match="needs the linear layer"):
        made(FIRST, UNCALIBRATED, NETWORK)
    with pytest.raises(ProgramError, match="needs a recalibration"):
        made(FIRST, NETWORK, SCORED)


def test_networks_that_no_evaluation_would_score_are_refused() -> None:
    whole_program.check(made(FIRST, LAYER, NETWORK, UNCALIBRATED))
    with pytest.raises(ProgramError, match=r"\(fedyogi\) comes after the evaluation"):
        whole_program.check(made(FIRST, LAYER, UNCALIBRATED, NETWORK))
