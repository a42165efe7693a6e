"""Phase 1 by the exact gradient of the pooled evidence."""

from typing import Any

import pytest

from kernels.errors import StatisticsError
from kernels.rounds import exact
from tests.conformance.algorithm import AdditiveOverRows, EqualToPooled


class TestExact(AdditiveOverRows, EqualToPooled):
    algorithm = exact  # type: ignore[assignment]

    def spec(self) -> Any:
        return exact.Spec(steps=3, penalties=(3.0, 30.0))


def test_a_table_that_changes_between_the_two_sums_of_a_step_is_noticed() -> None:
    conformance = TestExact()
    sites = conformance.sites()
    state = exact.initial(exact.Spec(steps=2), conformance.model(sites))
    state = exact.update(state, conformance.total(state, sites))
    with pytest.raises(StatisticsError, match="different rows"):
        exact.update(state, conformance.total(state, sites[:2]))
