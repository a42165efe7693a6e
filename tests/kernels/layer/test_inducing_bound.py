"""A layer of inducing features is the sparse Gaussian process of dense algebra, with its bound."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from kernels.features.linear_part import with_log_ratio
from kernels.features.spec import KernelSpec
from kernels.features.urk import URK, starting_weights
from kernels.layer.evidence import PooledEvidence, client_gradient
from kernels.layer.local_evidence import negative_log_evidence
from kernels.layer.posterior import Hyperparameters, Posterior, Spectrum
from kernels.layer.ratio import LOG_RATIOS, best_ratio
from kernels.layer.refit import RefitOptions, objective, refit
from kernels.layer.statistics import Statistics
from tests.kernels.features.test_inducing import LENGTHSCALE, at, matern
from tests.kernels.layer.test_statistics import table

SCALES = Hyperparameters(
    torch.tensor([0.3, 0.1], dtype=torch.float64), torch.tensor([1.7, 0.4], dtype=torch.float64)
)
BESIDE = KernelSpec(
    architecture="inducing", inputs=3, samples=10, seed=4, lengthscale=1.2, linear_part=True
)


def fitted(kernel: URK, x: Tensor, y: Tensor) -> Spectrum:
    statistics = Statistics.of_table(kernel, x, y)
    return Spectrum.of(statistics, inducing=kernel.spec.inducing_features)


def dense_bound(phi: Tensor, y: Tensor, scales: Hyperparameters, main: int) -> Tensor:
    """Return Titsias's bound on the log evidence of each target, [2009] eq. 9."""
    found = []
    nystrom, left = phi @ phi.mT, len(phi) - phi[:, :main].square().sum()
    for target, (noise, prior) in enumerate(
        zip(scales.noise_variance, scales.prior_variance, strict=True)
    ):
        covariance = prior * nystrom + noise * torch.eye(len(phi), dtype=torch.float64)
        law = MultivariateNormal(torch.zeros(len(phi), dtype=torch.float64), covariance)
        found.append(law.log_prob(y[:, target]) - prior / (2 * noise) * left)
    return torch.stack(found)


def test_with_points_at_all_rows_it_is_the_exact_gaussian_process() -> None:
    (x, y), (queries, _) = table(30, targets=2), table(11, targets=2, seed=1)
    queries = torch.cat([queries, queries + 50])
    kernel = at(x, LENGTHSCALE)
    posterior = Posterior.of(fitted(kernel, x, y), SCALES)
    ours = posterior.predict(kernel.features(queries))
    gram, cross = matern(x, x, LENGTHSCALE), matern(queries, x, LENGTHSCALE)
    for target in range(2):
        noise, prior = float(SCALES.noise_variance[target]), float(SCALES.prior_variance[target])
        covariance = prior * gram + noise * torch.eye(30, dtype=torch.float64)
        gain = torch.linalg.solve(covariance, prior * cross.mT).mT
        mean, variance = gain @ y[:, target], prior - prior * (gain * cross).sum(1)
        torch.testing.assert_close(ours.mean[:, target], mean, rtol=0, atol=1e-6)
        torch.testing.assert_close(ours.latent_variance[:, target], variance, rtol=0, atol=1e-6)
        law = MultivariateNormal(torch.zeros(30, dtype=torch.float64), covariance)
        evidence = float(law.log_prob(y[:, target]))
        assert float(posterior.log_evidence[target]) == pytest.approx(evidence, abs=1e-5)
        assert float(posterior.log_evidence[target]) <= evidence


@pytest.mark.parametrize("spec", [BESIDE, KernelSpec(architecture="inducing", inputs=3, samples=9)])
def test_evidence_and_gradient_are_those_of_the_dense_bound(spec: KernelSpec) -> None:
    (x, y), kernel = table(40, targets=2), URK(spec)
    pooled = PooledEvidence.of(fitted(kernel, x, y), SCALES)
    bound = -dense_bound(kernel.features(x), y, SCALES, spec.samples).sum()
    assert pooled.value == pytest.approx(float(bound.detach()), rel=1e-9)
    (expected,) = torch.autograd.grad(bound, kernel.weights)
    found = sum(
        client_gradient(
            kernel,
            x[part],
            y[part],
            scatter_gradient=pooled.scatter_gradient,
            cross_gradient=pooled.cross_gradient,
        )
        for part in (slice(0, 7), slice(7, 40))
    )
    assert float((found - expected).norm()) <= 1e-9 * float(expected.norm())


