"""Closed-form gradients equal autograd's, and those of clients add up to the pooled one."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import MultivariateNormal

from kernels.errors import EmptyTable, NotFinite, NotSymmetric, WrongShape
from kernels.features.spec import KernelSpec
from kernels.features.urk import URK
from kernels.layer.evidence import PooledEvidence, client_gradient
from kernels.layer.local_evidence import negative_log_evidence
from kernels.layer.posterior import Hyperparameters, Spectrum
from kernels.layer.statistics import Statistics
from tests.kernels.features.specs import EVERY_SPEC
from tests.kernels.layer.test_statistics import table

every_spec = pytest.mark.parametrize("spec", EVERY_SPEC.values(), ids=EVERY_SPEC)


def dense(phi: Tensor, y: Tensor, log_noise: Tensor, log_prior: Tensor) -> Tensor:
    """Return the negative log density of N(0, λ²ΦΦᵀ + σ²I), by autograd through a Cholesky."""
    identity = torch.eye(len(phi), dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for target in range(y.shape[1]):
        covariance = (2 * log_prior[target]).exp() * phi @ phi.mT
        covariance = covariance + (2 * log_noise[target]).exp() * identity
        total = total - MultivariateNormal(torch.zeros_like(y[:, 0]), covariance).log_prob(
            y[:, target]
        )
    return total


@pytest.mark.parametrize("rows", [6, 20, 45])
@pytest.mark.parametrize("targets", [1, 2])
def test_local_evidence_and_its_gradients_are_the_dense_ones(rows: int, targets: int) -> None:
    x, y = table(rows, targets=targets)
    phi = URK(EVERY_SPEC["rbf"]).features(x).detach()
    results = []
    for evaluate in (negative_log_evidence, dense):
        features = phi.clone().requires_grad_()
        log_noise = torch.linspace(-0.7, -0.2, targets, dtype=torch.float64).requires_grad_()
        log_prior = torch.linspace(0.4, 0.1, targets, dtype=torch.float64).requires_grad_()
        if evaluate is dense:
            value = dense(features, y, log_noise, log_prior)
        else:
            value = negative_log_evidence(features, y, log_noise=log_noise, log_prior=log_prior)
        gradients = torch.autograd.grad(3 * value, [features, log_noise, log_prior])
        results.append((value.detach(), *gradients))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


def test_local_evidence_passes_gradcheck() -> None:
    y = torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def evaluate(phi: Tensor, log_noise: Tensor, log_prior: Tensor) -> Tensor:
        return negative_log_evidence(phi, y, log_noise=log_noise, log_prior=log_prior)

    for columns in (3, 8):
        phi = torch.linspace(-1, 1, 5 * columns, dtype=torch.float64).sin().reshape(5, columns)
        small = torch.tensor([-0.3], dtype=torch.float64)
        inputs = [value.requires_grad_() for value in (phi, small, small.clone())]
        assert torch.autograd.gradcheck(evaluate, inputs)


HYPERPARAMETERS = Hyperparameters(
    torch.tensor([0.3, 0.1], dtype=torch.float64), torch.tensor([1.7, 0.4], dtype=torch.float64)
)


def pooled_gradient_by_autograd(kernel: URK, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    value = dense(
        kernel.features(x),
        y,
        HYPERPARAMETERS.noise_variance.log() / 2,
        HYPERPARAMETERS.prior_variance.log() / 2,
    )
    return value.detach(), torch.autograd.grad(value, kernel.weights)[0]


def federated_gradient(
    kernel: URK, x: Tensor, y: Tensor, clients: int, chunk_rows: int
) -> tuple[float, Tensor]:
    parts = list(zip(x.tensor_split(clients), y.tensor_split(clients), strict=True))
    total = Statistics.zero(features=kernel.spec.features, targets=y.shape[1])
    for part in parts:
        total = total + Statistics.of_table(kernel, *part, chunk_rows=chunk_rows)
    pooled = PooledEvidence.of(total, HYPERPARAMETERS)
    gradients = [
        client_gradient(
            kernel,
            *part,
            scatter_gradient=pooled.scatter_gradient,
            cross_gradient=pooled.cross_gradient,
            chunk_rows=chunk_rows,
        )
        for part in parts
    ]
    return pooled.value, torch.stack(gradients).sum(0)


@every_spec
@given(clients=st.integers(1, 50), chunk_rows=st.integers(1, 60), rows=st.sampled_from([15, 45]))
@settings(max_examples=8, deadline=None)
def test_the_federated_gradient_is_autograd_through_the_pooled_evidence(
    spec: KernelSpec, clients: int, chunk_rows: int, rows: int
) -> None:
    kernel = URK(spec)
    x, y = table(rows, targets=2)
    value, gradient = pooled_gradient_by_autograd(kernel, x, y)
    federated_value, federated = federated_gradient(kernel, x, y, clients, chunk_rows)
    assert federated_value == pytest.approx(value.item(), rel=1e-9)
    assert (federated - gradient).norm() <= 1e-9 * gradient.norm()


def test_a_wrong_factor_would_not_pass() -> None:
    # The broken twin: G_S without its ½, a mistake whose gradient direction looks plausible.
    kernel = URK(EVERY_SPEC["shifted"])
    x, y = table(45, targets=2)
    _, gradient = pooled_gradient_by_autograd(kernel, x, y)
    pooled = PooledEvidence.of(Statistics.of_table(kernel, x, y), HYPERPARAMETERS)
    broken = client_gradient(
        kernel,
        x,
        y,
        scatter_gradient=2 * pooled.scatter_gradient,
        cross_gradient=pooled.cross_gradient,
    )
    assert (broken - gradient).norm() > 1e-3 * gradient.norm()


def test_an_asymmetric_gradient_is_refused() -> None:
    # 2ΦG_S is the gradient only for a symmetric G_S, and an honest G_S is exactly symmetric.
    kernel, (x, y) = URK(EVERY_SPEC["shifted"]), table(15)
    crooked = torch.eye(20, dtype=torch.float64)
    crooked[3, 4] = 1e-12
    zeros = torch.zeros(20, 1, dtype=torch.float64)
    with pytest.raises(NotSymmetric, match="scatter_gradient"):
        client_gradient(kernel, x, y, scatter_gradient=crooked, cross_gradient=zeros)


@pytest.mark.parametrize("rows", [10, 400])
def test_local_evidence_is_right_where_a_cholesky_would_not_be(rows: int) -> None:
    x, y = table(rows)
    phi = URK(EVERY_SPEC["rbf"]).features(x / 50).detach()
    own = Hyperparameters.of(noise_variance=1e-6, prior_variance=1e6)
    logs = {"log_noise": own.noise_variance.log() / 2, "log_prior": own.prior_variance.log() / 2}
    local = negative_log_evidence(phi, y, **logs)
    pooled = -Spectrum.of(Statistics.of_features(phi, y)).log_evidence(own)
    assert float(local) == pytest.approx(float(pooled), rel=1e-3)


def test_what_is_not_finite_is_named() -> None:
    kernel, (x, y) = URK(EVERY_SPEC["rbf"]), table(5)
    broken = torch.full((20, 20), math.nan, dtype=torch.float64)
    zeros = torch.zeros(20, 1, dtype=torch.float64)
    with pytest.raises(NotFinite, match="gradient"):
        client_gradient(kernel, x, y, scatter_gradient=broken, cross_gradient=zeros)
    one = torch.zeros(1, dtype=torch.float64)
    with pytest.raises(NotFinite, match="targets"):
        negative_log_evidence(zeros, zeros / 0, log_noise=one, log_prior=one)
    with pytest.raises(WrongShape, match="chunk_rows"):
        client_gradient(kernel, x, y, scatter_gradient=broken, cross_gradient=zeros, chunk_rows=-1)


def test_float32_clients_are_close() -> None:
    kernel = URK(EVERY_SPEC["shifted"])
    x, y = table(45, targets=2)
    _, gradient = pooled_gradient_by_autograd(kernel, x, y)
    _, single = federated_gradient(URK(EVERY_SPEC["shifted"]).float(), x, y, 5, 100)
    assert (single.double() - gradient).norm() <= 1e-4 * gradient.norm()


def test_the_gradient_leaves_no_trace_on_the_kernel() -> None:
    kernel = URK(EVERY_SPEC["shifted"])
    x, y = table(45, targets=2)
    with torch.no_grad():
        federated_gradient(kernel, x, y, 3, 10)
    assert kernel.weights.grad is None


def test_an_empty_client_contributes_zero() -> None:
    kernel = URK(EVERY_SPEC["rbf"])
    x, y = table(0)
    zero = client_gradient(
        kernel,
        x,
        y,
        scatter_gradient=torch.eye(20, dtype=torch.float64),
        cross_gradient=torch.zeros(20, 1, dtype=torch.float64),
    )
    assert torch.equal(zero, torch.zeros(3, dtype=torch.float64))


def test_bad_shapes_are_named() -> None:
    one = torch.zeros(1, dtype=torch.float64)
    phi, y = torch.zeros(4, 2, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    with pytest.raises(WrongShape):
        negative_log_evidence(phi, y[1:], log_noise=one, log_prior=one)
    with pytest.raises(WrongShape, match="one value per target"):
        negative_log_evidence(phi, y, log_noise=torch.zeros(2), log_prior=one)
    with pytest.raises(EmptyTable):
        negative_log_evidence(phi[:0], y[:0], log_noise=one, log_prior=one)
    kernel = URK(EVERY_SPEC["rbf"])
    x, targets = table(5)
    identity, zeros = torch.eye(20, dtype=torch.float64), torch.zeros(20, 1, dtype=torch.float64)
    with pytest.raises(WrongShape, match="scatter_gradient"):
        client_gradient(kernel, x, targets, scatter_gradient=identity[1:], cross_gradient=zeros)
    with pytest.raises(WrongShape, match="same number of rows"):
        client_gradient(kernel, x[1:], targets, scatter_gradient=identity, cross_gradient=zeros)
    assert math.isfinite(float(negative_log_evidence(phi, y, log_noise=one, log_prior=one)))
