"""The unit of a program's noise, from its text."""

from dataclasses import replace

import pytest

from kernels.errors import ProgramError
from kernels.rounds.stated.unit import Unit, stated_unit
from tests.client_sdk.private import PROGRAM


def test_it_is_what_the_program_says() -> None:
    assert PROGRAM.privacy is not None
    assert stated_unit(PROGRAM.to_json()) == Unit(patient=None, max_rows=1)
    noise = replace(PROGRAM.privacy, max_rows_per_patient=4)
    schema = replace(PROGRAM.schema, patient="who")
    of_patients = replace(PROGRAM, schema=schema, privacy=noise)
    assert stated_unit(of_patients.to_json()) == Unit(patient="who", max_rows=4)
    assert stated_unit(replace(PROGRAM, privacy=None).to_json()) is None


@pytest.mark.parametrize("text", ["", "[]", '{"privacy": 1}', '{"privacy": {}, "schema": "{}"}'])
def test_what_is_no_program_is_refused_by_name(text: str) -> None:
    with pytest.raises(ProgramError):
        stated_unit(text)
