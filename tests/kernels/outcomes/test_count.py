"""Counts: the fit is statsmodels' negative binomial, and huge counts have finite answers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import nbinom
from torch import Tensor

from kernels.errors import HyperparameterError, TableError, WrongShape
from kernels.outcomes import count, logistic
from kernels.outcomes.newton import Search, advanced
from kernels.outcomes.variational import Layer
from tests.kernels.outcomes import tables

ROWS = 1500
PHI = tables.features(ROWS, 3)
EXPOSURE = 0.5 + 2 * tables.chances(ROWS, seed=8)
SLOPES = torch.tensor([0.8, -0.5, 0.3, 0.7], dtype=torch.float64)


def counts(dispersion: float) -> Tensor:
    mean = (EXPOSURE * (PHI @ SLOPES).exp()).numpy()
    drawn = nbinom.rvs(
        dispersion, dispersion / (dispersion + mean), random_state=np.random.default_rng(3)
    )
    return torch.from_numpy(drawn.astype(np.float64))


def fitted(y: Tensor, *, prior: float | None = None, sums: int = 16) -> tuple[Layer, float]:
    """Newton's sums, r chosen after each of the first ones from the block beside them."""
    offset = count.base_offset(total=float(y.sum()), exposure=float(EXPOSURE.sum()))
    layer, dispersion = Layer.prior(PHI.shape[1]), 1.0
    if prior is not None:
        layer = tables.by_polya_gamma(PHI, count.trials(y, dispersion=1.0), sums=1)
        layer = Layer(layer.sums, prior)
    for _ in range(4):
        search = Search((layer,))
        for _ in range(sums // 4):
            rows = count.trials(y, dispersion=dispersion, exposure=EXPOSURE, offset=offset)
            total = logistic.local([(PHI, rows)], search.layers[0], rule=logistic.newton)
            search = advanced(search, [total], fixed_prior=prior is not None)
        layer = search.layers[0]
        latent = layer.latent(PHI)
        terms = count.dispersion_terms(y, *latent, exposure=EXPOSURE, offset=offset)
        dispersion = count.dispersion_of(terms)
    return layer, dispersion


@pytest.mark.parametrize("true", [0.7, 3.0])
def test_with_a_wide_prior_it_is_statsmodels_negative_binomial(true: float) -> None:
    from statsmodels.discrete.discrete_model import NegativeBinomial

    y = counts(true)
    model = NegativeBinomial(y.numpy(), PHI.numpy(), exposure=EXPOSURE.numpy())
    theirs = model.fit(disp=0, maxiter=200)
    layer, dispersion = fitted(y, prior=1e6)
    offset = count.base_offset(total=float(y.sum()), exposure=float(EXPOSURE.sum()))
    ours = layer.mean.numpy() + np.array([0, 0, 0, offset])  # the last feature is 1
    errors = theirs.bse[:-1]
    # A posterior's mean is not its mode: they differ by the order of 1/n.
    assert np.abs((ours - theirs.params[:-1]) / errors).max() < 0.06
    deviations = layer.covariance.diagonal().sqrt().numpy()
    assert deviations == pytest.approx(errors, rel=0.05)
    assert dispersion == pytest.approx(1 / theirs.params[-1], rel=0.02)
    means = count.predict(
        *layer.latent(PHI), dispersion=dispersion, exposure=EXPOSURE, offset=offset
    ).mean
    predicted = theirs.predict()
    # E[exp f] is exp(m + v/2); a regression without a posterior has exp(m).
    without = means * (-layer.latent(PHI)[1] / 2).exp()
    assert without.numpy() == pytest.approx(predicted, rel=0.01)
    gap = count.deviance(y, means).mean() / count.deviance(y, torch.from_numpy(predicted)).mean()
    assert float(gap) == pytest.approx(1.0, abs=1e-4)


def test_the_dispersion_block_is_additive_and_poisson_counts_go_to_the_end_of_the_grid() -> None:
    generator = torch.Generator().manual_seed(1)
    mean = torch.full((4000,), 1.2, dtype=torch.float64)
    y = torch.poisson(mean.exp(), generator=generator)
    none = torch.zeros_like(mean)
    whole = count.dispersion_terms(y, mean, none)
    parts = [
        count.dispersion_terms(y[part], mean[part], none[part])
        for part in (slice(0, 700), slice(700, 4000))
    ]
    tables.assert_close(parts[0] + parts[1], whole)
    assert count.dispersion_of(whole) > 50


@given(
    mean=st.floats(-3, 3), variance=st.floats(0, 2), r=st.floats(0.1, 100), seed=st.integers(0, 9)
)
@settings(max_examples=15, deadline=None)
def test_mean_variance_and_density_belong_to_one_law(
    mean: float, variance: float, r: float, seed: int
) -> None:
    m, v = (torch.full((3000,), own, dtype=torch.float64) for own in (mean, variance))
    found = count.predict(m[:1], v[:1], dispersion=r, exposure=torch.tensor([1.5]))
    y = torch.arange(3000, dtype=torch.float64)
    p = count.log_density(y, m, v, dispersion=r, exposure=torch.full((3000,), 1.5)).exp()
    if float(p.sum()) > 1 - 1e-9:  # else the tail is beyond 3,000
        assert float(p.sum()) == pytest.approx(1.0, abs=1e-8)
        assert float(p @ y) == pytest.approx(float(found.mean), rel=1e-3)
    assert float(found.observation_variance) >= float(found.mean + found.variance) * (1 - 1e-9)


def test_without_uncertainty_it_is_scipys_law() -> None:
    y = torch.tensor([0.0, 1.0, 7.0, 1e6])
    m, zero = torch.log(torch.tensor([0.5, 2.0, 3.0, 9e5]).double()), torch.zeros(4).double()
    found = count.log_density(y, m, zero, dispersion=2.5)
    p = 2.5 / (2.5 + m.exp())
    assert found.numpy() == pytest.approx(nbinom.logpmf(y.numpy(), 2.5, p.numpy()), rel=1e-8)


@pytest.mark.parametrize("kind", ["a million", "all zero", "one million among zeros"])
def test_answers_are_finite(kind: str) -> None:
    phi = tables.features(50)
    y = torch.zeros(50, dtype=torch.float64)
    if kind == "a million":
        y += 1e6
    if kind == "one million among zeros":
        y[7] = 1e6
    offset = count.base_offset(total=float(y.sum()), exposure=50)
    rows = count.trials(y, dispersion=1.0, offset=offset)
    search = tables.by_newton(phi, rows, sums=20)
    slow = tables.by_polya_gamma(phi, rows, sums=10)
    assert search.kept is not None
    for layer in (*search.kept, slow):
        latent = layer.latent(phi)
        found = count.predict(*latent, dispersion=1.0, offset=offset)
        for own in (found.mean, found.variance, found.observation_variance):
            assert own.isfinite().all()
        assert count.log_density(y, *latent, dispersion=1.0, offset=offset).isfinite().all()
        terms = count.dispersion_terms(y, *latent, offset=offset)
        assert terms.isfinite().all()
        assert math.isfinite(count.dispersion_of(terms))
    if kind == "a million":
        found = count.predict(*search.kept[0].latent(phi), dispersion=1.0, offset=offset)
        assert found.mean.numpy() == pytest.approx(1e6, rel=0.2)
    wild = torch.tensor([1e5], dtype=torch.float64)
    far = count.predict(wild, wild, dispersion=1.0)
    assert far.observation_variance.isfinite().all()


def test_exposure_is_an_offset() -> None:
    y = torch.tensor([3.0, 5.0])
    with_exposure = count.trials(y, dispersion=2.0, exposure=torch.tensor([2.0, 2.0]))
    with_offset = count.trials(y, dispersion=2.0, offset=math.log(2.0))
    tables.assert_close(with_exposure.offset, with_offset.offset)


def test_impossible_counts_are_refused() -> None:
    for wrong in ([-1.0], [0.5], [math.nan], [math.inf]):
        with pytest.raises(TableError):
            count.trials(torch.tensor(wrong), dispersion=1.0)
    one = torch.ones(1)
    with pytest.raises(TableError):
        count.trials(one, dispersion=1.0, exposure=0 * one)
    with pytest.raises(WrongShape):
        count.trials(one, dispersion=1.0, exposure=torch.ones(2))
    with pytest.raises(HyperparameterError):
        count.trials(one, dispersion=0.0)
    with pytest.raises(WrongShape):
        count.dispersion_of(torch.zeros(3))
