"""The Bayesian linear layer is the Gaussian process, tolerates rounding, and refuses bad input."""

import math

import gpytorch
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import MultivariateNormal

from kernels.errors import (
    EmptyTable,
    HyperparameterError,
    NotFinite,
    NotPositive,
    StatisticsError,
    WrongShape,
)
from kernels.features.spec import KernelSpec
from kernels.features.urk import URK
from kernels.layer.posterior import Hyperparameters, Posterior, Spectrum, rounding_of
from kernels.layer.statistics import Statistics
from tests.kernels.features.specs import EVERY_SPEC
from tests.kernels.layer.test_statistics import table

NOISE, PRIOR = 0.3, 1.7


def posterior_of(phi: Tensor, y: Tensor) -> Posterior:
    return Posterior.of(
        Statistics.of_features(phi, y),
        Hyperparameters.of(noise_variance=NOISE, prior_variance=PRIOR, targets=y.shape[1]),
    )


class _ExactGP(gpytorch.models.ExactGP):
    def __init__(self, x: Tensor, y: Tensor, kernel: URK) -> None:
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        likelihood.noise = torch.tensor(NOISE, dtype=torch.float64)
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel).double()
        self.covar_module.outputscale = torch.tensor(PRIOR, dtype=torch.float64)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.parametrize("spec", EVERY_SPEC.values(), ids=EVERY_SPEC)
