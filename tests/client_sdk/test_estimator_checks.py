"""scikit-learn's own checks of estimators: all of them pass, so none is expected to fail."""

from dataclasses import dataclass
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from client_sdk.estimator import FederatedClassifier, FederatedRegressor
from kernels.features.spec import Architecture, KernelSpec
from kernels.rounds.columns import moments
from kernels.rounds.layer import linear, outcomes
from kernels.rounds.program import Program
from kernels.tables.schema import Schema

pytestmark = pytest.mark.full


@dataclass(frozen=True)
class Quick:
    """A program of few sums: the checks are about the interface.

    Its repr is part of the tests' names, which must be the same in every process.
    """

    def __call__(self, schema: Schema) -> Program:
        inputs = len(schema.feature_names)
        kernel = KernelSpec(
            architecture=Architecture.RBF,
            inputs=inputs,
            samples=4,
            lengthscale=inputs**0.5,
            linear_part=True,
        )
        layer = linear.Spec() if schema.real else outcomes.Spec(sums=3)
        return Program(schema, kernel, (moments.Spec(), layer), held_out=0.0)


@parametrize_with_checks(
    [
        FederatedRegressor(program=Quick(), random_state=0),
        FederatedClassifier(program=Quick(), random_state=0),
    ]
)
def test_it_is_an_estimator_as_scikit_learn_has_them(estimator: Any, check: Any) -> None:
    check(estimator)
