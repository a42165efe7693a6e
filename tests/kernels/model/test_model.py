"""A model's parts, and which of them are kept when another changes."""

from dataclasses import fields
from typing import get_type_hints

import pytest

from kernels.model.model import FOLLOWING, Model, Parts

GIVEN = {"schema", "kernel", "max_rows", "privacy", "choices"}
"""Fields that the program sets, not results of its stages."""


def test_of_every_part_it_is_said_what_follows_from_it() -> None:
    assert {field.name for field in fields(Model)} == GIVEN | set(FOLLOWING)
    assert set(get_type_hints(Parts)) == set(FOLLOWING)


@pytest.mark.parametrize("name", FOLLOWING)
def test_what_follows_from_a_part_that_is_dropped_is_dropped_too(name: str) -> None:
    gone = set(FOLLOWING[name])
    assert name not in gone
    for each in gone:
        assert set(FOLLOWING[each]) <= gone
