"""Gaussians over a network's parameters, multiplied."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from kernels.ensembles.networks import outputs
from kernels.errors import ProgramError, StatisticsError
from kernels.rounds.compared import ep_mcmc
from kernels.rounds.shared.local_network import sample_at
from kernels.rounds.site.site import Part
from tests.conformance.algorithm import AlgorithmConformance
from tests.kernels.rounds import sums
from tests.kernels.rounds.network_rows import SAMPLING, missed, sites_and_model, without_rows

SPEC = ep_mcmc.Spec(**SAMPLING)


class TestEpMcmc(AlgorithmConformance):
    algorithm = ep_mcmc

    def spec(self) -> Any:
        return SPEC


def test_the_product_is_that_of_all_sites_gaussians_over_the_prior_in_one_place() -> None:
    sites, model = sites_and_model()
    posteriors = [sample_at(site, model, SPEC, SPEC.start(model)) for site in sites]
    last = sums.after_all(ep_mcmc, SPEC, model, [*sites, without_rows(sites[0])])
    means = torch.stack([each.samples.mean(0) for each in posteriors])
    variances = torch.stack([each.samples.var(0) for each in posteriors])
    variances = variances.clamp(ep_mcmc.LEAST_VARIANCE, SPEC.weight_variance)
    precision = (1 / variances).sum(0) - 2 / SPEC.weight_variance
    assert torch.allclose(last.variance, 1 / precision, rtol=1e-8)
    assert torch.allclose(last.mean, (means / variances).sum(0) / precision, rtol=1e-7, atol=1e-9)
    noise = missed(sites, model, lambda site, x: posteriors[site].predict(x).mean)
    assert torch.allclose(last.model.networks_of("ep_mcmc").noise_variance, noise, rtol=1e-4)


def test_sites_that_are_less_sure_than_the_prior_count_as_the_prior() -> None:
    sites, model = sites_and_model()
    wild = replace(SPEC, noise_variance=1.0, temperature=1e4, weight_variance=1e-4, step_size=0.001)
    for site in sites:
        assert sample_at(site, model, wild, wild.start(model)).samples.var(0).median() > 1e-4
    last = sums.after_all(ep_mcmc, wild, model, sites)
    assert (last.variance <= 1e-4 * (1 + 1e-9)).all()
    assert last.variance.median() == pytest.approx(1e-4)


def test_networks_are_drawn_from_the_product_and_predict_by_their_mixture() -> None:
    sites, model = sites_and_model()
    last = sums.after_all(ep_mcmc, replace(SPEC, draws=900), model, sites)
    served = last.model.networks_of("ep_mcmc")
    drawn = served.samples
    error = (last.variance / len(drawn)).sqrt()
    assert ((drawn.mean(0) - last.mean).abs() < 5 * error).all()
    assert torch.allclose(drawn.var(0), last.variance, rtol=0.3)
    x = sites[0].table(Part.TRAINING, model)[0]
    said, each = served.predict(x), outputs(SPEC.network(model), drawn, x)
    assert torch.allclose(said.mean, each.mean(0))
    assert torch.allclose(said.variance, each.var(0, correction=0) + served.noise_variance)
    assert served.rows == sum(site.count(Part.TRAINING) for site in sites)
    with pytest.raises(ProgramError, match="at most 1000"):
        replace(SPEC, draws=1001)


def test_nobodys_rows_train_nothing() -> None:
    sites, model = sites_and_model()
    with pytest.raises(StatisticsError, match="no site has rows"):
        sums.after_all(ep_mcmc, SPEC, model, [without_rows(sites[0])])
