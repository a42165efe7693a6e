"""Phase 2 in one sum."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from kernels.features.spec import KernelSpec
from kernels.layer.ratio import LOG_RATIOS
from kernels.layer.statistics import Statistics
from kernels.model.model import Model
from kernels.rounds.layer import linear, linear_two_sums
from kernels.rounds.site.site import Part, Site
from tests.conformance.algorithm import AdditiveOverRows, EqualToPooled
from tests.kernels.rounds import sums, tables


class TestLinear(AdditiveOverRows, EqualToPooled):
    algorithm = linear

    def spec(self) -> Any:
        return linear.Spec()


class TestLinearWithALinearPart(TestLinear):
    def model(self, sites: list[Site]) -> Model:
        return replace(tables.fitted(sites), kernel=tables.BESIDE)


class TestLinearWithInducingFeatures(TestLinear):
    def model(self, sites: list[Site]) -> Model:
        return replace(tables.fitted(sites), kernel=tables.INDUCING)


@pytest.fixture(scope="module")
def sites() -> list[Site]:
    return [tables.site(seed=seed) for seed in range(3)]


def test_the_ratio_is_chosen_with_the_sums_of_the_chosen_features(sites: list[Site]) -> None:
    model = replace(tables.fitted(sites), kernel=tables.BESIDE)
    chosen = sums.after_all(linear, linear.Spec(), model, sites).model
    log_ratio = float(chosen.weights[-1])
    assert log_ratio in LOG_RATIOS
    assert log_ratio != 0
    assert torch.equal(chosen.weights[:-1], model.urk.weights.detach()[:-1])
    x, y = tables.together(sites).table(Part.TRAINING, chosen)
    expected = Statistics.of_table(chosen.urk, x, y)
    torch.testing.assert_close(chosen.statistics.scatter, expected.scatter, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(chosen.statistics.cross, expected.cross, rtol=1e-8, atol=1e-8)
    error = torch.linalg.matrix_norm(chosen.statistics.scatter - expected.scatter, 2)
    assert float(error) <= chosen.statistics.rounding


@pytest.mark.parametrize(
    ("algorithm", "spec"),
    [(linear, linear.Spec(refit=False)), (linear_two_sums, linear_two_sums.Spec())],
)
def test_without_a_refit_and_in_two_sums_the_ratio_is_kept(
    algorithm: Any, spec: Any, sites: list[Site]
) -> None:
    model = replace(tables.fitted(sites), kernel=tables.BESIDE)
    kept = sums.after_all(algorithm, spec, model, sites).model
    assert float(kept.urk.weights.detach()[-1]) == 0.0
    x, y = tables.together(sites).table(Part.TRAINING, kept)
    expected = Statistics.of_table(kept.urk, x, y)
    torch.testing.assert_close(kept.statistics.scatter, expected.scatter, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(kept.statistics.cross, expected.cross, rtol=1e-6, atol=1e-6)


def test_the_linear_kernel_alone_is_the_pooled_one(sites: list[Site]) -> None:
    kernel = KernelSpec(architecture="linear", inputs=tables.KERNEL.inputs)
    model = replace(tables.fitted(sites), kernel=kernel)
    own = sums.after_all(linear, linear.Spec(), model, sites).model
    whole = sums.after_all(linear, linear.Spec(), model, [tables.together(sites)]).model
    torch.testing.assert_close(own.posterior.weights, whole.posterior.weights)
    assert own.statistics.features == tables.KERNEL.inputs + 1
