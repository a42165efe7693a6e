"""The posterior of noisy statistics takes the noise into account; without noise it is exact."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.errors import EmptyTable, StatisticsError
from kernels.layer.posterior import Hyperparameters, Posterior, Spectrum
from kernels.layer.refit import refit
from kernels.layer.statistics import Noise, Statistics
from kernels.noisy import noise_aware
from kernels.noisy.realisable import symmetric_normals

FEATURES = 12
NOISE_VARIANCE, PRIOR_VARIANCE = 0.3, 1.5
TRUE = Hyperparameters.of(noise_variance=NOISE_VARIANCE, prior_variance=PRIOR_VARIANCE)
HARDLY = Noise(scatter=1e-9, cross=1e-9, target_squares=1e-9, count=1e-9)
MUCH = Noise(scatter=3.0, cross=10.0, target_squares=20.0, count=10.0)
ENDLESS = Noise(scatter=3.0, cross=1e6, target_squares=1e6, count=1e6)


def unit_features(rows: int, generator: torch.Generator) -> Tensor:
    """Features of norm 1 that vary more in some directions than in others."""
    spread = torch.logspace(0, -1, FEATURES, dtype=torch.float64)
    phi = torch.randn(rows, FEATURES, generator=generator, dtype=torch.float64) * spread
    return phi / phi.norm(dim=1, keepdim=True)


def table(rows: int, seed: int, targets: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Return features, weights drawn from the prior, and their targets."""
    generator = torch.Generator().manual_seed(seed)
    phi = unit_features(rows, generator)
    w = torch.randn(FEATURES, targets, generator=generator, dtype=torch.float64)
    w = w * math.sqrt(PRIOR_VARIANCE)
    errors = torch.randn(rows, targets, generator=generator, dtype=torch.float64)
    return phi, w, phi @ w + math.sqrt(NOISE_VARIANCE) * errors


