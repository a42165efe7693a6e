"""The linear part: a sum of kernels, a bounded norm, and a ratio that is one weight."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kernels.features.linear_part import coordinates, ratio, squared_norm_at, with_log_ratio
from kernels.features.rounding import feature_rounding
from kernels.features.spec import MOST_LOG_RATIO, Architecture, KernelSpec
from kernels.features.urk import URK, starting_weights
from tests.kernels.features.specs import EVERY_SPEC

LINEAR = EVERY_SPEC["linear"]
BESIDE = EVERY_SPEC["rbf+linear"]
bounded = pytest.mark.parametrize(
    "spec",
    [s for s in EVERY_SPEC.values() if s.linear_features and s.squared_norm_bound is not None],
    ids=lambda spec: spec.architecture,
)


def rows(count: int, inputs: int = 3, *, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return scale * torch.randn(count, inputs, generator=generator, dtype=torch.float64)


def at(spec: KernelSpec, log_ratio: float) -> URK:
    return URK(spec, with_log_ratio(starting_weights(spec), log_ratio))


def test_it_is_bayesian_linear_regression_with_an_intercept() -> None:
    x = rows(9, scale=0.5)
    gram = at(LINEAR, math.log(3)).forward(x, x).to_dense().detach()
    torch.testing.assert_close(gram, 9 * (x @ x.mT + 1) / 4)


def test_features_side_by_side_are_a_sum_of_kernels() -> None:
    x = rows(9)
    both = at(BESIDE, 0.7).features(x).detach()
    alone = URK(replace(BESIDE, linear_part=False)).features(x).detach()
    linear = at(LINEAR, 0.7).features(x).detach()
    assert torch.equal(both, torch.cat([alone, linear], 1))


def test_the_ratio_is_the_last_weight_and_starts_at_1() -> None:
    assert list(URK(BESIDE).named_weights())[-1] == "log_ratio"
    assert float(starting_weights(BESIDE)[-1]) == 0.0
    assert ratio(0.0) == 1.0


@bounded
@pytest.mark.parametrize("log_ratio", [-2.0, 0.0, 1.5])
def test_a_row_is_within_the_bound_and_a_far_one_attains_it(
    spec: KernelSpec, log_ratio: float
) -> None:
    kernel = at(spec, log_ratio)
    bound = squared_norm_at(spec, kernel.weights.detach())
    assert bound is not None
    norms = kernel.features(rows(200, scale=3.0)).detach().square().sum(1)
    assert bool((norms <= bound * (1 + 1e-12)).all())
    if not spec.inducing_features:  # only at a point itself are these as large
        assert float(norms.max()) == pytest.approx(bound)


@bounded
def test_no_weight_exceeds_the_bound_for_all_weights(spec: KernelSpec) -> None:
    x = rows(50, scale=5.0)
    for log_ratio in (-1e300, 1e300, MOST_LOG_RATIO):
        phi = at(spec, log_ratio).features(x).detach()
        assert bool((phi.square().sum(1) <= spec.squared_norm_bound).all())


def test_far_rows_keep_their_direction_and_their_constant() -> None:
    x = torch.cat([rows(5, scale=0.5), rows(5, scale=100.0)])
    u = coordinates(x, radius=2.0)
    assert torch.equal(u[:, -1], torch.full((10,), 0.5, dtype=torch.float64))
    torch.testing.assert_close(u[:5, :-1], x[:5] / 2)
    far = u[5:, :-1]
    torch.testing.assert_close(far.norm(dim=1), torch.full((5,), 2.0, dtype=torch.float64))
    torch.testing.assert_close(far / 2, x[5:] / x[5:].norm(dim=1, keepdim=True))


@pytest.mark.parametrize("name", ["linear", "rbf+linear", "shifted+linear", "replicated+linear"])
def test_the_gradients_of_rows_add_up_to_that_of_the_table(name: str) -> None:
    kernel, x = at(EVERY_SPEC[name], 0.4), rows(9, scale=2.0)
    phi, pullback = kernel.features_and_pullback(x)
    same, row_pullback = kernel.features_and_row_pullback(x)
    gradient = rows(9, phi.shape[1])
    torch.testing.assert_close(same, phi, rtol=1e-12, atol=1e-14)
    each = row_pullback(gradient)
    assert each.shape == (9, len(kernel.weights))
    torch.testing.assert_close(each.sum(0), pullback(gradient), rtol=1e-9, atol=1e-12)


def test_beyond_its_limit_the_ratio_has_no_gradient() -> None:
    kernel, x = at(LINEAR, MOST_LOG_RATIO + 1), rows(4)
    phi, pullback = kernel.features_and_pullback(x)
    assert torch.equal(phi, at(LINEAR, MOST_LOG_RATIO).features(x).detach())
    assert float(pullback(torch.ones_like(phi))) == 0.0


def test_points_can_be_moved_from_the_middle() -> None:
    x = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(URK(LINEAR).features(x).sum(), x)
    assert torch.equal(slope, torch.full((2, 3), 0.5, dtype=torch.float64))


def test_rounding_of_the_linear_part_is_small_at_every_ratio() -> None:
    for spec in (LINEAR, BESIDE):
        assert 0 < feature_rounding(at(spec, 1e300)) < 2.0**-40
    polynomial = replace(EVERY_SPEC["polynomial"], linear_part=True)
    assert feature_rounding(URK(polynomial)) == math.inf
    assert polynomial.architecture is Architecture.POLYNOMIAL
