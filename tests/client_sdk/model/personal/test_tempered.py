"""The others' rows at a power, as the prior of a site's own layer."""

import pytest
import torch

from client_sdk.errors import RowsNotAmong
from client_sdk.model.personal.tempered import check_among, powers, tempered
from kernels.errors import StatisticsError
from kernels.layer.posterior import Hyperparameters, Posterior
from kernels.layer.statistics import Statistics
from tests.client_sdk.model.personal.random_rows import statistics_of

SCALES = Hyperparameters.of(noise_variance=0.3, prior_variance=2.0)


def of(rows: int, seed: int) -> Statistics:
    return statistics_of(rows, seed=seed)


def test_every_own_row_counts_once_whatever_the_power_is() -> None:
    own, others = of(20, 1), of(300, 2)
    pooled = own + others
    for power in (0.0, 0.1, 1.0):
        found = tempered(own, pooled, power=power, among=True)
        apart = tempered(own, others, power=power, among=False)
        expected = own.scatter + power * others.scatter
        assert torch.allclose(found.scatter, expected)
        assert torch.allclose(apart.scatter, expected)
        assert torch.allclose(found.cross, own.cross + power * others.cross)
        assert found.count == apart.count == round(20 + power * 300)


def test_at_its_ends_it_is_the_site_alone_and_the_layer_of_all_rows() -> None:
    own, pooled = of(20, 1), of(20, 1) + of(300, 2)
    for power, layer in ((0.0, own), (1.0, pooled)):
        found = Posterior.of(tempered(own, pooled, power=power, among=True), SCALES)
        expected = Posterior.of(layer, SCALES)
        assert torch.equal(found.weights, expected.weights)
        assert torch.equal(found.variances, expected.variances)


def test_the_global_posterior_as_a_prior_would_count_own_rows_twice() -> None:
    """What `among` prevents: a posterior that is surer than that of all rows."""
    own, pooled = of(20, 1), of(20, 1) + of(300, 2)
    twice = Posterior.of(tempered(own, pooled, power=1.0, among=False), SCALES)
    once = Posterior.of(tempered(own, pooled, power=1.0, among=True), SCALES)
    assert float(twice.variances.sum()) < float(once.variances.sum())


def test_rows_that_cannot_be_among_the_pooled_ones_are_found() -> None:
    own, others = of(60, 1), of(80, 2)
    check_among(own, own + others)
    with pytest.raises(RowsNotAmong, match="took_part=False"):
        check_among(own, others)


def test_powers_reach_from_all_of_the_others_to_none() -> None:
    tried = powers(10_000)
    assert tried[0] == 1
    assert tried[-1] == 0
    assert 10_000 * tried[-2] >= 1
    assert powers(0) == (0.0,)
    with pytest.raises(StatisticsError, match="from 0 to 1"):
        tempered(of(3, 1), of(3, 2), power=1.5, among=True)