def with_noise(exact: Statistics, noise: Noise, seed: int) -> Statistics:
    generator = torch.Generator().manual_seed(10_000 + seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return Statistics(
        exact.scatter + noise.scatter * symmetric_normals(seed, "test", exact.features),
        exact.cross + noise.cross * normal(exact.features, exact.targets),
        (exact.target_squares + noise.target_squares * normal(exact.targets)).clamp_min(0.0),
        exact.count,
        noise=noise,
    )


def covariance(posterior: Posterior, target: int = 0) -> Tensor:
    basis = posterior.eigenvectors[target]
    return (basis * posterior.variances[:, target]) @ basis.mT


def test_without_noise_it_is_the_exact_posterior() -> None:
    phi, _, y = table(500, seed=1, targets=2)
    exact = Statistics.of_features(phi, y)
    scales = Hyperparameters.of(noise_variance=0.3, prior_variance=1.5, targets=2)
    expected = Posterior.of(exact, scales)
    ours = noise_aware.posterior(with_noise(exact, HARDLY, 0), scales)
    queries = unit_features(20, torch.Generator().manual_seed(5))
    torch.testing.assert_close(ours.weights, expected.weights, rtol=1e-7, atol=1e-9)
    for name in ("mean", "latent_variance", "variance"):
        torch.testing.assert_close(
            getattr(ours.predict(queries), name), getattr(expected.predict(queries), name)
        )
    for target in range(2):
        own, other = (queries @ each.covariance(target) @ queries.mT for each in (ours, expected))
        torch.testing.assert_close(own, other)
    torch.testing.assert_close(
        ours.log_density(queries, y[:20]), expected.log_density(queries, y[:20])
    )


def test_without_noise_sigma_and_lambda_are_nearly_those_of_the_evidence() -> None:
    phi, _, y = table(3000, seed=2)
    exact = Statistics.of_features(phi, y)
    expected = refit(Spectrum.of(exact))
    ours = noise_aware.refit(with_noise(exact, HARDLY, 0))
    torch.testing.assert_close(ours.noise_variance, expected.noise_variance, rtol=0.01, atol=0)
    torch.testing.assert_close(ours.prior_variance, expected.prior_variance, rtol=0.3, atol=0)


def test_the_noise_of_s_times_w_has_the_covariance_that_is_claimed() -> None:
    w = torch.arange(1.0, 5.0, dtype=torch.float64)
    draws = torch.stack([symmetric_normals(seed, "claim", 4) @ w for seed in range(3000)])
    claimed = (w @ w * torch.eye(4, dtype=torch.float64) + w.outer(w)) / 2
    torch.testing.assert_close(draws.mT @ draws / len(draws), claimed, rtol=0, atol=1.5)


def test_it_is_the_fixed_point_of_the_formula_with_full_matrices() -> None:
    phi, _, y = table(400, seed=3)
    noisy = with_noise(Statistics.of_features(phi, y), MUCH, 3)
    values, basis = torch.linalg.eigh(noisy.scatter)
    scatter = (basis * values.clamp_min(0)) @ basis.mT
    ours = noise_aware.posterior(noisy, TRUE)
    w, spread = ours.weights[:, 0], covariance(ours)
    own = basis.mT @ spread @ basis
    along = w.outer(w) + (basis * own.diagonal()) @ basis.mT
    size = w @ w + spread.trace()
    identity = torch.eye(FEATURES, dtype=torch.float64)
    of_cross = (
        NOISE_VARIANCE * scatter
        + (MUCH.cross**2 + MUCH.scatter**2 / 2 * size) * identity
        + MUCH.scatter**2 / 2 * along
    )
    precision = scatter @ of_cross.inverse() @ scatter + identity / PRIOR_VARIANCE
    torch.testing.assert_close(spread, precision.inverse(), rtol=1e-6, atol=1e-8)
    mean = spread @ scatter @ of_cross.inverse() @ noisy.cross[:, 0]
    torch.testing.assert_close(w, mean, rtol=1e-6, atol=1e-8)


def calibration(posterior_of: object, noise: Noise, seeds: int = 80) -> tuple[float, float]:
    """Return the mean square of standardised errors of the weights, and of new targets."""
    of_weights, of_targets = [], []
    for seed in range(seeds):
        phi, w, y = table(600, seed=seed)
        posterior = posterior_of(
            with_noise(Statistics.of_features(phi[:400], y[:400]), noise, seed)
        )
        error = w - posterior.weights
        basis = posterior.eigenvectors.reshape(FEATURES, FEATURES)
        of_weights.append(float(((basis.mT @ error).square() / posterior.variances).mean()))
        predicted = posterior.predict(phi[400:])
        of_targets.append(float(((y[400:] - predicted.mean).square() / predicted.variance).mean()))
    return sum(of_weights) / seeds, sum(of_targets) / seeds


@pytest.mark.parametrize("noise", [MUCH, Noise(scatter=10, cross=30, target_squares=60, count=30)])
def test_weights_and_predictions_are_within_what_it_says(noise: Noise) -> None:
    of_weights, of_targets = calibration(lambda noisy: noise_aware.posterior(noisy, TRUE), noise)
    assert 0.8 < of_weights < 1.25
    assert 0.8 < of_targets < 1.25


def test_predictions_are_within_what_it_says_with_its_own_sigma_and_lambda() -> None:
    def fitted(noisy: Statistics) -> Posterior:
        return noise_aware.posterior(noisy, noise_aware.refit(noisy))

    assert 0.7 < calibration(fitted, MUCH, seeds=60)[1] < 1.3


def test_a_twin_that_ignores_the_noise_is_sure_of_what_is_wrong() -> None:
    def ignoring(noisy: Statistics) -> Posterior:
        values, basis = torch.linalg.eigh(noisy.scatter)
        squares = noisy.target_squares
        clipped = values.clamp_min(0.0)
        cross = basis.mT @ noisy.cross
        return Posterior.of(Spectrum(clipped, basis, cross, squares, noisy.count, 0.0), TRUE)

    of_weights, of_targets = calibration(ignoring, MUCH, seeds=20)
    assert of_weights > 3
    assert of_targets > 2


def test_a_twin_that_forgets_the_noise_of_s_is_surer_than_it_may_be() -> None:
    strong = Noise(scatter=10, cross=30, target_squares=60, count=30)
    forgotten = Noise(scatter=1e-6, cross=30, target_squares=60, count=30)

    def forgetting(noisy: Statistics) -> Posterior:
        less = Statistics(
            noisy.scatter, noisy.cross, noisy.target_squares, noisy.count, noise=forgotten
        )
        return noise_aware.posterior(less, TRUE)

    assert calibration(forgetting, strong, seeds=40)[0] > 1.3


def test_with_nothing_but_noise_it_is_the_prior() -> None:
    phi, _, y = table(50, seed=4)
    noisy = with_noise(Statistics.of_features(phi, y), ENDLESS, 4)
    posterior = noise_aware.posterior(noisy, TRUE)
    assert posterior.weights.abs().max() < 1e-3
    assert posterior.variances.min() > 0.999 * PRIOR_VARIANCE
    scales = noise_aware.refit(noisy)
    assert 0 < float(scales.noise_variance) < math.inf


@given(seed=st.integers(0, 1000))
@settings(max_examples=10)
def test_another_basis_gives_the_same_model(seed: int) -> None:
    phi, _, y = table(300, seed=seed)
    noisy = with_noise(Statistics.of_features(phi, y), MUCH, seed)
    square = torch.randn(
        FEATURES, FEATURES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    rotation = torch.linalg.qr(square).Q
    rotated = Statistics(
        rotation @ noisy.scatter @ rotation.mT,
        rotation @ noisy.cross,
        noisy.target_squares,
        noisy.count,
        noise=noisy.noise,
    )
    one, other = noise_aware.posterior(noisy, TRUE), noise_aware.posterior(rotated, TRUE)
    torch.testing.assert_close(other.weights, rotation @ one.weights, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(
        covariance(other), rotation @ covariance(one) @ rotation.mT, rtol=1e-5, atol=1e-7
    )


def test_each_target_has_its_own_posterior() -> None:
    phi, _, y = table(400, seed=6, targets=2)
    noisy = with_noise(Statistics.of_features(phi, y), MUCH, 6)
    both = noise_aware.posterior(noisy, noise_aware.refit(noisy))
    alone = Statistics(
        noisy.scatter, noisy.cross[:, 1:], noisy.target_squares[1:], noisy.count, noise=MUCH
    )
    one = noise_aware.posterior(alone, noise_aware.refit(alone))
    torch.testing.assert_close(both.weights[:, 1:], one.weights)
    torch.testing.assert_close(covariance(both, 1), covariance(one))
    torch.testing.assert_close(both.predict(phi[:5]).variance[:, 1:], one.predict(phi[:5]).variance)


def test_statistics_without_noise_or_rows_are_refused() -> None:
    phi, _, y = table(30, seed=8)
    with pytest.raises(StatisticsError, match="no noise"):
        noise_aware.posterior(Statistics.of_features(phi, y), TRUE)
    nothing = Statistics.zero(features=FEATURES)
    with pytest.raises(EmptyTable):
        noise_aware.refit(with_noise(nothing, MUCH, 0))
