"""q(w), its bound and λ from sums are those of dense algebra."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.errors import HyperparameterError, NotPositive
from kernels.layer.refit import RefitOptions
from kernels.outcomes import binary, logistic
from kernels.outcomes.variational import Layer, log_prior, refit, spectrum_of, updated
from kernels.outcomes.weighted import Weighted
from tests.kernels.outcomes import tables

PHI = tables.features(60)
ROWS = binary.trials(tables.yes_no(PHI))
TOTAL = logistic.local([(PHI, ROWS)], Layer.prior(7, prior_variance=1.5))


def test_without_rows_it_is_the_prior() -> None:
    prior = Layer.prior(7, prior_variance=2.5)
    mean, variance = prior.latent(PHI)
    assert not mean.any()
    tables.assert_close(variance, 2.5 * PHI.square().sum(1))
    assert prior.divergence() == pytest.approx(0.0, abs=1e-12)
    assert updated(prior, Weighted.zero(7)).prior_variance == 2.5


@given(prior=st.floats(1e-3, 1e3))
@settings(max_examples=20, deadline=None)
def test_mean_covariance_and_divergence_are_the_dense_ones(prior: float) -> None:
    layer = Layer(TOTAL, prior)
    precision = TOTAL.scatter + torch.eye(7, dtype=torch.float64) / prior
    tables.assert_close(layer.covariance, precision.inverse(), rtol=1e-8, atol=1e-10)
    tables.assert_close(layer.mean, precision.inverse() @ TOTAL.cross, rtol=1e-8, atol=1e-10)
    size = float(layer.mean.square().sum() + precision.inverse().trace()) / prior
    determinant = float(torch.logdet(prior * precision))
    assert layer.divergence() == pytest.approx((size - 7 + determinant) / 2, rel=1e-8)


@pytest.mark.parametrize("rule", [logistic.polya_gamma, logistic.newton])
def test_the_bound_at_any_q_is_the_dense_one(rule: logistic.Rule) -> None:
    layer = Layer(TOTAL, 0.8)
    found = layer.bound(logistic.local([(PHI, ROWS)], layer, rule=rule))
    root = torch.linalg.cholesky(layer.covariance)
    assert found == pytest.approx(
        float(tables.dense_bound(PHI, ROWS, rule, layer.mean, root, 0.8)), rel=1e-10
    )


def test_the_prior_scale_is_the_best_of_all_within_its_rounding() -> None:
    options = RefitOptions()

    def value(prior: float) -> float:
        precision = TOTAL.scatter + torch.eye(7, dtype=torch.float64) / prior
        explained = float(TOTAL.cross @ precision.inverse() @ TOTAL.cross)
        evidence = (explained - float(torch.logdet(prior * precision))) / 2
        return evidence + log_prior(prior, options)

    best = refit([spectrum_of(TOTAL)], options)
    assert all(value(best) >= value(best * factor) for factor in (0.1, 0.9, 0.999, 1.001, 1.1, 10))
    mantissa = math.frexp(best)[0] * 2.0**16
    assert mantissa == round(mantissa)


def test_the_prior_scale_keeps_to_its_bounds() -> None:
    narrow = RefitOptions(prior_bounds=(3.0, 4.0))
    assert refit([spectrum_of(TOTAL)], narrow) == pytest.approx(9.0, rel=2.0**-15)


def test_the_gradient_is_autograd_through_the_dense_bound() -> None:
    layer = Layer(TOTAL, 0.8)
    scatter, cross = (own.clone().requires_grad_() for own in (TOTAL.scatter, TOTAL.cross))
    precision = scatter + torch.eye(7, dtype=torch.float64) / 0.8
    bound = cross @ torch.linalg.solve(precision, cross) / 2 - torch.logdet(0.8 * precision) / 2
    by_scatter, by_cross = torch.autograd.grad(-bound, [scatter, cross])
    tables.assert_close(layer.gradient[0], by_scatter, rtol=1e-9, atol=1e-12)
    tables.assert_close(layer.gradient[1][:, 0], by_cross, rtol=1e-9, atol=1e-12)


def test_impossible_layers_are_refused() -> None:
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(HyperparameterError):
            Layer.prior(2, prior_variance=wrong)
    negative = Weighted(-torch.eye(2, dtype=torch.float64), TOTAL.cross[:2], 0.0, 3)
    with pytest.raises(NotPositive):
        spectrum_of(negative)


def test_predictions_have_the_variance_that_inducing_features_leave_out() -> None:
    layer = Layer(TOTAL, 0.8)
    phi = PHI / PHI.norm(dim=1, keepdim=True)
    own = 0.8 * (1 - phi[:, :4].square().sum(1))
    mean, variance = layer.latent(phi)
    found = layer.latent(phi, inducing=4)
    assert torch.equal(found[0], mean)
    tables.assert_close(found[1], variance + own)
    # At all places of a row, what is left out is the same function's value.
    covariance, whole = layer.joint(phi[:, :4])[1], layer.joint(phi[:, :4], inducing=4)[1]
    places = phi.shape[1] - 4
    tables.assert_close(whole - covariance, own[:, None, None].expand(-1, places, places))