def test_the_local_evidence_and_its_gradients_are_those_of_the_dense_bound() -> None:
    (x, y), kernel = table(25, targets=2), URK(BESIDE)
    results = []
    for dense in (True, False):
        log_noise = (SCALES.noise_variance.log() / 2).requires_grad_()
        log_prior = (SCALES.prior_variance.log() / 2).requires_grad_()
        phi = kernel.features(x)
        if dense:
            scales = Hyperparameters((2 * log_noise).exp(), (2 * log_prior).exp())
            value = -dense_bound(phi, y, scales, 10).sum()
        else:
            value = negative_log_evidence(
                phi, y, log_noise=log_noise, log_prior=log_prior, inducing=10
            )
        found = torch.autograd.grad(value, [kernel.weights, log_noise, log_prior])
        results.append((value.detach(), *found))
    for theirs, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_the_bound_is_below_the_evidence_of_the_whole_process() -> None:
    x, y = table(40)
    scales = Hyperparameters.of(noise_variance=0.2, prior_variance=1.3)
    covariance = 1.3 * matern(x, x, LENGTHSCALE) + 0.2 * torch.eye(40, dtype=torch.float64)
    law = MultivariateNormal(torch.zeros(40, dtype=torch.float64), covariance)
    bounds = [float(fitted(at(x[:m], LENGTHSCALE), x, y).log_evidence(scales)) for m in (5, 15, 30)]
    assert bounds == sorted(bounds)
    assert bounds[-1] <= float(law.log_prob(y[:, 0]))


def test_refitted_scales_maximise_the_bound_and_no_rows_are_explained_away() -> None:
    x, y = table(60, targets=1)
    spectrum, options = fitted(URK(BESIDE), x, y), RefitOptions()

    def value(scales: Hyperparameters) -> float:
        prior = float(scales.prior_variance.log()) / 2
        return float(spectrum.log_evidence(scales)) - prior**2 / 2

    found = refit(spectrum, options)
    for by_noise, by_prior in np.random.default_rng(0).normal(scale=0.05, size=(40, 2)):
        other = Hyperparameters(
            found.noise_variance * math.exp(by_noise), found.prior_variance * math.exp(by_prior)
        )
        assert value(other) <= value(found) + 1e-7
        assert float(objective(spectrum, other)) >= float(objective(spectrum, found)) - 1e-7
        difference = float(objective(spectrum, other) - objective(spectrum, found))
        assert difference == pytest.approx(value(found) - value(other), abs=1e-6)
    # Without the bound's term, the same sums ask for a larger λ.
    alone = refit(Spectrum.of(Statistics.of_table(URK(BESIDE), x, y)))
    assert float(alone.prior_variance) > float(found.prior_variance)


def test_the_ratio_is_the_one_with_the_largest_bound() -> None:
    x, y = table(60, targets=2)
    statistics = Statistics.of_table(URK(BESIDE), x, y)
    values = []
    for log_ratio in LOG_RATIOS:
        kernel = URK(BESIDE, with_log_ratio(starting_weights(BESIDE), log_ratio))
        spectrum = fitted(kernel, x, y)
        values.append(-float(objective(spectrum, refit(spectrum)).sum()))
    assert best_ratio(BESIDE, statistics, log_ratio=0.0).log_ratio == LOG_RATIOS[np.argmax(values)]


def test_away_from_the_rows_a_prediction_has_the_variance_of_the_prior() -> None:
    x, y = table(60, targets=2)
    spec = KernelSpec(architecture="inducing", inputs=3, samples=10, lengthscale=0.5)
    posterior = Posterior.of(fitted(URK(spec), x, y), SCALES)
    far = posterior.predict(URK(spec).features(x[:3] + 100))
    torch.testing.assert_close(far.latent_variance, SCALES.prior_variance.expand(3, 2))
