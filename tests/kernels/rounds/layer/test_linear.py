"""Phase 2 in one sum."""

from typing import Any

from kernels.rounds.layer import linear
from tests.conformance.algorithm import AdditiveOverRows, EqualToPooled


class TestLinear(AdditiveOverRows, EqualToPooled):
    algorithm = linear

    def spec(self) -> Any:
        return linear.Spec()
