"""What a task says of its place in a run: stable words, which both ends write alike."""

import json

from kernels.rounds.columns import moments
from kernels.rounds.layer import linear
from kernels.rounds.task import noise_multiplier, program_digest, statistic_of, task_parameters
from tests.client_sdk.private import PROGRAM as PRIVATE
from tests.kernels.rounds.tables import program


def test_parameters_name_program_kind_seed_and_stage_in_one_form() -> None:
    digest = program_digest("{}")
    one = task_parameters(program=digest, run_kind="train", seed=7, stage=1)
    assert json.loads(one) == {"program": digest, "run_kind": "train", "seed": 7, "stage": 1}
    assert digest == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    others = {
        task_parameters(program=program_digest("{ }"), run_kind="train", seed=7, stage=1),
        task_parameters(program=digest, run_kind="linear", seed=7, stage=1),
        task_parameters(program=digest, run_kind="train", seed=8, stage=1),
        task_parameters(program=digest, run_kind="train", seed=7, stage=0),
    }
    assert len(others | {one}) == 5


def test_a_statistic_is_an_algorithm_in_a_version_and_noise_is_the_programs() -> None:
    assert statistic_of(moments) == f"moments/{moments.VERSION}"
    assert statistic_of(linear) != statistic_of(moments)
    assert noise_multiplier(program(linear.Spec()), 0) is None
    assert PRIVATE.privacy is not None
    assert [noise_multiplier(PRIVATE, stage) for stage in (0, 1)] == [*PRIVATE.privacy.multipliers]