@pytest.mark.parametrize("rows", [12, 60])
def test_the_primal_posterior_is_gpytorchs_exact_gp(spec: KernelSpec, rows: int) -> None:
    kernel = URK(spec)
    (x, y), (queries, _) = table(rows), table(11, seed=1)
    posterior = posterior_of(kernel.features(x).detach(), y)
    ours = posterior.predict(kernel.features(queries))
    model = _ExactGP(x, y[:, 0], kernel).eval()
    with (
        gpytorch.settings.fast_computations(
            covar_root_decomposition=False, log_prob=False, solves=False
        ),
        torch.no_grad(),
    ):
        theirs = model(queries)
        torch.testing.assert_close(ours.mean[:, 0], theirs.mean, rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(
            kernel.features(queries) @ posterior.covariance(0) @ kernel.features(queries).mT,
            theirs.covariance_matrix,
            rtol=1e-8,
            atol=1e-9,
        )
        torch.testing.assert_close(
            ours.latent_variance[:, 0], theirs.variance, rtol=1e-8, atol=1e-9
        )
        noisy = model.likelihood(theirs).variance
        torch.testing.assert_close(ours.variance[:, 0], noisy, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("rows", [5, 60])
def test_log_evidence_is_the_dense_gaussian_log_density_for_every_target(rows: int) -> None:
    kernel = URK(EVERY_SPEC["shifted"])
    x, y = table(rows, targets=2)
    phi = kernel.features(x).detach()
    own = Hyperparameters(torch.tensor([0.3, 0.1]).double(), torch.tensor([1.7, 0.4]).double())
    evidence = Posterior.of(Statistics.of_features(phi, y), own).log_evidence
    for target in range(2):
        covariance = own.prior_variance[target] * phi @ phi.mT
        covariance += own.noise_variance[target] * torch.eye(rows, dtype=torch.float64)
        dense = MultivariateNormal(torch.zeros(rows, dtype=torch.float64), covariance)
        torch.testing.assert_close(
            evidence[target], dense.log_prob(y[:, target]), rtol=1e-10, atol=0
        )


@pytest.mark.parametrize("rows", [7, 50])
def test_the_joint_log_density_of_new_rows_obeys_the_chain_rule(rows: int) -> None:
    kernel = URK(EVERY_SPEC["rbf"])
    (x, y), (queries, answers) = table(40, targets=2), table(rows, targets=2, seed=1)
    phi, psi = kernel.features(x).detach(), kernel.features(queries).detach()
    before = posterior_of(phi, y)
    after = posterior_of(torch.cat([phi, psi]), torch.cat([y, answers]))
    torch.testing.assert_close(
        before.log_density(psi, answers),
        after.log_evidence - before.log_evidence,
        rtol=1e-8,
        atol=1e-8,
    )


def test_several_targets_are_as_many_single_ones() -> None:
    x, y = table(40, targets=3)
    phi = URK(EVERY_SPEC["rbf"]).features(x).detach()
    together = posterior_of(phi, y).predict(phi)
    for target in range(3):
        alone = posterior_of(phi, y[:, target : target + 1]).predict(phi)
        torch.testing.assert_close(together.mean[:, target], alone.mean[:, 0])
        torch.testing.assert_close(together.variance[:, target], alone.variance[:, 0])


def test_without_rows_the_posterior_is_the_prior() -> None:
    posterior = Posterior.of(
        Statistics.zero(features=4), Hyperparameters.of(noise_variance=NOISE, prior_variance=PRIOR)
    )
    prediction = posterior.predict(torch.eye(4, dtype=torch.float64))
    torch.testing.assert_close(prediction.mean, torch.zeros(4, 1, dtype=torch.float64))
    torch.testing.assert_close(prediction.latent_variance, torch.full((4, 1), PRIOR).double())
    assert posterior.log_evidence.item() == 0


@given(bits=st.sampled_from([16, 20, 24, 30]), clients=st.integers(1, 200), rows=st.integers(1, 40))
@settings(deadline=None, max_examples=40)
def test_a_rounded_scatter_matrix_still_gives_a_valid_posterior(
    bits: int, clients: int, rows: int
) -> None:
    # Fewer rows than features: S is singular, and rounding makes it indefinite.
    kernel = URK(KernelSpec(architecture="rbf", inputs=3, samples=40, seed=clients))
    x, y = table(rows, seed=bits)
    exact = Statistics.of_table(kernel, x, y)
    generator = torch.Generator().manual_seed(clients)
    resolution = 2.0**-bits

    def error(*shape: int) -> Tensor:
        parts = torch.rand(clients, *shape, generator=generator, dtype=torch.float64) - 0.5
        return parts.sum(0) * resolution

    upper = error(80, 80).triu()
    rounded = Statistics(
        exact.scatter + upper + upper.triu(1).mT,
        exact.cross + error(80, 1),
        exact.target_squares,
        rows,
        rounding_of(resolution=resolution, clients=clients, features=80),
    )
    own = Hyperparameters.of(noise_variance=NOISE, prior_variance=PRIOR)
    queries = kernel.features(table(50, seed=2)[0])
    truth, ours = (
        Posterior.of(exact, own).predict(queries),
        Posterior.of(rounded, own).predict(queries),
    )
    assert (ours.latent_variance >= 0).all()
    assert (ours.latent_variance <= PRIOR * (1 + 1e-9)).all()
    error_in_sd = (truth.mean - ours.mean).abs() / truth.variance.sqrt()
    assert error_in_sd.max() < rounded.rounding * PRIOR / NOISE


def test_a_slightly_indefinite_matrix_needs_no_declaration_and_a_wrong_one_is_refused() -> None:
    own = Hyperparameters.of(noise_variance=NOISE, prior_variance=PRIOR)
    x, y = table(10)
    exact = Statistics.of_table(URK(EVERY_SPEC["rbf"]), x, y)

    def lowered(by: float, *, rounding: float = 0.0) -> Statistics:
        scatter = exact.scatter - by * torch.eye(20, dtype=torch.float64)
        return Statistics(scatter, exact.cross, exact.target_squares, 10, rounding)

    assert (Posterior.of(lowered(2.0**-24), own).variances > 0).all()
    assert (Posterior.of(lowered(1e-3, rounding=2e-3), own).variances > 0).all()
    with pytest.raises(NotPositive, match="eigenvalue"):
        Posterior.of(lowered(1e-3), own)
    with pytest.raises(NotPositive):
        Posterior.of(lowered(1e-2, rounding=2e-3), own)


def test_directions_below_the_rounding_are_left_to_the_prior_where_it_would_be_amplified() -> None:
    scatter = torch.diag(torch.tensor([5.0, 9e-7])).double()
    cross = torch.tensor([[5.0], [1e-3]]).double()
    statistics = Statistics(scatter, cross, torch.ones(1).double() * 9, 8, rounding=1e-6)

    def posterior(noise: float) -> Posterior:
        own = Hyperparameters.of(noise_variance=noise, prior_variance=PRIOR)
        return Posterior.of(statistics, own)

    assert posterior(1e-4).weights[1].item() == pytest.approx(
        1e-3 / (9e-7 + 1e-4 / PRIOR), rel=1e-6
    )
    assert posterior(1e-7).weights[1].item() == 0.0
    assert posterior(1e-7).variances[0].item() == pytest.approx(PRIOR)
    assert posterior(1e-7).weights[0].item() == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_impossible_variances_are_refused(bad: float) -> None:
    with pytest.raises(HyperparameterError, match="noise_variance"):
        Hyperparameters.of(noise_variance=bad, prior_variance=1)
    with pytest.raises(HyperparameterError, match="prior_variance"):
        Hyperparameters.of(noise_variance=1, prior_variance=bad)


def test_b_beyond_what_s_and_y_allow_is_refused() -> None:
    phi, y = torch.eye(3, dtype=torch.float64), torch.ones(3, 1, dtype=torch.float64)
    good = Statistics.of_features(phi, y)
    wrong = Statistics(good.scatter, 3 * good.cross, good.target_squares, 3)
    with pytest.raises(StatisticsError, match="larger than S"):
        Spectrum.of(wrong)


def test_every_use_of_a_spectrum_wants_one_sigma_and_lambda_per_target() -> None:
    x, y = table(30, targets=3)
    spectrum = Spectrum.of(Statistics.of_table(URK(EVERY_SPEC["rbf"]), x, y))
    two = Hyperparameters.of(noise_variance=1, prior_variance=1, targets=2)
    for use in (spectrum.log_evidence, spectrum.posterior_weights, spectrum.posterior_variances):
        with pytest.raises(HyperparameterError, match="3 targets"):
            use(two)


def test_bad_queries_are_named() -> None:
    x, y = table(30)
    phi = URK(EVERY_SPEC["rbf"]).features(x).detach()
    posterior = posterior_of(phi, y)
    with pytest.raises(WrongShape):
        posterior.predict(phi[:, 1:])
    with pytest.raises(EmptyTable):
        posterior.predict(phi[:0])
    with pytest.raises(NotFinite):
        posterior.predict(phi / 0)
    with pytest.raises(WrongShape):
        posterior.log_density(phi, y[1:])
    with pytest.raises(HyperparameterError, match="1 targets"):
        Posterior.of(
            Statistics.of_features(phi, y),
            Hyperparameters.of(noise_variance=1, prior_variance=1, targets=2),
        )
