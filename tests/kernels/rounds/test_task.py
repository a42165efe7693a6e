"""What a task says of its place in a run: stable words, which both ends write alike."""

import json
from typing import Any

import pytest

from kernels.errors import ProgramError
from kernels.rounds.columns import moments
from kernels.rounds.layer import linear
from kernels.rounds.task import (
    noise_multiplier,
    place_in,
    program_digest,
    statistic_of,
    task_parameters,
)
from tests.client_sdk.private import PROGRAM as PRIVATE
from tests.kernels.rounds.tables import program


def test_parameters_name_program_kind_and_place_in_one_form() -> None:
    digest = program_digest("{}")
    given: dict[str, Any] = {
        "program": digest,
        "run_kind": "train",
        "parent": None,
        "stage": 1,
        "sum_index": 3,
    }
    one = task_parameters(**given)
    assert json.loads(one) == given
    assert place_in(one) == (1, 3)
    assert digest == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    other = {"program": program_digest("{ }"), "run_kind": "linear", "parent": "m", "stage": 0}
    other["sum_index"] = 4
    others = {task_parameters(**{**given, name: value}) for name, value in other.items()}
    assert len(others | {one}) == 6


@pytest.mark.parametrize(
    "junk", [b"", b"[]", b"{}", b'{"stage":0}', b'{"stage":-1,"sum_index":0}', b"[" * 100_000]
)
def test_parameters_that_name_no_place_are_refused(junk: bytes) -> None:
    with pytest.raises(ProgramError):
        place_in(junk)


def test_a_statistic_is_an_algorithm_in_a_version_and_noise_is_the_programs() -> None:
    assert statistic_of(moments) == f"moments/{moments.VERSION}"
    assert statistic_of(linear) != statistic_of(moments)
    assert noise_multiplier(program(linear.Spec()), 0) is None
    assert PRIVATE.privacy is not None
    assert [noise_multiplier(PRIVATE, stage) for stage in (0, 1)] == [*PRIVATE.privacy.multipliers]
