"""Training rows predicted without themselves: what a layer fitted without them predicts."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.layer.leave_one_out import predict_without_own
from kernels.layer.posterior import Hyperparameters, Posterior, Prediction, Spectrum
from kernels.layer.statistics import Statistics

ROWS, FEATURES, TARGETS = 40, 7, 2


def drawn(seed: int) -> tuple[Tensor, Tensor, Hyperparameters]:
    random = torch.Generator().manual_seed(seed)
    phi = torch.randn(ROWS, FEATURES, generator=random, dtype=torch.float64) / math.sqrt(FEATURES)
    y = torch.randn(ROWS, TARGETS, generator=random, dtype=torch.float64)
    scales = torch.rand(2, TARGETS, generator=random, dtype=torch.float64) + 0.2
    return phi, y, Hyperparameters(scales[0], scales[1])


def fitted(phi: Tensor, y: Tensor, scales: Hyperparameters, *, inducing: int = 0) -> Posterior:
    return Posterior.of(Spectrum.of(Statistics.of_features(phi, y), inducing=inducing), scales)


def by_hand(
    phi: Tensor, y: Tensor, scales: Hyperparameters, unit: Tensor, *, inducing: int = 0
) -> Prediction:
    """Fit a layer without the rows of each unit, and predict these by it."""
    mean, latent = torch.empty_like(y), torch.empty_like(y)
    for number in unit.unique():
        own = unit == number
        said = fitted(phi[~own], y[~own], scales, inducing=inducing).predict(phi[own])
        mean[own], latent[own] = said.mean, said.latent_variance
    return Prediction(mean, latent, scales.noise_variance)


def assert_same(found: Prediction, expected: Prediction) -> None:
    torch.testing.assert_close(found.mean, expected.mean, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(found.variance, expected.variance, rtol=1e-9, atol=1e-10)


@settings(max_examples=20)
@given(st.integers(0, 2**16), st.integers(1, ROWS))
def test_rows_are_predicted_as_by_a_layer_that_never_had_their_unit(seed: int, units: int) -> None:
    phi, y, scales = drawn(seed)
    unit = torch.randint(units, (ROWS,), generator=torch.Generator().manual_seed(seed + 1))
    unit = torch.unique(unit, return_inverse=True)[1]
    if len(unit.unique()) == 1:
        return
    found = predict_without_own(fitted(phi, y, scales), phi, y, unit)
    assert_same(found, by_hand(phi, y, scales, unit))


def test_what_inducing_features_leave_out_is_uncertain_still() -> None:
    phi, y, scales = drawn(3)
    phi = phi / phi.norm(dim=1, keepdim=True).clamp_min(1.2)
    unit = torch.arange(ROWS)
    found = predict_without_own(fitted(phi, y, scales, inducing=5), phi, y, unit)
    assert_same(found, by_hand(phi, y, scales, unit, inducing=5))


def test_a_layer_with_as_many_features_as_rows_is_found_out() -> None:
    random = torch.Generator().manual_seed(1)
    phi = torch.randn(ROWS, ROWS, generator=random, dtype=torch.float64)
    y = torch.randn(ROWS, 1, generator=random, dtype=torch.float64)
    scales = Hyperparameters.of(noise_variance=1e-4, prior_variance=1.0)
    layer = fitted(phi, y, scales)
    seen = (y - layer.predict(phi).mean).square().mean()
    unseen = (y - predict_without_own(layer, phi, y, torch.arange(ROWS)).mean).square().mean()
    assert float(seen) < 0.05
    assert float(unseen) > 0.5


def test_a_single_row_is_predicted_by_the_prior() -> None:
    phi, y, scales = drawn(0)
    phi, y = phi[:1], y[:1]
    found = predict_without_own(fitted(phi, y, scales), phi, y, torch.zeros(1, dtype=torch.int64))
    expected = phi.square().sum(1, keepdim=True) * scales.prior_variance
    torch.testing.assert_close(found.mean, torch.zeros_like(y), rtol=0, atol=1e-12)
    torch.testing.assert_close(found.latent_variance, expected, rtol=1e-9, atol=0)
