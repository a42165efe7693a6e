"""Inducing features are the Nyström approximation of Matérn-5/2, and its whole at their points."""

import math

import gpytorch
import pytest
import torch
from torch import Tensor

from kernels.errors import SpecError, WeightsError
from kernels.features.inducing import FARTHEST, JITTER, left_out
from kernels.features.linear_part import with_log_ratio
from kernels.features.spec import KernelSpec
from kernels.features.urk import URK, starting_weights, weight_shapes
from tests.kernels.features.test_urk import rows

SPEC = KernelSpec(architecture="inducing", inputs=3, samples=12, seed=2, lengthscale=1.5)


def matern(left: Tensor, right: Tensor, lengthscale: Tensor) -> Tensor:
    kernel = gpytorch.kernels.MaternKernel(2.5, ard_num_dims=left.shape[1]).double()
    kernel.lengthscale = lengthscale
    with torch.no_grad():
        dense: Tensor = kernel(left, right).to_dense()
    return dense


def at(points: Tensor, lengthscale: Tensor) -> URK:
    spec = KernelSpec(architecture="inducing", inputs=points.shape[1], samples=len(points))
    return URK(spec, torch.cat([points.flatten(), lengthscale.log()]))


LENGTHSCALE = torch.tensor([0.8, 1.5, 3.0], dtype=torch.float64)


def test_the_gram_matrix_is_the_nystrom_approximation() -> None:
    points, x = rows(12, 3, seed=1), rows(30, 3)
    phi = at(points, LENGTHSCALE).features(x).detach()
    cross, among = matern(x, points, LENGTHSCALE), matern(points, points, LENGTHSCALE)
    jitter = JITTER * torch.eye(12, dtype=torch.float64)
    expected = cross @ torch.linalg.solve(among + jitter, cross.mT)
    torch.testing.assert_close(phi @ phi.mT, expected, rtol=1e-9, atol=1e-9)


def test_at_the_points_themselves_nothing_is_left_out_and_far_away_everything() -> None:
    x = rows(12, 3)
    kernel = at(x, LENGTHSCALE)
    phi = kernel.features(x).detach()
    torch.testing.assert_close(phi @ phi.mT, matern(x, x, LENGTHSCALE), rtol=0.0, atol=2 * JITTER)
    assert float(left_out(phi, 12).max()) <= 2 * JITTER
    far = left_out(kernel.features(x + 1000).detach(), 12)
    torch.testing.assert_close(far, torch.ones_like(far))


def test_the_linear_part_does_not_count_as_what_is_left_out() -> None:
    spec = KernelSpec(architecture="inducing", inputs=3, samples=12, linear_part=True)
    kernel = URK(spec, with_log_ratio(starting_weights(spec), 1.0))
    alone = URK(KernelSpec(architecture="inducing", inputs=3, samples=12))
    x = rows(9, 3)
    both, main = kernel.features(x).detach(), alone.features(x).detach()
    assert torch.equal(left_out(both, 12), left_out(main, 12))


def test_it_starts_at_hashes_of_the_seed_without_any_row() -> None:
    named = URK(SPEC).named_weights()
    assert dict(weight_shapes(SPEC)) == {"points": (12, 3), "log_lengthscale": (3,)}
    assert float(named["points"].detach().abs().max()) <= FARTHEST
    assert named["log_lengthscale"].tolist() == pytest.approx([math.log(1.5)] * 3)
    longer = KernelSpec(architecture="inducing", inputs=3, samples=20, seed=2, lengthscale=1.5)
    assert torch.equal(URK(longer).named_weights()["points"][:12], named["points"])


def test_each_rows_gradient_is_that_of_its_own_table() -> None:
    kernel, x, gradient = URK(SPEC), rows(7, 3), rows(7, 12, seed=1)
    features, pullback = kernel.features_and_row_pullback(x)
    found = pullback(gradient)
    for row in range(7):
        own, alone = kernel.features_and_pullback(x[row : row + 1])
        torch.testing.assert_close(features[row : row + 1], own)
        torch.testing.assert_close(found[row], alone(gradient[row : row + 1]))


def test_points_that_coincide_and_lengthscales_of_every_size_have_features() -> None:
    x = rows(9, 3)
    for lengthscale in (1e-3, 1.0, 1e3):
        kernel = at(torch.zeros(6, 3).double(), torch.full((3,), lengthscale).double())
        phi, pullback = kernel.features_and_pullback(x)
        assert bool((phi.square().sum(1) <= 1).all())
        assert bool(pullback(phi).isfinite().all())


@pytest.mark.parametrize("level", [-1e300, -700.0, 700.0, 1e300])
def test_no_lengthscale_makes_some_rows_fail_and_others_not(level: float) -> None:
    weights = starting_weights(SPEC)
    weights[-3:] = level
    phi, pullback = URK(SPEC, weights).features_and_pullback(rows(9, 3, scale=10.0))
    assert bool(phi.isfinite().all())
    found = pullback(torch.ones_like(phi))
    assert bool(found.isfinite().all())
    assert not found[-3:].any()


def test_weights_without_a_cholesky_factor_are_refused_by_name() -> None:
    weights = starting_weights(SPEC)
    weights[0], weights[-3:] = 1e300, -300.0
    with pytest.raises(WeightsError, match="Cholesky"):
        URK(SPEC, weights).features(rows(4, 3))


def test_in_float32_it_is_computed_in_float64() -> None:
    phi = URK(SPEC).float().features(rows(9, 3))
    assert phi.dtype == torch.float32
    torch.testing.assert_close(phi.double(), URK(SPEC).features(rows(9, 3)), rtol=0, atol=1e-3)


def test_what_does_not_belong_to_it_is_refused() -> None:
    assert KernelSpec.from_json(SPEC.to_json()) == SPEC
    with pytest.raises(SpecError, match="does not use normaliser"):
        KernelSpec(architecture="inducing", inputs=3, normaliser="thesis")
    with pytest.raises(SpecError, match="smaller sizes"):
        KernelSpec(architecture="inducing", inputs=3, samples=20_000)
    assert SPEC.inducing_features == SPEC.features == 12
    assert SPEC.squared_norm_bound == 1
    assert SPEC.main_squared_norm is None
