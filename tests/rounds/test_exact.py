"""Phase 1 by the exact gradient of the pooled evidence."""

from typing import Any

from kernels.rounds import exact
from tests.conformance.algorithm import AdditiveOverRows, EqualToPooled


class TestExact(AdditiveOverRows, EqualToPooled):
    algorithm = exact  # type: ignore[assignment]

    def spec(self) -> Any:
        return exact.Spec(steps=3, penalties=(3.0, 30.0))
